package nonresource

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// discovery has the discovery documents of what is served at one time.
type discovery struct {
	of       *verbs.Served
	groups   []metav1.APIGroup // named groups, in order
	versions map[schema.GroupVersion]*metav1.APIResourceList
	// core and named are the aggregated documents of /api and /apis; their ETags are below.
	core, named         apidiscoveryv2.APIGroupDiscoveryList
	coreETag, namedETag string
}

// currentDiscovery returns the documents of what is served now. They are made by the first request after a change.
func (h *Handler) currentDiscovery() *discovery {
	served := h.API.Served()
	if d := h.discovery.Load(); d != nil && d.of == served {
		return d
	}
	d := newDiscovery(served)
	h.discovery.Store(d)
	return d
}

func newDiscovery(served *verbs.Served) *discovery {
	d := &discovery{of: served, versions: map[schema.GroupVersion]*metav1.APIResourceList{}}
	for _, info := range served.Infos {
		gv := info.GVK.GroupVersion()
		list := d.versions[gv]
		if list == nil {
			list = &metav1.APIResourceList{GroupVersion: gv.String()}
			d.versions[gv] = list
			d.addGroup(gv)
		}
		list.APIResources = append(list.APIResources, resourcesOf(info)...)
		d.aggregate(gv, info)
	}
	for _, list := range d.versions {
		sort.Slice(list.APIResources, func(i, j int) bool { return list.APIResources[i].Name < list.APIResources[j].Name })
	}
	d.coreETag, d.namedETag = etag(d.core), etag(d.named)
	return d
}

func (d *discovery) addGroup(gv schema.GroupVersion) {
	version := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
	if gv.Group == "" {
		return
	}
	for i := range d.groups {
		if d.groups[i].Name == gv.Group {
			d.groups[i].Versions = append(d.groups[i].Versions, version)
			return
		}
	}
	d.groups = append(d.groups, metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
}

// storageHash returns the storageVersionHash of a resource, as upstream computes it.
func storageHash(info *catalog.Info) string {
	stored := info.Stored
	if stored.Virtual {
		return ""
	}
	return encodeHash(fmt.Sprintf("%s/%s/%s", stored.GVK.Group, stored.StorageKind().Version, stored.GVK.Kind))
}

// resourcesOf returns the entries of a resource and its subresources in a discovery document.
func resourcesOf(info *catalog.Info) []metav1.APIResource {
	main := metav1.APIResource{Name: info.GVR.Resource, SingularName: info.Singular, Namespaced: info.Namespaced, Kind: info.GVK.Kind,
		Verbs: info.DiscoveryVerbs, ShortNames: info.Short, Categories: info.Categories, StorageVersionHash: storageHash(info)}
	out := []metav1.APIResource{main}
	for _, sub := range verbs.SubresourcesOf(info) {
		out = append(out, metav1.APIResource{Name: info.GVR.Resource + "/" + sub.Name, Namespaced: info.Namespaced, Kind: sub.Kind, Group: sub.Group, Version: sub.Version, Verbs: sub.Verbs})
	}
	return out
}

// aggregate adds a resource to an aggregated document.
func (d *discovery) aggregate(gv schema.GroupVersion, info *catalog.Info) {
	list := &d.named
	if gv.Group == "" {
		list = &d.core
	}
	group := findOrAdd(&list.Items, func(g apidiscoveryv2.APIGroupDiscovery) bool { return g.Name == gv.Group },
		apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: gv.Group}})
	version := findOrAdd(&group.Versions, func(v apidiscoveryv2.APIVersionDiscovery) bool { return v.Version == gv.Version },
		apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
	scope := apidiscoveryv2.ScopeCluster
	if info.Namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	resource := apidiscoveryv2.APIResourceDiscovery{Resource: info.GVR.Resource, Scope: scope, SingularResource: info.Singular, Verbs: info.DiscoveryVerbs,
		ShortNames: info.Short, Categories: info.Categories,
		ResponseKind: &metav1.GroupVersionKind{Group: info.GVK.Group, Version: info.GVK.Version, Kind: info.GVK.Kind}}
	for _, sub := range verbs.SubresourcesOf(info) {
		kind := metav1.GroupVersionKind{Group: gv.Group, Version: gv.Version, Kind: sub.Kind}
		if sub.Version != "" {
			kind.Group, kind.Version = sub.Group, sub.Version
		}
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub.Name, ResponseKind: &kind, Verbs: sub.Verbs})
	}
	version.Resources = append(version.Resources, resource)
	sort.Slice(version.Resources, func(i, j int) bool { return version.Resources[i].Resource < version.Resources[j].Resource })
}

func findOrAdd[T any](list *[]T, is func(T) bool, fresh T) *T {
	for i := range *list {
		if is((*list)[i]) {
			return &(*list)[i]
		}
	}
	*list = append(*list, fresh)
	return &(*list)[len(*list)-1]
}

// etag returns a hash of the JSON of a document.
func etag(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data can be marshaled
	}
	return fmt.Sprintf("%X", sha512.Sum512(b))
}

// serveDiscovery answers a discovery path, or returns false if the path is none.
func (h *Handler) serveDiscovery(w http.ResponseWriter, r *http.Request) bool {
	path, d := strings.Trim(r.URL.Path, "/"), h.currentDiscovery()
	read := r.Method == http.MethodGet // the others, /apis and /apis/GROUP, are answered whatever the method, as upstream
	switch {
	case path == "api" && !read:
		response.Fail(w, r, response.ErrMethodNotAllowed)
		return true
	case path == "api":
		versions := &metav1.APIVersions{Versions: []string{"v1"}, ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{{ClientCIDR: "0.0.0.0/0", ServerAddress: h.Address}}}
		h.sendDiscovery(w, r, versions, legacyKind("APIVersions"), &d.core, d.coreETag)
		return true
	case path == "apis":
		h.sendDiscovery(w, r, &metav1.APIGroupList{Groups: d.groups}, v1Kind("APIGroupList"), &d.named, d.namedETag)
		return true
	}
	parts := strings.Split(path, "/")
	switch {
	case len(parts) == 2 && parts[0] == "apis":
		for i := range d.groups {
			if d.groups[i].Name == parts[1] {
				h.sendObject(w, r, &d.groups[i], v1Kind("APIGroup"))
				return true
			}
		}
	case len(parts) == 2 && parts[0] == "api", len(parts) == 3 && parts[0] == "apis":
		gv := schema.GroupVersion{Version: parts[len(parts)-1]}
		if parts[0] == "apis" {
			gv.Group = parts[1]
		}
		if list := d.versions[gv]; list != nil {
			if !read {
				response.Fail(w, r, response.ErrMethodNotAllowed)
				return true
			}
			kind := v1Kind("APIResourceList")
			if gv.Group == "" {
				kind = legacyKind(kind.Kind)
			}
			h.sendObject(w, r, list, kind)
			return true
		}
		if gv.Group == "" || d.has(gv.Group) {
			response.Fail(w, r, response.ErrNotFound)
			return true
		}
	}
	return false
}

func (d *discovery) has(group string) bool {
	return slices.ContainsFunc(d.groups, func(g metav1.APIGroup) bool { return g.Name == group })
}

// sendDiscovery answers with the aggregated document if the client accepts it, and with the plain one otherwise.
func (h *Handler) sendDiscovery(w http.ResponseWriter, r *http.Request, plain runtime.Object, kind schema.GroupVersionKind, aggregated *apidiscoveryv2.APIGroupDiscoveryList, tag string) {
	for _, clause := range goautoneg.ParseAccept(r.Header.Get("Accept")) {
		if clause.Params["as"] != "APIGroupDiscoveryList" || clause.Params["g"] != "apidiscovery.k8s.io" || clause.Params["v"] != "v2" {
			continue
		}
		media, err := codec.MediaOf(clause.Type + "/" + clause.SubType)
		if err != nil {
			continue
		}
		header := w.Header()
		header.Set("Vary", "Accept")
		header.Set("ETag", `"`+tag+`"`)
		header.Set("Cache-Control", "public")
		if r.Header.Get("If-None-Match") == `"`+tag+`"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		b, err := codec.Single(aggregated.DeepCopy(), apidiscoveryv2.SchemeGroupVersion.WithKind("APIGroupDiscoveryList"), codec.Accepted{Media: media})
		if err != nil {
			response.Fail(w, r, err)
			return
		}
		header.Set("Content-Type", media.String()+";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(b)
		return
	}
	h.sendObject(w, r, plain, kind)
}

func v1Kind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Version: "v1", Kind: kind}
}

// legacyKind returns a kind without version, as the answers of /api have it.
func legacyKind(kind string) schema.GroupVersionKind { return schema.GroupVersionKind{Kind: kind} }

// sendObject answers with an object that is not of a resource.
func (h *Handler) sendObject(w http.ResponseWriter, r *http.Request, obj runtime.Object, kind schema.GroupVersionKind) {
	accept, err := codec.Negotiate(r.Header.Get("Accept"))
	if err != nil {
		response.Fail(w, r, err)
		return
	}
	accept.Pretty = accept.Pretty || response.Pretty(r)
	b, err := codec.Single(obj.DeepCopyObject(), kind, accept)
	if err != nil {
		response.Fail(w, r, err)
		return
	}
	w.Header().Set("Content-Type", accept.Media.String())
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(b)
}

// encodeHash returns the first 8 bytes of the SHA-256 of a string in base64.
func encodeHash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

package nonresource

import (
	"cmp"
	"crypto/sha512"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/munnerz/goautoneg"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/response"
	"skiff/internal/catalog"
)

// discovery has the discovery documents of what was served at one time. It costs nothing until the first request for one of them.
type discovery struct {
	documents func() *documents
}

// documents are the discovery documents. They are not modified.
type documents struct {
	groups   []metav1.APIGroup // named groups, in order
	versions map[schema.GroupVersion]*metav1.APIResourceList
	// core and named are the aggregated documents of /api and /apis; their ETags are below.
	core, named         apidiscoveryv2.APIGroupDiscoveryList
	coreETag, namedETag string
}

// newDiscovery returns the discovery of resources, and of what other servers serve. The lists must not change any more.
func newDiscovery(infos []*catalog.Info, aggregated []Aggregated, shared *discoveryParts) *discovery {
	return &discovery{documents: sync.OnceValue(func() *documents { return newDocuments(shared.of(infos, aggregated)) })}
}

// SetServed replaces what discovery says is served. It does no work before the next request for discovery. The lists must not change any more.
func (h *Handler) SetServed(infos []*catalog.Info, aggregated []Aggregated) {
	h.discovery.Store(newDiscovery(infos, aggregated, &h.parts))
}

func (h *Handler) documents() *documents { return h.discovery.Load().documents() }

func newDocuments(parts []*versionPart) *documents {
	d := &documents{versions: make(map[schema.GroupVersion]*metav1.APIResourceList, len(parts))}
	byGroup := map[string][]*versionPart{}
	for _, part := range parts {
		if part.list != nil {
			d.versions[part.gv] = part.list
		}
		byGroup[part.gv.Group] = append(byGroup[part.gv.Group], part)
	}
	for _, versions := range byGroup {
		slices.SortFunc(versions, compareVersions)
	}
	parts = slices.Clone(parts)
	slices.SortFunc(parts, compareServices)
	listed := map[string]bool{"": true}
	for _, part := range parts {
		if !listed[part.gv.Group] {
			listed[part.gv.Group] = true
			d.groups = append(d.groups, plainGroup(byGroup[part.gv.Group]))
		}
	}
	core := byGroup[""]
	delete(byGroup, "")
	if core != nil {
		d.core, d.coreETag = aggregatedGroups(map[string][]*versionPart{"": core})
	}
	d.named, d.namedETag = aggregatedGroups(byGroup)
	return d
}

func plainGroup(versions []*versionPart) metav1.APIGroup {
	group := metav1.APIGroup{Name: versions[0].gv.Group}
	for _, part := range versions {
		group.Versions = append(group.Versions, metav1.GroupVersionForDiscovery{GroupVersion: part.gv.String(), Version: part.gv.Version})
	}
	group.PreferredVersion = group.Versions[0]
	return group
}

// aggregatedGroups returns the aggregated document of some groups, and its ETag. Unlike in the plain document, groups of the same priority are
// ordered by their names.
func aggregatedGroups(byGroup map[string][]*versionPart) (list apidiscoveryv2.APIGroupDiscoveryList, etag string) {
	priority := func(group string) int32 {
		return slices.MaxFunc(byGroup[group], func(a, b *versionPart) int { return cmp.Compare(a.priority.Group, b.priority.Group) }).priority.Group
	}
	names := slices.SortedFunc(maps.Keys(byGroup), func(a, b string) int { return cmp.Or(cmp.Compare(priority(b), priority(a)), strings.Compare(a, b)) })
	hash := sha512.New()
	for _, name := range names {
		group := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, part := range byGroup[name] {
			group.Versions = append(group.Versions, part.aggregated)
			fmt.Fprintf(hash, "%s/%x,", part.gv, part.digest)
		}
		list.Items = append(list.Items, group)
	}
	return list, fmt.Sprintf("%X", hash.Sum(nil))
}

// serveDiscovery answers a discovery path, or returns false if the path is none.
func (h *Handler) serveDiscovery(w http.ResponseWriter, r *http.Request) bool {
	path := strings.Trim(r.URL.Path, "/")
	read := r.Method == http.MethodGet // the others, /apis and /apis/GROUP, are answered whatever the method, as upstream
	d := h.documents()
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
			if !read && Builtin(gv) {
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
		if gv.Group == "" || d.hasLocal(gv.Group) {
			response.Fail(w, r, response.ErrNotFound)
			return true
		}
	}
	return false
}

// hasLocal reports whether this server serves a version of a group.
func (d *documents) hasLocal(group string) bool {
	for gv := range d.versions {
		if gv.Group == group {
			return true
		}
	}
	return false
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
		document := *aggregated // its kind is set while it is encoded
		b, err := codec.Single(&document, apidiscoveryv2.SchemeGroupVersion.WithKind("APIGroupDiscoveryList"), codec.Accepted{Media: media})
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

package nonresource

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
)

// Aggregated is a group version that another server serves.
type Aggregated struct {
	schema.GroupVersion
	Priority Priority
	// Discovery has what that server said of its resources, and whether that is current. It is not modified.
	Discovery apidiscoveryv2.APIVersionDiscovery
}

// versionPart is what the discovery documents say of one group version. It is not modified after it was made, and shared by all documents until
// the group version changes.
type versionPart struct {
	gv       schema.GroupVersion
	priority Priority

	infos  []*catalog.Info // from which it was made
	hashes []string        // their storageVersionHash

	list       *metav1.APIResourceList // nil of what another server serves
	aggregated apidiscoveryv2.APIVersionDiscovery
	digest     [sha512.Size]byte // of aggregated
}

// discoveryParts has the parts of the last built documents, which the next ones can use. So only what has changed is made again.
type discoveryParts struct {
	mu       sync.Mutex
	versions map[schema.GroupVersion]*versionPart
}

// of returns the parts of the resources, and of what other servers serve. Where both serve a group version, the other server does.
func (p *discoveryParts) of(infos []*catalog.Info, aggregated []Aggregated) []*versionPart {
	p.mu.Lock()
	defer p.mu.Unlock()
	others := map[schema.GroupVersion]bool{}
	var parts []*versionPart
	for _, a := range aggregated {
		others[a.GroupVersion] = true
		discovered := a.Discovery
		discovered.Version = a.GroupVersion.Version
		parts = append(parts, &versionPart{gv: a.GroupVersion, priority: a.Priority, aggregated: discovered, digest: digest(discovered)})
	}
	served := map[schema.GroupVersionResource]bool{}
	byVersion := map[schema.GroupVersion][]*catalog.Info{}
	var order []schema.GroupVersion
	for _, info := range infos {
		gv := info.GVK.GroupVersion()
		if others[gv] {
			continue
		}
		if byVersion[gv] == nil {
			order = append(order, gv)
		}
		byVersion[gv] = append(byVersion[gv], info)
		served[info.GVR] = true
	}
	kept := make(map[schema.GroupVersion]*versionPart, len(order))
	for _, gv := range order {
		part := p.versions[gv]
		hashes := storageHashes(byVersion[gv], served)
		if part == nil || !slices.Equal(part.infos, byVersion[gv]) || !slices.Equal(part.hashes, hashes) {
			part = newVersionPart(gv, byVersion[gv], hashes)
		}
		kept[gv] = part
		parts = append(parts, part)
	}
	p.versions = kept
	return parts
}

func newVersionPart(gv schema.GroupVersion, infos []*catalog.Info, hashes []string) *versionPart {
	part := &versionPart{gv: gv, priority: PriorityOf(gv), infos: infos, hashes: hashes, list: &metav1.APIResourceList{GroupVersion: gv.String()},
		aggregated: apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}}
	for i, info := range infos {
		part.list.APIResources = append(part.list.APIResources, resourcesOf(info, hashes[i])...)
		part.aggregated.Resources = append(part.aggregated.Resources, aggregatedOf(info))
	}
	if Builtin(gv) {
		slices.SortFunc(part.list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	} else { // the subresources in their own order
		slices.SortStableFunc(part.list.APIResources, func(a, b metav1.APIResource) int { return strings.Compare(mainResource(a), mainResource(b)) })
	}
	slices.SortFunc(part.aggregated.Resources, func(a, b apidiscoveryv2.APIResourceDiscovery) int { return strings.Compare(a.Resource, b.Resource) })
	part.digest = digest(part.aggregated)
	return part
}

func mainResource(r metav1.APIResource) string {
	name, _, _ := strings.Cut(r.Name, "/")
	return name
}

// storageHashes returns the storageVersionHash of each resource, as upstream computes it. Only storage versions that are served have one.
func storageHashes(infos []*catalog.Info, served map[schema.GroupVersionResource]bool) []string {
	hashes := make([]string, len(infos))
	for i, info := range infos {
		stored := info.Stored
		kind := stored.GVK.GroupKind().WithVersion(stored.StorageKind().Version)
		if stored.Virtual || !Builtin(info.GVK.GroupVersion()) && !served[info.GVR.GroupResource().WithVersion(kind.Version)] {
			continue
		}
		hashes[i] = encodeHash(fmt.Sprintf("%s/%s/%s", kind.Group, kind.Version, kind.Kind))
	}
	return hashes
}

// resourcesOf returns the entries of a resource and its subresources in a discovery document.
func resourcesOf(info *catalog.Info, storageHash string) []metav1.APIResource {
	main := metav1.APIResource{Name: info.GVR.Resource, SingularName: info.Singular, Namespaced: info.Namespaced, Kind: info.GVK.Kind,
		Verbs: info.DiscoveryVerbs, ShortNames: info.Short, Categories: info.Categories, StorageVersionHash: storageHash}
	out := []metav1.APIResource{main}
	for _, sub := range subresourcesOf(info) {
		out = append(out, metav1.APIResource{Name: info.GVR.Resource + "/" + sub.Name, Namespaced: info.Namespaced, Kind: sub.Kind, Group: sub.Group, Version: sub.Version, Verbs: sub.Verbs})
	}
	return out
}

// aggregatedOf returns the entry of a resource in an aggregated document.
func aggregatedOf(info *catalog.Info) apidiscoveryv2.APIResourceDiscovery {
	scope := apidiscoveryv2.ScopeCluster
	if info.Namespaced {
		scope = apidiscoveryv2.ScopeNamespace
	}
	resource := apidiscoveryv2.APIResourceDiscovery{Resource: info.GVR.Resource, Scope: scope, SingularResource: info.Singular, Verbs: info.DiscoveryVerbs,
		ShortNames: info.Short, Categories: info.Categories,
		ResponseKind: &metav1.GroupVersionKind{Group: info.GVK.Group, Version: info.GVK.Version, Kind: info.GVK.Kind}}
	for _, sub := range subresourcesOf(info) {
		kind := metav1.GroupVersionKind{Group: info.GVK.Group, Version: info.GVK.Version, Kind: sub.Kind}
		if sub.Version != "" {
			kind.Group, kind.Version = sub.Group, sub.Version
		}
		resource.Subresources = append(resource.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub.Name, ResponseKind: &kind, Verbs: sub.Verbs})
	}
	return resource
}

// subresourcesOf returns the subresources of a resource in upstream's order: by name, but a custom resource has its status before its scale.
func subresourcesOf(info *catalog.Info) []catalog.Subresource {
	subs := verbs.SubresourcesOf(info)
	if !Builtin(info.GVK.GroupVersion()) {
		slices.Reverse(subs)
	}
	return subs
}

// digest returns a hash of the JSON of a value.
func digest(v any) [sha512.Size]byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain data can be marshaled
	}
	return sha512.Sum512(b)
}

// encodeHash returns the first 8 bytes of the SHA-256 of a string in base64.
func encodeHash(of string) string {
	sum := sha256.Sum256([]byte(of))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

package aggregation

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// maxDiscovery bounds what a server says of all that it serves, and of one group version.
	maxDiscovery = 4 << 20
	// acceptDiscovery asks for the aggregated form of discovery.
	acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
)

// known is what a server has said.
type known struct {
	discovery  apidiscoveryv2.APIVersionDiscovery
	discovered bool // discovery has been learned once
	current    bool // it was learned since the server became available
	documents  documents
	problem    string // why the server could not say what it serves, as it was logged last
}

// discovery returns what is known of a group version.
func (b *Backend) discovery() apidiscoveryv2.APIVersionDiscovery {
	b.knownMu.Lock()
	defer b.knownMu.Unlock()
	d := b.known.discovery
	d.Version, d.Freshness = b.gv.Version, apidiscoveryv2.DiscoveryFreshnessStale
	if b.known.current {
		d.Freshness = apidiscoveryv2.DiscoveryFreshnessCurrent
	}
	return d
}

// adopt takes what is known of the APIService from its earlier state, if that is about the same server. It counts as stale until the server has said it again.
func (b *Backend) adopt(old *Backend) {
	if old == nil || old.uid != b.uid {
		return
	}
	old.knownMu.Lock()
	defer old.knownMu.Unlock()
	b.known.discovery, b.known.discovered = old.known.discovery, old.known.discovered
	b.known.current = old.known.current && old.service() == b.service() && old.port() == b.port()
	b.known.documents = old.known.documents
	b.known.documents.put = "" // they are fetched from the new backend
}

// setStale says in discovery that the server is down. What it said last stays.
func (b *Backend) setStale() {
	b.knownMu.Lock()
	changed := b.known.current
	b.known.current = false
	b.knownMu.Unlock()
	if changed {
		b.owner.Host.DiscoveryChanged()
	}
}

// refresh learns from a server that answers what it serves, and which OpenAPI documents it has.
func (b *Backend) refresh(ctx context.Context) error {
	learned, err := b.learn(ctx)
	if err != nil {
		b.setStale()
		return fmt.Errorf("discovery: %w", err)
	}
	b.knownMu.Lock()
	changed := !b.known.current || !apiequality.Semantic.DeepEqual(b.known.discovery, *learned)
	b.known.discovery, b.known.discovered, b.known.current = *learned, true, true
	b.knownMu.Unlock()
	if changed {
		b.owner.Host.DiscoveryChanged()
	}
	return b.refreshDocuments(ctx)
}

// report reports whether an error is worth a line in the log: it is none that was reported before.
func (b *Backend) report(err error) bool {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	b.knownMu.Lock()
	defer b.knownMu.Unlock()
	changed := problem != b.known.problem
	b.known.problem = problem
	return changed && err != nil
}

// learn asks a server for its discovery: for the aggregated form, or else for that of the group version.
func (b *Backend) learn(ctx context.Context) (*apidiscoveryv2.APIVersionDiscovery, error) {
	got, err := b.fetch(ctx, "/apis", "", http.Header{"Accept": {acceptDiscovery}}, maxDiscovery)
	switch {
	case errors.Is(err, errTooLarge): // the group version alone may be small enough
	case err != nil:
		return nil, err
	case got.code == http.StatusServiceUnavailable:
		return nil, fmt.Errorf("the response code is %d", got.code)
	case got.code == http.StatusOK && isAggregatedForm(got.header.Get("Content-Type")):
		var list apidiscoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(got.body, &list); err != nil {
			return nil, err
		}
		return versionOf(&list, b.gv.Group, b.gv.Version), nil
	}
	return b.learnAlone(ctx)
}

// learnAlone asks for the discovery of the group version in the plain form.
func (b *Backend) learnAlone(ctx context.Context) (*apidiscoveryv2.APIVersionDiscovery, error) {
	got, err := b.fetch(ctx, "/"+b.path(), "", http.Header{"Accept": {"application/json"}}, maxDiscovery)
	if err != nil {
		return nil, err
	}
	if got.code != http.StatusOK {
		return nil, fmt.Errorf("the response code is %d", got.code)
	}
	var list metav1.APIResourceList
	if err := json.Unmarshal(got.body, &list); err != nil {
		return nil, err
	}
	resources, err := aggregatedForm(list.APIResources)
	if err != nil {
		return nil, err
	}
	return &apidiscoveryv2.APIVersionDiscovery{Version: b.gv.Version, Resources: resources}, nil
}

// isAggregatedForm reports whether a response is an APIGroupDiscoveryList.
func isAggregatedForm(contentType string) bool {
	kind, parameters, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json" && parameters["as"] == "APIGroupDiscoveryList" && parameters["g"] == "apidiscovery.k8s.io" && parameters["v"] == "v2"
}

// versionOf returns what a document says of a group version. It is empty if that is not in the document.
func versionOf(list *apidiscoveryv2.APIGroupDiscoveryList, group, version string) *apidiscoveryv2.APIVersionDiscovery {
	for _, g := range list.Items {
		for _, v := range g.Versions {
			if g.Name != group || v.Version != version {
				continue
			}
			for i := range v.Resources {
				r := &v.Resources[i]
				if r.ResponseKind == nil { // old clients cannot do without
					r.ResponseKind = &metav1.GroupVersionKind{}
				}
				for j := range r.Subresources {
					if r.Subresources[j].ResponseKind == nil {
						r.Subresources[j].ResponseKind = &metav1.GroupVersionKind{}
					}
				}
			}
			return &v
		}
	}
	return &apidiscoveryv2.APIVersionDiscovery{Version: version}
}

// aggregatedForm returns the resources of the plain form of discovery as the aggregated form has them.
func aggregatedForm(plain []metav1.APIResource) (all []apidiscoveryv2.APIResourceDiscovery, err error) {
	index := map[string]int{}
	for _, r := range plain {
		if !strings.Contains(r.Name, "/") {
			index[r.Name] = len(all)
			all = append(all, apidiscoveryv2.APIResourceDiscovery{Resource: r.Name, Scope: scopeOf(r), ResponseKind: kindOf(r), Verbs: r.Verbs, ShortNames: r.ShortNames,
				Categories: r.Categories, SingularResource: r.SingularName})
		}
	}
	for _, r := range plain {
		parent, name, isSubresource := strings.Cut(r.Name, "/")
		if !isSubresource {
			continue
		}
		i, known := index[parent]
		if !known {
			i = len(all)
			index[parent] = i
			all = append(all, apidiscoveryv2.APIResourceDiscovery{Resource: parent, Scope: scopeOf(r), ResponseKind: &metav1.GroupVersionKind{}})
		}
		if all[i].Scope != scopeOf(r) {
			return nil, fmt.Errorf("Error: Parent %s (scope: %s) and subresource %s (scope: %s) scope do not match", parent, all[i].Scope, name, scopeOf(r))
		}
		sub := apidiscoveryv2.APISubresourceDiscovery{Subresource: name, Verbs: r.Verbs, ResponseKind: &metav1.GroupVersionKind{}}
		if r.Kind != "" {
			sub.ResponseKind = kindOf(r)
		}
		all[i].Subresources = append(all[i].Subresources, sub)
	}
	return all, nil
}

func scopeOf(r metav1.APIResource) apidiscoveryv2.ResourceScope {
	if r.Namespaced {
		return apidiscoveryv2.ScopeNamespace
	}
	return apidiscoveryv2.ScopeCluster
}

func kindOf(r metav1.APIResource) *metav1.GroupVersionKind {
	return &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
}

// digestOf returns a short hash.
func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%x", sum[:16])
}

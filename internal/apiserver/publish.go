package apiserver

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"skiff/internal/apiserver/openapi"
	openapicustom "skiff/internal/apiserver/openapi/custom"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/catalog"
	"skiff/internal/catalog/admissionregistration/v1alpha1"
	"skiff/internal/catalog/custom"
)

// publish replaces what is served, and then what discovery says of it: nobody learns of a resource before it is served.
func (s *Server) publish(served *verbs.Served) {
	s.api.Replace(served)
	s.publishDiscovery()
	s.aggregation.SetServed(served.Infos)
}

// publishDiscovery makes discovery say what is served, here and by other servers.
func (s *Server) publishDiscovery() {
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.nonResource.SetServed(s.api.Served().Infos, s.aggregation.Discovered())
}

// describe makes the OpenAPI documents follow what is served of a group: that of each version, and the part of v2 of each resource and version.
func (c *customResources) describe(group string) {
	versions := map[string][]*catalog.Info{} // by the path of the document
	for _, r := range c.order {
		for _, info := range c.served[r].infos {
			if info.GVR.Group == group {
				path := "apis/" + info.GVR.GroupVersion().String()
				versions[path] = append(versions[path], info)
			}
		}
	}
	wanted := map[string]bool{}
	put := func(path, hash string, v3, v2 func() ([]byte, error)) {
		wanted[path] = true
		if err := c.server.openAPI.Put(path, hash, v3, v2); err != nil {
			c.server.opts.Log.Warn("failed to describe custom resources in OpenAPI", "path", path, "err", err)
		}
	}
	for path, infos := range versions {
		gv := infos[0].GVR.GroupVersion()
		if c.server.aggregation.Backend(gv.Group, gv.Version, "/"+path) != nil {
			continue // another server describes it
		}
		put(path, digestOf(infos), func() ([]byte, error) { return build(gv, infos, openapicustom.V3) }, nil)
		for _, info := range infos {
			one := []*catalog.Info{info}
			put(path+"/"+info.GVR.Resource, digestOf(one), nil, func() ([]byte, error) { return build(gv, one, openapicustom.V2) })
		}
	}
	for path := range c.described[group] {
		if !wanted[path] {
			c.server.openAPI.Delete(path)
		}
	}
	if c.described[group] = wanted; len(wanted) == 0 {
		delete(c.described, group)
	}
}

// describeInitializers describes InitializerConfigurations in OpenAPI.
func (s *Server) describeInitializers() {
	if err := s.openAPI.Put("apis/"+v1alpha1.GroupVersion.String(), "built in", openapi.InitializersV3, openapi.InitializersV2); err != nil {
		s.opts.Log.Warn("failed to describe InitializerConfigurations in OpenAPI", "err", err)
	}
}

// describeMetrics describes metrics.k8s.io in OpenAPI, if this server serves it.
func (s *Server) describeMetrics() {
	gv := metricsv1beta1.SchemeGroupVersion
	if !s.opts.ResourceMetrics || s.aggregation.Serves(gv) {
		return
	}
	if err := s.openAPI.Put("apis/"+gv.String(), "built in", openapi.ResourceMetricsV3, openapi.ResourceMetricsV2); err != nil {
		s.opts.Log.Warn("failed to describe metrics.k8s.io in OpenAPI", "err", err)
	}
}

// digestOf returns a text that changes when what OpenAPI says of versions of custom resources does.
func digestOf(infos []*catalog.Info) string {
	digests := make([]string, len(infos))
	for i, info := range infos {
		digests[i] = fmt.Sprintf("%s %x", info.GVR.Resource, versionOf(info).Digest())
	}
	slices.Sort(digests)
	return strings.Join(digests, ",")
}

func versionOf(info *catalog.Info) *custom.Version { return info.New().(*custom.Object).Version() }

// build builds a document of versions of custom resources.
func build(gv schema.GroupVersion, infos []*catalog.Info, document func(schema.GroupVersion, []openapicustom.Resource) ([]byte, error)) ([]byte, error) {
	resources := make([]openapicustom.Resource, len(infos))
	for i, info := range infos {
		structural, err := versionOf(info).Schema().Structural()
		if err != nil {
			return nil, err
		}
		resources[i] = openapicustom.Resource{GVK: info.GVK, ListKind: info.ListKind, Plural: info.GVR.Resource, Namespaced: info.Namespaced, Schema: structural,
			PreserveUnknownFields: versionOf(info).PreservesUnknownFields(), Status: info.Status != nil, Scale: info.Scale != nil}
		for _, f := range info.Fields {
			if f.Name != "" {
				resources[i].SelectableFields = append(resources[i].SelectableFields, f.Name)
			}
		}
	}
	return document(gv, resources)
}

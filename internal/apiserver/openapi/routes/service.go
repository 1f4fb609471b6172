package routes

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
)

// Service holds the operations below one path. Each Service has an OpenAPI v3 document of its own.
type Service struct {
	root   string
	routes []common.Route
}

var _ common.RouteContainer = &Service{}

func (s *Service) RootPath() string                   { return s.root }
func (s *Service) PathParameters() []common.Parameter { return nil }
func (s *Service) Routes() []common.Route             { return s.routes }

// GroupVersion returns the service of one group version: its resources, and their discovery.
func GroupVersion(gv schema.GroupVersion, endpoints []*Endpoint) *Service {
	return resources(gv, endpoints).discovery("get available resources", "getAPIResources", resourceModel)
}

// CustomGroupVersion returns the service of the custom resources of one group version. It does not include their discovery, which
// upstream documents only for built-in groups.
func CustomGroupVersion(gv schema.GroupVersion, endpoints []*Endpoint) *Service {
	return resources(gv, endpoints)
}

func resources(gv schema.GroupVersion, endpoints []*Endpoint) *Service {
	s := &Service{root: "/apis/" + gv.Group + "/" + gv.Version}
	if gv.Group == "" {
		s.root = "/api/" + gv.Version
	}
	for _, e := range endpoints {
		for _, r := range e.routes(s.root) {
			s.routes = append(s.routes, r)
		}
	}
	return s
}

// Group returns the service that lists the versions of a group.
func Group(name string) *Service {
	return (&Service{root: "/apis/" + name}).discovery("get information of a group", "getAPIGroup", groupModel)
}

// Groups returns the service that lists the groups.
func Groups() *Service {
	return (&Service{root: "/apis"}).discovery("get available API versions", "getAPIVersions", groupsModel)
}

// CoreVersions returns the service that lists the versions of the core group.
func CoreVersions() *Service {
	return (&Service{root: "/api"}).discovery("get available API versions", "getAPIVersions", versionsModel)
}

// Version returns the service for the version of the server.
func Version() *Service {
	const json = "application/json"
	return (&Service{root: "/version"}).get("get the version information for this server", "getCodeVersion",
		"io.k8s.apimachinery.pkg.version.Info", []string{json}, []string{json})
}

// OpenIDConfiguration returns the service for the discovery document of service account tokens.
func OpenIDConfiguration() *Service {
	return (&Service{root: "/.well-known/openid-configuration"}).get(
		"get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
		"getServiceAccountIssuerOpenIDConfiguration", "", nil, []string{"application/json"})
}

// OpenIDKeys returns the service for the keys that OpenIDConfiguration refers to.
func OpenIDKeys() *Service {
	return (&Service{root: "/openid/v1/jwks"}).get(
		"get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
		"getServiceAccountIssuerOpenIDKeyset", "", nil, []string{"application/jwk-set+json"})
}

func (s *Service) discovery(description, operation string, returned Model) *Service {
	return s.get(description, operation, returned, objectTypes, objectTypes)
}

func (s *Service) get(description, operation string, returned Model, consumes, produces []string) *Service {
	r := &Route{method: http.MethodGet, path: s.root + "/", operation: operation, description: description,
		consumes: consumes, produces: produces}
	s.routes = append(s.routes, r.returns(returned, http.StatusOK))
	return s
}

var verbs = []string{"get", "log", "read", "replace", "patch", "delete", "watch", "connect", "proxy", "list", "create"}

// OperationID returns a name of an operation that is unique among groups, and the tag of its group version: listNamespacedPod at
// /api/v1/... becomes listCoreV1NamespacedPod, tagged core_v1.
func OperationID(r common.Route) (id string, tags []string, err error) {
	operation := r.OperationName()
	for _, verb := range verbs {
		rest, ok := strings.CutPrefix(operation, verb)
		if !ok {
			continue
		}
		group, tag := groupNames(r.Path())
		return verb + group + identifier(rest, true), []string{tag}, nil
	}
	return "", nil, fmt.Errorf("operation %q does not start with a verb", operation)
}

// groupNames returns the name of a path's group version inside an operation ID, and as a tag.
func groupNames(path string) (infix, tag string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if parts[0] == "api" {
		parts = append([]string{"apis", "core"}, parts[1:]...)
	}
	if parts[0] != "apis" || len(parts) < 2 {
		return "", identifier(parts[0], false)
	}
	group := strings.TrimSuffix(parts[1], ".k8s.io")
	infix, tag = identifier(group, true), identifier(group, false)
	if len(parts) > 2 {
		infix += identifier(parts[2], true)
		tag += "_" + identifier(parts[2], false)
	}
	return infix, tag
}

// GroupNames returns what OperationID makes of a group version: its name inside operation IDs, and as a tag.
func GroupNames(gv schema.GroupVersion) (infix, tag string) {
	return groupNames("/apis/" + gv.Group + "/" + gv.Version)
}

// identifier removes characters that are invalid in an identifier, and capitalizes those that follow.
func identifier(s string, capital bool) string {
	var b strings.Builder
	for i, c := range s {
		switch {
		case !unicode.IsLetter(c) && c != '_' && (i == 0 || !unicode.IsDigit(c)):
			capital = true
		case capital:
			b.WriteRune(unicode.ToUpper(c))
			capital = false
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// GroupVersion returns the group version of the service's resources, if it has any.
func (s *Service) GroupVersion() (schema.GroupVersion, bool) {
	parts := strings.Split(strings.Trim(s.root, "/"), "/")
	switch {
	case len(parts) == 2 && parts[0] == "api":
		return schema.GroupVersion{Version: parts[1]}, true
	case len(parts) == 3 && parts[0] == "apis":
		return schema.GroupVersion{Group: parts[1], Version: parts[2]}, true
	default:
		return schema.GroupVersion{}, false
	}
}

package routes

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
)

// Service is the operations below one path. Each has an OpenAPI v3 document of its own.
type Service struct {
	root   string
	routes []common.Route
}

var _ common.RouteContainer = &Service{}

func (s *Service) RootPath() string                   { return s.root }
func (s *Service) PathParameters() []common.Parameter { return nil }
func (s *Service) Routes() []common.Route             { return s.routes }

// GroupVersion is the service of one group version: its resources, and the list of them.
func GroupVersion(gv schema.GroupVersion, endpoints []*Endpoint) *Service {
	return resources(gv, endpoints).discovery("get available resources", "getAPIResources", resourceModel)
}

// CustomGroupVersion is the service of custom resources of one group version. It has no list of them: upstream documents
// that of built-in groups only.
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

// Group is the service that tells which versions a group has.
func Group(name string) *Service {
	return (&Service{root: "/apis/" + name}).discovery("get information of a group", "getAPIGroup", groupModel)
}

// Groups is the service that tells which groups there are.
func Groups() *Service {
	return (&Service{root: "/apis"}).discovery("get available API versions", "getAPIVersions", groupsModel)
}

// CoreVersions is the service that tells which versions the core group has.
func CoreVersions() *Service {
	return (&Service{root: "/api"}).discovery("get available API versions", "getAPIVersions", versionsModel)
}

// Version is the service that tells which Kubernetes this is.
func Version() *Service {
	const json = "application/json"
	return (&Service{root: "/version"}).get("get the version information for this server", "getCodeVersion",
		"io.k8s.apimachinery.pkg.version.Info", []string{json}, []string{json})
}

// OpenIDConfiguration is the service by which others learn how to verify service account tokens.
func OpenIDConfiguration() *Service {
	return (&Service{root: "/.well-known/openid-configuration"}).get(
		"get service account issuer OpenID configuration, also known as the 'OIDC discovery doc'",
		"getServiceAccountIssuerOpenIDConfiguration", "", nil, []string{"application/json"})
}

// OpenIDKeys is the service of the keys that OpenIDConfiguration points to.
func OpenIDKeys() *Service {
	return (&Service{root: "/openid/v1/jwks"}).get(
		"get service account issuer OpenID JSON Web Key Set (contains public token verification keys)",
		"getServiceAccountIssuerOpenIDKeyset", "", nil, []string{"application/jwk-set+json"})
}

func (s *Service) discovery(description, operation string, answer Model) *Service {
	return s.get(description, operation, answer, objectTypes, objectTypes)
}

func (s *Service) get(description, operation string, answer Model, consumes, produces []string) *Service {
	r := &Route{method: http.MethodGet, path: s.root + "/", operation: operation, description: description,
		consumes: consumes, produces: produces}
	s.routes = append(s.routes, r.returns(answer, http.StatusOK))
	return s
}

var verbs = []string{"get", "log", "read", "replace", "patch", "delete", "watch", "connect", "proxy", "list", "create"}

// OperationID names an operation so that no two groups' collide, and gives the tag of its group version:
// listNamespacedPod at /api/v1/... becomes listCoreV1NamespacedPod, tagged core_v1.
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

// groupNames is what the group version of a path is called inside an operation id, and as a tag.
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

// identifier drops what an identifier cannot hold, and capitalizes what follows it.
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

// GroupVersion is the group version whose resources the service has, if it has any.
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

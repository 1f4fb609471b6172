package routes

import (
	"fmt"
	"sort"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/common"
)

var (
	v1     = schema.GroupVersion{Version: "v1"}
	things = schema.GroupVersion{Group: "example.k8s.io", Version: "v1beta1"}

	allVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
)

// describe returns a service as one line per operation: method, path, operation ID, action and responses, and below it the
// description and the parameters.
func describe(t *testing.T, s *Service) string {
	t.Helper()
	var lines []string
	for _, r := range s.Routes() {
		id, tags, err := OperationID(r)
		if err != nil {
			t.Fatal(err)
		}
		var answers, parameters []string
		for _, a := range r.StatusCodeResponses() {
			name := a.Model().(Model).OpenAPIModelName()
			answers = append(answers, fmt.Sprintf("%d:%s", a.Code(), name[strings.LastIndex(name, ".")+1:]))
		}
		for _, p := range r.Parameters() {
			if p.Kind() == common.BodyParameterKind {
				parameters = append(parameters, fmt.Sprintf("%s=%v", p.Name(), r.RequestPayloadSample()))
			} else {
				parameters = append(parameters, p.Name())
			}
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %v %v %s\n  %s\n  %s", r.Path(), r.Method(), id, tags,
			r.Metadata()["x-kubernetes-action"], strings.Join(answers, ","), r.Description(), strings.Join(parameters, " ")))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n") + "\n"
}

func TestNamespaced(t *testing.T) {
	s := GroupVersion(things, []*Endpoint{{GroupVersion: things, Resource: "owls", Namespaced: true, Verbs: allVerbs,
		ResourceKind: "Owl", Kind: things.WithKind("Owl"), Model: "io.k8s.example.v1beta1.Owl", ListModel: "io.k8s.example.v1beta1.OwlList"}})
	const deletion = "pretty gracePeriodSeconds orphanDependents propagationPolicy dryRun ignoreStoreReadErrorWithClusterBreakingPotential"
	const listing = "labelSelector fieldSelector watch allowWatchBookmarks resourceVersion resourceVersionMatch timeoutSeconds limit continue sendInitialEvents shardSelector"
	got := strings.NewReplacer(listing, "LISTING", strings.NewReplacer("watch allowWatchBookmarks ", "").Replace(listing), "COLLECTION", deletion, "DELETION").
		Replace(describe(t, s))
	want := `/apis/example.k8s.io/v1beta1/ GET getExampleV1beta1APIResources [example_v1beta1] <nil> 200:APIResourceList
  get available resources
  
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls DELETE deleteExampleV1beta1CollectionNamespacedOwl [example_v1beta1] deletecollection 200:Status
  delete collection of Owl
  namespace DELETION COLLECTION body=io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls GET listExampleV1beta1NamespacedOwl [example_v1beta1] list 200:OwlList
  list or watch objects of kind Owl
  namespace pretty LISTING
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls POST createExampleV1beta1NamespacedOwl [example_v1beta1] post 200:Owl,201:Owl,202:Owl
  create an Owl
  namespace pretty dryRun fieldManager fieldValidation body=io.k8s.example.v1beta1.Owl
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls/{name} DELETE deleteExampleV1beta1NamespacedOwl [example_v1beta1] delete 200:Status,202:Status
  delete an Owl
  namespace name DELETION body=io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls/{name} GET readExampleV1beta1NamespacedOwl [example_v1beta1] get 200:Owl
  read the specified Owl
  namespace name pretty
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls/{name} PATCH patchExampleV1beta1NamespacedOwl [example_v1beta1] patch 200:Owl,201:Owl
  partially update the specified Owl
  namespace name pretty dryRun force fieldManager fieldValidation body=io.k8s.apimachinery.pkg.apis.meta.v1.Patch
/apis/example.k8s.io/v1beta1/namespaces/{namespace}/owls/{name} PUT replaceExampleV1beta1NamespacedOwl [example_v1beta1] put 200:Owl,201:Owl
  replace the specified Owl
  namespace name pretty dryRun fieldManager fieldValidation body=io.k8s.example.v1beta1.Owl
/apis/example.k8s.io/v1beta1/owls GET listExampleV1beta1OwlForAllNamespaces [example_v1beta1] list 200:OwlList
  list or watch objects of kind Owl
  pretty LISTING
/apis/example.k8s.io/v1beta1/watch/namespaces/{namespace}/owls GET watchExampleV1beta1NamespacedOwlList [example_v1beta1] watchlist 200:WatchEvent
  watch individual changes to a list of Owl. deprecated: use the 'watch' parameter with a list operation instead.
  namespace pretty LISTING
/apis/example.k8s.io/v1beta1/watch/namespaces/{namespace}/owls/{name} GET watchExampleV1beta1NamespacedOwl [example_v1beta1] watch 200:WatchEvent
  watch changes to an object of kind Owl. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter.
  namespace name pretty LISTING
/apis/example.k8s.io/v1beta1/watch/owls GET watchExampleV1beta1OwlListForAllNamespaces [example_v1beta1] watchlist 200:WatchEvent
  watch individual changes to a list of Owl. deprecated: use the 'watch' parameter with a list operation instead.
  pretty LISTING
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestSubresources(t *testing.T) {
	pod := func(subresource, kind string, verbs ...string) Endpoint {
		return Endpoint{GroupVersion: v1, Resource: "pods", Subresource: subresource, Namespaced: true, Verbs: verbs,
			ResourceKind: "Pod", Kind: v1.WithKind(kind), Model: Model("io.k8s.api.core.v1." + kind)}
	}
	status := pod("status", "Pod", "get")
	binding := pod("binding", "Binding", "create")
	log := pod("log", "Pod", "get")
	log.Text, log.Options = true, &corev1.PodLogOptions{}
	proxy := pod("proxy", "PodProxyOptions", "create", "get")
	proxy.Connect, proxy.Methods, proxy.WithPath, proxy.Options = true, []string{"GET"}, true, &corev1.PodProxyOptions{}
	got := describe(t, GroupVersion(v1, []*Endpoint{&status, &binding, &log, &proxy}))
	want := `/api/v1/ GET getCoreV1APIResources [core_v1] <nil> 200:APIResourceList
  get available resources
  
/api/v1/namespaces/{namespace}/pods/{name}/binding POST createCoreV1NamespacedPodBinding [core_v1] post 200:Binding,201:Binding,202:Binding
  create binding of a Pod
  namespace name pretty dryRun fieldManager fieldValidation body=io.k8s.api.core.v1.Binding
/api/v1/namespaces/{namespace}/pods/{name}/log GET readCoreV1NamespacedPodLog [core_v1] get 200:string
  read log of the specified Pod
  namespace name pretty container follow previous sinceSeconds timestamps tailLines limitBytes insecureSkipTLSVerifyBackend stream
/api/v1/namespaces/{namespace}/pods/{name}/proxy GET connectCoreV1GetNamespacedPodProxy [core_v1] connect 200:string
  connect GET requests to proxy of Pod
  namespace name path
/api/v1/namespaces/{namespace}/pods/{name}/proxy/{path} GET connectCoreV1GetNamespacedPodProxyWithPath [core_v1] connect 200:string
  connect GET requests to proxy of Pod
  namespace name path path
/api/v1/namespaces/{namespace}/pods/{name}/status GET readCoreV1NamespacedPodStatus [core_v1] get 200:Pod
  read status of the specified Pod
  namespace name pretty
`
	if got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestClusterScoped(t *testing.T) {
	s := GroupVersion(v1, []*Endpoint{{GroupVersion: v1, Resource: "classes", Verbs: []string{"create", "delete", "list"},
		ResourceKind: "Class", Kind: v1.WithKind("Class"), Model: "Class", ListModel: "ClassList", DeleteReturnsObject: true}})
	for _, want := range []string{
		"/api/v1/classes GET listCoreV1Class [core_v1] list 200:ClassList\n  list objects of kind Class\n",
		"/api/v1/classes POST createCoreV1Class [core_v1] post 200:Class,201:Class,202:Class\n  create a Class\n",
		"/api/v1/classes/{name} DELETE deleteCoreV1Class [core_v1] delete 200:Class,202:Class\n  delete a Class\n",
	} {
		if got := describe(t, s); !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if got := describe(t, s); strings.Contains(got, "watch/") {
		t.Errorf("what cannot be watched has a path for it:\n%s", got)
	}
}

func TestOtherServices(t *testing.T) {
	for _, test := range []struct {
		service *Service
		want    string
		gv      schema.GroupVersion
	}{
		{CoreVersions(), "/api/ GET getCoreAPIVersions [core] <nil> 200:APIVersions", schema.GroupVersion{}},
		{Groups(), "/apis/ GET getAPIVersions [apis] <nil> 200:APIGroupList", schema.GroupVersion{}},
		{Group("example.k8s.io"), "/apis/example.k8s.io/ GET getExampleAPIGroup [example] <nil> 200:APIGroup", schema.GroupVersion{}},
		{Version(), "/version/ GET getCodeVersion [version] <nil> 200:Info", schema.GroupVersion{}},
		{OpenIDConfiguration(), "/.well-known/openid-configuration/ GET getServiceAccountIssuerOpenIDConfiguration [WellKnown] <nil> 200:string", schema.GroupVersion{}},
		{OpenIDKeys(), "/openid/v1/jwks/ GET getServiceAccountIssuerOpenIDKeyset [openid] <nil> 200:string", schema.GroupVersion{}},
		{GroupVersion(v1, nil), "/api/v1/ GET getCoreV1APIResources", v1},
		{GroupVersion(things, nil), "/apis/example.k8s.io/v1beta1/ GET", things},
	} {
		if got := describe(t, test.service); !strings.HasPrefix(got, test.want) {
			t.Errorf("got  %s\nwant %s", got, test.want)
		}
		if gv, ok := test.service.GroupVersion(); gv != test.gv || ok != (test.gv != schema.GroupVersion{}) {
			t.Errorf("%s is of %v, %v", test.service.RootPath(), gv, ok)
		}
	}
}

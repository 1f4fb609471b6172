package aggregation_test

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"

	"skiff/internal/cluster/pki"
)

// The condition Available says what is missing in upstream's words, from the Service to the server's answer. Requests are refused until nothing is.
func TestAvailable(t *testing.T) {
	c := newCluster(t)
	const name = "v1." + group
	s := c.apiService(group, "v1", "wardle")
	s.Spec.Service.Port = ptr.To[int32](8443)
	c.create(services, s)
	c.awaitCondition(name, `False ServiceNotFound: service/wardle in "default" is not present`)
	for _, path := range []string{flunders, "/apis/" + group + "/v1"} {
		if got := c.get(path); got.code != http.StatusServiceUnavailable || got.body != "service unavailable\n" || got.header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("GET %s: %d %q %v", path, got.code, got.body, got.header)
		}
	}
	c.create("/api/v1/namespaces/default/services", map[string]any{"kind": "Service", "apiVersion": "v1", "metadata": map[string]any{"name": "wardle"},
		"spec": map[string]any{"ports": []any{map[string]any{"name": "https", "port": 443}}}})
	c.awaitCondition(name, `False ServicePortError: service/wardle in "default" is not listening on port 8443`)
	c.patch(services+"/"+name, `{"spec":{"service":{"port":null}}}`) // 443 is the default
	c.awaitCondition(name, `False EndpointsNotFound: cannot find endpointslices for service/wardle in "default"`)
	c.endpoints("wardle")
	c.awaitCondition(name, `False MissingEndpoints: endpointslices for service/wardle in "default" have no addresses with port name "https"`)
	const slice = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/wardle"
	c.patch(slice, `{"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":false}}]}`)
	c.patch(services+"/"+name+"/status", `{"status":{"conditions":[{"type":"Foreign","status":"True","reason":"Mine","message":"stays"},
		{"type":"Available","status":"False","reason":"MissingEndpoints","message":"endpointslices for service/wardle in \"default\" have no addresses with port name \"https\""}]}}`)
	c.patch(slice, `{"endpoints":[{"addresses":["192.0.2.1"],"conditions":{"ready":true}}]}`)
	c.awaitCondition(name, `False FailedDiscoveryCheck: failing or missing response from https://192.0.2.1:8443/apis/wardle.example.com/v1: Get "https://192.0.2.1:8443/apis/wardle.example.com/v1": dial tcp: connection refused`)
	if got := c.metric(`aggregator_unavailable_apiservice{name="v1.wardle.example.com"}`); got != "1" {
		t.Errorf("the gauge of what is unavailable is %q", got)
	}
	b := c.newBackend("192.0.2.1")
	c.awaitCondition(name, passed)
	if got := c.metric(`aggregator_unavailable_apiservice{name="v1.wardle.example.com"}`); got != "0" {
		t.Errorf("the gauge of what is available is %q", got)
	}
	c.eventually(func() string {
		if got := c.get("/apis/" + group + "/v1"); got.code != http.StatusOK {
			return "the group version to be served: " + got.body
		}
		return ""
	})

	b.handle("/apis/"+group+"/v1", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) })
	c.patch(slice, `{"metadata":{"labels":{"again":"1"}}}`) // has it checked
	c.awaitCondition(name, `False FailedDiscoveryCheck: failing or missing response from https://192.0.2.1:8443/apis/wardle.example.com/v1: bad status from https://192.0.2.1:8443/apis/wardle.example.com/v1: 302`)
	if got := c.metric(`aggregator_unavailable_apiservice_total{name="v1.wardle.example.com",reason="FailedDiscoveryCheck"}`); got != "1" {
		t.Errorf("it was lost once, and is counted as %q", got)
	}

	var after apiregistrationv1.APIService
	c.decode(services+"/"+name, &after)
	if len(after.Status.Conditions) != 2 || after.Status.Conditions[0].Message != "stays" {
		t.Errorf("the conditions of others do not stay: %+v", after.Status.Conditions)
	}
	c.delete(services + "/" + name)
	c.eventually(func() string {
		if got := c.metric(`aggregator_unavailable_apiservice{name="v1.wardle.example.com"}`); got != "" {
			return "the gauge to vanish: " + got
		}
		return ""
	})
}

// metric returns the value of a metric; empty if there is none.
func (c *cluster) metric(series string) string {
	c.t.Helper()
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(c.get("/metrics").body)
	if found == nil {
		return ""
	}
	return found[1]
}

// What this server serves itself has an APIService without a Service, which is always available. It comes back when it is deleted or changed, unless somebody has taken it over.
func TestLocal(t *testing.T) {
	c := newCluster(t)
	const local = "True Local: Local APIServices are always available"
	c.awaitCondition("v1.apps", local)
	c.awaitCondition("v1.", local)
	c.define("breweries", "v1")
	const name = "v1." + group
	c.awaitCondition(name, local)
	var s, again apiregistrationv1.APIService
	c.decode(services+"/"+name, &s)
	if s.Spec.GroupPriorityMinimum != 1000 || s.Spec.VersionPriority != 100 || s.Labels["kube-aggregator.kubernetes.io/automanaged"] != "true" {
		t.Errorf("the APIService of a definition is %+v", s)
	}
	c.delete(services + "/" + name)
	c.eventually(func() string {
		if a := c.get(services + "/" + name); a.code != http.StatusOK || strings.Contains(a.body, string(s.UID)) {
			return "the APIService of a definition to be made again: " + a.body
		}
		return ""
	})
	c.patch(services+"/"+name, `{"spec":{"versionPriority":7}}`)
	c.eventually(func() string {
		if c.decode(services+"/"+name, &again); again.Spec.VersionPriority != 100 {
			return "the change to be taken back"
		}
		return ""
	})
	c.patch(services+"/"+name, `{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"versionPriority":8}}`)
	c.undefine("breweries")
	c.awaitCondition(name, local)
	if c.decode(services+"/"+name, &again); again.Spec.VersionPriority != 8 {
		t.Errorf("what somebody has taken over is %+v", again.Spec)
	}
	c.define("pubs", "v2")
	c.awaitCondition("v2."+group, local)
	c.undefine("pubs")
	c.eventually(func() string {
		if a := c.get(services + "/v2." + group); a.code != http.StatusNotFound {
			return "the APIService of a definition that is deleted to be deleted"
		}
		return ""
	})
}

// The certificate of a server must be one for the name of its Service, of the authority in caBundle, unless the APIService says otherwise.
func TestCertificate(t *testing.T) {
	other := authority(t, pki.CA)
	for name, one := range map[string]struct {
		hosts  []string
		change func(*apiregistrationv1.APIServiceSpec)
		want   string
	}{
		"its own":                 {nil, func(*apiregistrationv1.APIServiceSpec) {}, passed},
		"of another authority":    {nil, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = other.PEM() }, "certificate signed by unknown authority"},
		"without an authority":    {nil, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = nil }, "certificate signed by unknown authority"},
		"of two authorities":      {nil, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = append(other.PEM(), s.CABundle...) }, passed},
		"for another Service":     {[]string{"other.default.svc", "192.0.2.1"}, func(*apiregistrationv1.APIServiceSpec) {}, "certificate is valid for other.default.svc, not wardle.default.svc"},
		"for anybody":             {[]string{"other.default.svc"}, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle, s.InsecureSkipTLSVerify = nil, true }, passed},
		"by an unusable caBundle": {nil, func(s *apiregistrationv1.APIServiceSpec) { s.CABundle = []byte("nonsense") }, "unable to load root certificates: unable to parse bytes as PEM block"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.newBackend("192.0.2.1", one.hosts...)
			c.service("wardle", "192.0.2.1")
			s := c.apiService(group, "v1", "wardle")
			one.change(&s.Spec)
			c.create(services, s)
			c.eventually(func() string {
				if got := c.condition("v1." + group); !strings.Contains(got, one.want) {
					return one.want + ": " + got
				}
				return ""
			})
		})
	}
}

// Servers that hang delay neither each other nor what this server does about its own group versions.
func TestServersThatHang(t *testing.T) {
	c := newCluster(t)
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	c.must(err)
	defer hung.Close() // its backlog takes connections, and nobody answers
	for i := range 12 {
		version := "v" + string(rune('a'+i)) + "1"
		c.lead("192.0.2.99:8443", hung)
		c.service("hung-"+version, "192.0.2.99")
		c.create(services, c.apiService("hung.example.com", version, "hung-"+version))
	}
	c.define("breweries", "v2")
	c.awaitCondition("v2."+group, "True Local")
	c.newBackend("192.0.2.1")
	c.service("wardle", "192.0.2.1")
	c.create(services, c.apiService(group, "v1", "wardle"))
	c.awaitServed("v1." + group)
	c.awaitCondition("va1.hung.example.com", "False FailedDiscoveryCheck: failing or missing response from https://192.0.2.99:8443/apis/hung.example.com/va1: Get ")
	if _, err := c.api.Discovery().ServerGroups(); err != nil {
		t.Errorf("discovery: %v", err)
	}
}

// A restart of this server does not make a server unavailable, and its certificate is renewed without one.
func TestAfterRestart(t *testing.T) {
	c, b := newWardle(t)
	b.handle(flunders, echo)
	c.Restart()
	c.http.CloseIdleConnections() // to the server that was killed: a request on one could fail
	c.eventually(func() string {
		if got := c.get(flunders); got.code != http.StatusTeapot {
			return "the server to be reached: " + got.body
		}
		return ""
	})
	if got := c.condition("v1." + group); got != passed {
		t.Errorf("the condition is %q", got)
	}
}

// define creates a definition of group wardle.example.com, undefine deletes it.
func (c *cluster) define(plural, version string) {
	c.t.Helper()
	kind := strings.ToUpper(plural[:1]) + plural[1:len(plural)-1]
	c.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", map[string]any{"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1",
		"metadata": map[string]any{"name": plural + "." + group}, "spec": map[string]any{"group": group, "scope": "Namespaced",
			"names":    map[string]any{"plural": plural, "kind": kind, "singular": strings.ToLower(kind), "listKind": kind + "List"},
			"versions": []any{map[string]any{"name": version, "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object"}}}}}})
}

func (c *cluster) undefine(plural string) {
	c.t.Helper()
	c.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + "." + group)
	c.eventually(func() string {
		if a := c.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + plural + "." + group); a.code != http.StatusNotFound {
			return "the definition to be deleted"
		}
		return ""
	})
}

//go:build linux

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	guardLabel    = "guard.chaos.skiff"
	admissionPath = "/apis/admissionregistration.k8s.io/v1/"
	configMaps    = "/api/v1/namespaces/default/configmaps"
	settingsGroup = "guard.chaos.example.com"
	settings      = "/apis/" + settingsGroup + "/v1/namespaces/default/settings"
)

// guard is a policy or webhook that must be enforced whenever it exists. Nothing else selects the objects that have its label.
type guard struct {
	name string
	// objects and data are where and with what an object is created that the guard acts on.
	objects, data string
	// refusal is a part of the message with which it refuses; empty for one that adds the label "mutated".
	refusal string
}

// policyGuard returns a validating policy that refuses the objects with its label of which an expression is true, with its binding.
func policyGuard(name, resources, expression, spec, binding string) (policy, bound string) {
	group, resource, _ := strings.Cut(resources, "/")
	policy = fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":%q},"spec":{%s"matchConstraints":{
		"objectSelector":{"matchLabels":{%q:%q}},"resourceRules":[{"apiGroups":[%q],"apiVersions":["*"],"operations":["CREATE"],"resources":[%q]}]},
		"validations":[{"expression":%q,"message":%q}]}}`, name, spec, guardLabel, name, group, resource, "!("+expression+")", "refused by "+name)
	bound = fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":%q},"spec":{"policyName":%q,%s"validationActions":["Deny"]}}`,
		name, name, binding)
	return policy, bound
}

// settingsDefinition is the definition of the objects that are parameters of a policy.
const settingsDefinition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"settings.guard.chaos.example.com"},"spec":{
	"group":"guard.chaos.example.com","scope":"Namespaced","names":{"plural":"settings","singular":"setting","kind":"Setting"},
	"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`

// makeGuards creates a guard of each kind, and what they need.
func makeGuards(t *testing.T, api *rawAPI, hooks *hookServer) []guard {
	t.Helper()
	api.must(t, "POST", configMaps, `{"metadata":{"name":"limits"},"data":{"banned":"bad"}}`)
	api.must(t, "POST", definitionsPath, settingsDefinition)
	until(t, "settings are served", func() string {
		if made := api.call("POST", settings, `{"apiVersion":"guard.chaos.example.com/v1","kind":"Setting","metadata":{"name":"limits"},"spec":{"banned":"bad"}}`); !made.ok() {
			return made.String()
		}
		return ""
	})
	const (
		byMap     = `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},`
		bySetting = `"paramKind":{"apiVersion":"guard.chaos.example.com/v1","kind":"Setting"},`
		byName    = `"paramRef":{"name":"limits","namespace":"default","parameterNotFoundAction":"Allow"},` // so that a parameter that is not found lets the object pass
		bySelect  = `"paramRef":{"selector":{},"namespace":"default","parameterNotFoundAction":"Allow"},`
	)
	guards := []guard{
		{"plain", configMaps, `"v":"bad"`, "refused by plain"},
		{"by-map", configMaps, `"v":"bad"`, "refused by by-map"},
		{"by-setting", configMaps, `"v":"bad"`, "refused by by-setting"},
		{"by-selected", configMaps, `"v":"bad"`, "refused by by-selected"},
		{"custom", settings, `"v":"bad"`, "refused by custom"},
		{"webhook", configMaps, `"v":"bad"`, "refused by webhook"},
		{"custom-webhook", settings, `"v":"bad"`, "refused by custom-webhook"},
		{"mutating-webhook", configMaps, `"v":"good"`, ""},
		{"mutating-policy", configMaps, `"v":"good"`, ""},
	}
	for _, one := range []struct{ name, resources, expression, spec, binding string }{
		{"plain", "/configmaps", "object.data.v == 'bad'", "", ""},
		{"by-map", "/configmaps", "object.data.v == params.data.banned", byMap, byName},
		{"by-setting", "/configmaps", "object.data.v == params.spec.banned", bySetting, byName},
		{"by-selected", "/configmaps", "object.data.v == params.spec.banned", bySetting, bySelect},
		{"custom", settingsGroup + "/settings", "object.data.v == 'bad'", "", ""},
	} {
		policy, binding := policyGuard(one.name, one.resources, one.expression, one.spec, one.binding)
		api.must(t, "POST", admissionPath+"validatingadmissionpolicies", policy)
		api.must(t, "POST", admissionPath+"validatingadmissionpolicybindings", binding)
	}
	api.must(t, "POST", validatingPath, hookGuard(hooks, "webhook", "", "v1", "configmaps"))
	api.must(t, "POST", validatingPath, hookGuard(hooks, "custom-webhook", settingsGroup, "*", "*"))
	mutating := hooks.mutating("mutating-webhook", "/mutate", "", "v1", "configmaps")
	mutating.Webhooks[0].ObjectSelector = selecting("mutating-webhook")
	api.must(t, "POST", mutatingPath, mutating)
	api.must(t, "POST", admissionPath+"mutatingadmissionpolicies", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"mutating-policy"},
		"spec":{"reinvocationPolicy":"Never","matchConstraints":{"objectSelector":{"matchLabels":{%q:"mutating-policy"}},"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'mutated': 'yes'}}}"}}]}}`, guardLabel))
	api.must(t, "POST", admissionPath+"mutatingadmissionpolicybindings",
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"mutating-policy"},"spec":{"policyName":"mutating-policy"}}`)
	for _, g := range guards {
		until(t, g.name+" is enforced", func() string { return g.missing(api.call("POST", g.objects, g.object())) })
	}
	return guards
}

var objectSerial struct {
	sync.Mutex
	last int
}

// object returns an object that the guard acts on.
func (g guard) object() string {
	objectSerial.Lock()
	defer objectSerial.Unlock()
	objectSerial.last++
	kind, version := "ConfigMap", "v1"
	if g.objects == settings {
		kind, version = "Setting", settingsGroup+"/v1"
	}
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":"probe-%d","labels":{%q:%q}},"data":{%s}}`, version, kind, objectSerial.last, guardLabel, g.name, g.data)
}

// missing returns what is wrong with the answer to the creation of such an object; empty if the guard was enforced.
func (g guard) missing(got answer) string {
	switch {
	case got.err != nil:
		return got.err.Error()
	case g.refusal != "" && !got.ok() && got.code < 500 && strings.Contains(got.status().Message, g.refusal):
		return ""
	case g.refusal == "" && got.ok():
		var made struct {
			Metadata struct{ Labels map[string]string }
		}
		if json.Unmarshal(got.body, &made) == nil && made.Metadata.Labels["mutated"] == "yes" {
			return ""
		}
	}
	return got.String()
}

// probers send what guards act on from before the program is started, so that they have its first answers.
type probers struct {
	t       *testing.T
	stop    context.CancelFunc
	running sync.WaitGroup
	mu      sync.Mutex
	checked int
}

const (
	probersAtOnce = 6
	probesEach    = 12 // after the first answer
)

// probe starts them. guards must exist already, and until they have ended.
func probe(t *testing.T, apis []*rawAPI, guards []guard, random *rand.Rand) *probers {
	ctx, stop := context.WithCancel(context.Background())
	p := &probers{t: t, stop: stop}
	for i := range probersAtOnce {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		p.running.Go(func() { p.run(ctx, apis[i%len(apis)], guards, own) })
	}
	return p
}

func (p *probers) run(ctx context.Context, api *rawAPI, guards []guard, random *rand.Rand) {
	for answers := 0; answers < probesEach && ctx.Err() == nil; {
		g := guards[random.IntN(len(guards))]
		got := api.send(ctx, "POST", g.objects, g.object())
		if got.err != nil || got.code == http.StatusServiceUnavailable || got.code == http.StatusTooManyRequests {
			time.Sleep(200 * time.Microsecond) // it is not ready yet, or was killed
			continue
		}
		if wrong := g.missing(got); wrong != "" && !cutShort(got) {
			p.t.Errorf("%s was not enforced, %d answers after the start: %s", g.name, answers, wrong)
			return
		}
		answers++
		p.mu.Lock()
		p.checked++
		p.mu.Unlock()
	}
}

// cutShort reports whether a request failed because the server was not ready to carry it out: nothing was stored.
func cutShort(got answer) bool {
	return got.code == http.StatusForbidden && strings.Contains(got.status().Message, "not yet ready to handle request")
}

// wait waits until each has had its answers; end does not, as the program is being killed.
func (p *probers) wait() int { p.running.Wait(); return p.checked }

func (p *probers) end() int {
	p.stop()
	return p.wait()
}

// hookGuard returns a configuration whose webhook refuses the objects with its label.
func hookGuard(hooks *hookServer, name, group, version, resource string) *admissionregistrationv1.ValidatingWebhookConfiguration {
	c := hooks.validating(name, "/deny", group, version, resource)
	c.Webhooks[0].ObjectSelector = selecting(name)
	return c
}

func selecting(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{guardLabel: name}}
}

// withMetadata returns the text of an object with a place for other metadata: see kept.text.
func withMetadata(t *testing.T, text string) string {
	t.Helper()
	var object map[string]any
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	object["metadata"] = "METADATA"
	made, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Replace(strings.ReplaceAll(string(made), "%", "%%"), `"METADATA"`, "%s", 1)
}

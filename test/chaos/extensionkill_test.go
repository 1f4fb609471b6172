//go:build linux

package chaos

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const killGroup = "kill.chaos.example.com"

// TestKillExtensions kills the program while definitions, their objects, some of which a webhook converts, webhook configurations and policies are written.
// What was acknowledged is there afterwards; what definitions say is served; deletions that were begun end; and whatever policy or webhook exists is enforced from the very first answer.
func TestKillExtensions(t *testing.T) {
	random := pickSeed(t)
	hooks := newHookServer(t, map[string]http.HandlerFunc{
		"/deny": reviewed(func(r *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
			var object struct{ Metadata metav1.ObjectMeta }
			_ = json.Unmarshal(r.Object.Raw, &object)
			deny(response, "refused by "+object.Metadata.Labels[guardLabel])
		}),
		"/mutate": reviewed(func(_ *admissionv1.AdmissionRequest, response *admissionv1.AdmissionResponse) {
			jsonPatch(response, `[{"op":"add","path":"/metadata/labels/mutated","value":"yes"}]`)
		}),
		"/convert": convertObjects,
	})
	s := newServer(t, filepath.Join(t.TempDir(), "data"))
	s.start()
	s.ready()
	k := &extensionKill{t: t, server: s, hooks: hooks, random: random}
	for range 3 {
		k.apis = append(k.apis, s.raw())
	}
	k.guards = makeGuards(t, k.apis[0], hooks)
	k.begin()
	for range *rounds {
		k.round()
		if t.Failed() {
			t.Fatal(s.tail())
		}
	}
	k.end()
	t.Logf("%d kills, %d writes acknowledged, %d answers lost, %d definitions deleted, %d probes of guards", *rounds, k.done.Load(), k.unsure.Load(), k.ended.Load(), k.probed)
}

type extensionKill struct {
	t      *testing.T
	server *server
	hooks  *hookServer
	random *rand.Rand
	apis   []*rawAPI
	guards []guard // that always exist

	mu      sync.Mutex
	dynamic []guard // those of a round that were acknowledged and are not deleted before the next one

	stopped             atomic.Bool
	running             sync.WaitGroup
	keeping             sync.RWMutex // held for reading while guards are changed, and for writing while they must not change
	done, unsure, ended atomic.Int64
	probed              int
}

func (k *extensionKill) keeper(api *rawAPI) *keeper {
	return &keeper{t: k.t, api: api, done: &k.done, unsure: &k.unsure}
}

func (k *extensionKill) begin() {
	for i := range 3 {
		own := rand.New(rand.NewPCG(k.random.Uint64(), uint64(i)))
		k.running.Go(func() { k.keepDefinitions(i, own) })
	}
	for i := range 2 {
		own := rand.New(rand.NewPCG(k.random.Uint64(), uint64(i)))
		k.running.Go(func() { k.keepGuards(i, own) })
	}
	own := rand.New(rand.NewPCG(k.random.Uint64(), 0))
	k.running.Go(func() { k.keepConverted(own) })
	k.t.Cleanup(func() {
		k.stopped.Store(true)
		k.running.Wait()
	})
}

// round lets the writers work for a while, kills the program, and has the first answers after its start looked at.
func (k *extensionKill) round() {
	k.t.Helper()
	k.awaitWrites(1 + k.random.Int64N(60))
	time.Sleep(time.Duration(k.random.IntN(20000)) * time.Microsecond) // anywhere in the middle of writes
	k.keeping.Lock()                                                   // after this, what guards there are is known, and does not change until the probes have ended
	guards := slices.Concat(k.guards, k.dynamic)
	k.server.kill()
	if k.random.IntN(4) == 0 { // again before it is ready
		p := probe(k.t, k.apis, guards, k.random)
		k.server.start()
		time.Sleep(time.Duration(k.random.IntN(400)) * time.Millisecond)
		k.server.kill()
		k.probed += p.end()
	}
	p := probe(k.t, k.apis, guards, k.random)
	k.server.start()
	k.server.ready()
	k.probed += p.wait()
	k.keeping.Unlock()
}

func (k *extensionKill) awaitWrites(n int64) {
	k.t.Helper()
	want := k.done.Load() + n
	until(k.t, "writes are acknowledged", func() string {
		if k.done.Load() < want && !k.t.Failed() {
			return fmt.Sprintf("%d of %d", k.done.Load(), want)
		}
		return ""
	})
}

// keepGuards creates, changes and deletes policies with their bindings, and webhook configurations.
func (k *extensionKill) keepGuards(number int, random *rand.Rand) {
	w := k.keeper(k.apis[number%len(k.apis)])
	objects := map[string][]*kept{}
	var names []string
	for i := range 4 {
		name := fmt.Sprintf("policy-%d-%d", number, i)
		policy, binding := policyGuard(name, "/configmaps", "object.data.v == 'bad'", "", "")
		objects[name] = []*kept{{path: admissionPath + "validatingadmissionpolicies", name: name, text: withMetadata(k.t, policy)},
			{path: admissionPath + "validatingadmissionpolicybindings", name: name, text: withMetadata(k.t, binding)}}
		hook := fmt.Sprintf("hook-%d-%d", number, i)
		text, err := json.Marshal(hookGuard(k.hooks, hook, "", "v1", "configmaps"))
		if err != nil {
			k.t.Error(err)
		}
		objects[hook] = []*kept{{path: validatingPath, name: hook, text: withMetadata(k.t, string(text))}}
		names = append(names, name, hook)
	}
	for !k.stopped.Load() && !k.t.Failed() {
		k.keepGuard(w, names[random.IntN(len(names))], objects, random)
		time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	}
	for _, of := range objects {
		for _, o := range of {
			w.check(o)
		}
	}
}

func (k *extensionKill) keepGuard(w *keeper, name string, objects map[string][]*kept, random *rand.Rand) {
	if exists := objects[name][0].value != ""; exists && random.IntN(3) > 0 {
		for _, o := range objects[name] { // it goes on being enforced
			w.check(o)
			w.update(o, nil)
		}
		return
	}
	// While the program is killed and started a guard must not change from existing to not existing, or back: a write that is not answered waits with its lock.
	for _, o := range objects[name] {
		k.keeping.RLock()
		if o.value == "" {
			w.tryOnce(o, w.create)
		} else {
			k.forget(name)
			w.tryOnce(o, w.remove)
		}
		k.keeping.RUnlock()
	}
	for _, o := range objects[name] {
		if o.value == "" {
			return
		}
	}
	k.remember(guard{name, configMaps, `"v":"bad"`, "refused by " + name})
}

// tryOnce writes. The server is up while nobody kills it, which waits for the lock that the caller has.
func (w *keeper) tryOnce(o *kept, write func(*kept) bool) { write(o) }

func (k *extensionKill) remember(g guard) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !slices.Contains(k.dynamic, g) {
		k.dynamic = append(k.dynamic, g)
	}
}

func (k *extensionKill) forget(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dynamic = slices.DeleteFunc(k.dynamic, func(g guard) bool { return g.name == name })
}

// keepDefinitions takes definitions through their lives: they are created, have objects, some with finalizers, change, and are deleted.
func (k *extensionKill) keepDefinitions(number int, random *rand.Rand) {
	w := k.keeper(k.apis[number%len(k.apis)])
	plural, kind := fmt.Sprint("kinds", number), fmt.Sprint("Kind", number)
	definition := &kept{path: definitionsPath, name: plural + "." + killGroup, text: fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":%%s,"spec":{
		"group":%q,"scope":"Namespaced","names":{"plural":%q,"singular":"kind%d","kind":%q},"versions":[{"name":"v1","served":true,"storage":true,
		"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, killGroup, plural, number, kind)}
	resource := "/apis/" + killGroup + "/v1/namespaces/default/" + plural
	for !k.stopped.Load() && !k.t.Failed() {
		for definition.value == "" && !k.t.Failed() {
			w.create(definition)
		}
		k.awaitServed(w, definition, plural)
		var objects []*kept
		for i := range 1 + random.IntN(5) {
			o := &kept{path: resource, name: fmt.Sprint("o", i), text: fmt.Sprintf(`{"apiVersion":"%s/v1","kind":%q,"metadata":%%s}`, killGroup, kind)}
			if random.IntN(2) == 0 {
				o.finalizers = []string{finalizer}
			}
			objects = append(objects, o)
		}
		for range 4 + random.IntN(20) {
			switch o := objects[random.IntN(len(objects))]; {
			case random.IntN(6) == 0:
				w.update(definition, map[string]any{"spec": map[string]any{"names": map[string]any{"plural": plural, "singular": fmt.Sprint("kind", number), "kind": kind,
					"shortNames": []string{fmt.Sprintf("k%dx%d", number, random.IntN(100))}}}})
				k.awaitServed(w, definition, plural)
			case o.value == "":
				w.create(o)
			default:
				w.check(o)
				w.update(o, map[string]any{"spec": map[string]any{"n": random.IntN(1000)}})
			}
		}
		for _, o := range objects {
			w.check(o)
		}
		for definition.value != "" && !k.t.Failed() { // until a deletion has happened: one whose answer was lost may not have
			w.remove(definition)
		}
		k.awaitEnd(w, definition, objects)
	}
}

// awaitServed waits until the definition is established, and then checks that it is served, and that discovery says so.
func (k *extensionKill) awaitServed(w *keeper, definition *kept, plural string) {
	k.awaitServedIn(w, definition, killGroup+"/v1", plural)
}

func (k *extensionKill) awaitServedIn(w *keeper, definition *kept, groupVersion, plural string) {
	for deadline := time.Now().Add(settleTimeout); !k.t.Failed(); time.Sleep(time.Millisecond) {
		var crd apiextensionsv1.CustomResourceDefinition
		if got := w.answered("GET", definition.path+"/"+definition.name); json.Unmarshal(got.body, &crd) != nil || !got.ok() {
			k.t.Errorf("%s, which was acknowledged: %v", definition.name, got)
			return
		}
		if apihelpers.IsCRDConditionTrue(&crd, apiextensionsv1.Established) {
			break
		}
		if time.Now().After(deadline) {
			k.t.Errorf("%s is not established within %v: %+v", definition.name, settleTimeout, crd.Status)
			return
		}
	}
	if got := w.answered("GET", "/apis/"+groupVersion+"/"+plural); !got.ok() {
		k.t.Errorf("%s is established and not served: %v", plural, got)
	}
	var list metav1.APIResourceList
	got := w.answered("GET", "/apis/"+groupVersion)
	if err := json.Unmarshal(got.body, &list); err != nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == plural }) {
		k.t.Errorf("%s is established and discovery does not have it: %v", plural, got)
	}
}

// awaitEnd removes finalizers until the definition, which was deleted, is gone with its objects.
func (k *extensionKill) awaitEnd(w *keeper, definition *kept, objects []*kept) {
	for deadline := time.Now().Add(settleTimeout); !k.t.Failed(); time.Sleep(5 * time.Millisecond) {
		got := w.answered("GET", definition.path+"/"+definition.name)
		if got.code == http.StatusNotFound {
			k.ended.Add(1)
			return
		}
		if time.Now().After(deadline) {
			var crd apiextensionsv1.CustomResourceDefinition
			_ = json.Unmarshal(got.body, &crd) // what is no definition is in the answer
			k.t.Errorf("%s does not end within %v: %v\nfinalizers %v, status %+v\nits objects: %s", definition.name, settleTimeout, got, crd.Finalizers, crd.Status,
				w.answered("GET", objects[0].path).body)
			return
		}
		for _, o := range objects {
			if len(o.finalizers) > 0 {
				_ = w.api.call(http.MethodPatch, o.path+"/"+o.name, `{"metadata":{"finalizers":null}}`) // in the next round again, if the program was killed
			}
		}
	}
}

// end lets the writers finish, and checks that nothing is left of what was deleted.
func (k *extensionKill) end() {
	k.t.Helper()
	k.awaitWrites(20)
	k.stopped.Store(true)
	k.running.Wait()
	if k.t.Failed() {
		k.t.Fatal(k.server.tail())
	}
	k.server.stop()
	nothingStored(k.t, k.server.data, "/registry/"+killGroup+"/")
}

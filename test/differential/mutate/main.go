package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/catalog/catalogtest"
)

func main() {
	upstream := flag.String("upstream", "", "kubeconfig of the upstream server")
	skiff := flag.String("skiff", "", "kubeconfig of skiff")
	pairs := flag.Int("pairs", 0, "how many times to make two changes at once, at random, for each object and mode")
	seed := flag.Uint64("seed", 1, "of what is random")
	modes := flag.String("modes", "create,update,status,merge,strategic,apply", "what to do with mutated objects: any of these, or the name of a subresource to update")
	flag.Parse()
	c := comparison{tried: map[string]bool{}, found: map[string][]string{}, pairs: *pairs, random: rand.New(rand.NewPCG(*seed, 0))}
	if err := c.run(context.Background(), *upstream, *skiff, strings.Split(*modes, ","), flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func (c *comparison) run(ctx context.Context, upstream, skiff string, modes, stories []string) error {
	var err error
	if c.upstream, err = newPeer(upstream); err != nil {
		return err
	}
	if c.skiff, err = newPeer(skiff); err != nil {
		return err
	}
	for _, story := range stories {
		steps, err := catalogtest.Load(story)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if step.Verb != "create" {
				continue
			}
			for _, mode := range modes {
				if err := c.compare(ctx, step, mode); err != nil {
					return fmt.Errorf("%s: %s: %w", story, step.Title(), err)
				}
			}
		}
		c.report(story)
	}
	fmt.Printf("%d mutations, %d answers differ\n", c.count, c.differ)
	return nil
}

// types returns the Go types of everything that upstream serves.
var types = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(errors.Join(scheme.AddToScheme(s), apiextensionsv1.AddToScheme(s), apiregistrationv1.AddToScheme(s)))
	return s
})

type comparison struct {
	upstream, skiff *peer
	pairs           int
	random          *rand.Rand
	tried           map[string]bool
	count, differ   int
	mu              sync.Mutex
	found           map[string][]string // mutations by the difference of the answers
}

// report prints the differences found in a story, once for mutations with the same answers.
func (c *comparison) report(story string) {
	for _, diff := range slices.Sorted(maps.Keys(c.found)) {
		where := c.found[diff]
		fmt.Printf("=== %s: %d times, as with %s\n%s\n\n", story, len(where), strings.Join(where[:min(3, len(where))], "; "), diff)
	}
	clear(c.found)
}

// compare tries every mutation of a step's object that was not tried before.
func (c *comparison) compare(ctx context.Context, step catalogtest.Step, mode string) error {
	gvk := step.Object().GroupVersionKind()
	typed, err := types().New(gvk)
	if err != nil {
		return nil // not a type of Kubernetes
	}
	collection, err := catalogtest.Collection(c.upstream.mapper, gvk)
	if err != nil {
		return nil // upstream does not serve it
	}
	t := target{method: http.MethodPost, path: collection, theirs: step.Body, ours: step.Body}
	if mode == "create" {
		if code, _ := c.upstream.send(ctx, t.method, t.path+dryRun, t.theirs); code != http.StatusCreated {
			return nil
		}
	} else {
		defer func() {
			c.upstream.remove(ctx, collection, step.Object().GetName())
			c.skiff.remove(ctx, collection, step.Object().GetName())
		}()
		if !c.prepare(ctx, step, mode, &t) {
			return nil
		}
	}
	var work []change
	all := mutationsOf(t.theirs, reflect.TypeOf(typed).Elem())
	for _, m := range all {
		key := gvk.String() + mode + m.key()
		if !c.tried[key] {
			c.tried[key] = true
			work = append(work, change{m})
		}
	}
	for range c.pairs {
		work = append(work, change{all[c.random.IntN(len(all))], all[c.random.IntN(len(all))]})
	}
	c.count += len(work)
	todo := make(chan change)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			for m := range todo {
				c.try(ctx, m, t, gvk.Kind+" "+mode)
			}
		})
	}
	for _, m := range work {
		todo <- m
	}
	close(todo)
	wg.Wait()
	fmt.Fprintf(os.Stderr, "%s %s: %d mutations\n", mode, step.Title(), len(work))
	return nil
}

const (
	strict = "?fieldValidation=Strict"
	dryRun = strict + "&dryRun=All"

	modified = "the object has been modified"

	settle = 200 * time.Millisecond // the time for a server to write defaults and status of an object
)

// A target is the request that mutated objects are sent with, and the objects to mutate: upstream's and skiff's.
type target struct {
	method, path, patch string // patch is the patch type, if the request is a patch
	theirs, ours        map[string]any
}

// patches maps the modes that send patches to their patch types.
var patches = map[string]string{"merge": "application/merge-patch+json", "strategic": "application/strategic-merge-patch+json", "apply": "application/apply-patch+yaml"}

// prepare creates a step's object on both servers, to change it. It returns false if the mode does not apply to it.
func (c *comparison) prepare(ctx context.Context, step catalogtest.Step, mode string, t *target) bool {
	name := step.Object().GetName()
	if name == "" {
		return false
	}
	their, _ := c.upstream.send(ctx, t.method, t.path+strict, step.Body)
	our, _ := c.skiff.send(ctx, t.method, t.path+strict, step.Body)
	if their != http.StatusCreated || our != http.StatusCreated {
		return false
	}
	t.path += "/" + url.PathEscape(name)
	if t.patch = patches[mode]; t.patch != "" {
		t.method = http.MethodPatch
		return true
	}
	time.Sleep(settle)
	_, t.theirs = c.upstream.send(ctx, http.MethodGet, t.path, nil)
	_, t.ours = c.skiff.send(ctx, http.MethodGet, t.path, nil)
	t.method = http.MethodPut
	if mode == "update" {
		return true
	}
	t.path += "/" + mode
	code, _ := c.upstream.send(ctx, t.method, t.path+dryRun, t.theirs)
	return code != http.StatusNotFound && code != http.StatusMethodNotAllowed
}

func (c *comparison) try(ctx context.Context, m change, t target, what string) {
	their, ok1 := m.apply(t.theirs)
	our, ok2 := m.apply(t.ours)
	if !ok1 || !ok2 {
		return
	}
	want, got := c.upstream.answer(ctx, t, their), c.skiff.answer(ctx, t, our)
	if strings.Contains(want, modified) || strings.Contains(got, modified) { // the server's own controllers changed the object meanwhile
		return
	}
	if diff := catalogtest.Diff(want, got); diff != "" {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.differ++
		c.found[diff] = append(c.found[diff], what+" "+m.String())
	}
}

type peer struct {
	http   *http.Client
	host   string
	mapper meta.RESTMapper
}

func newPeer(kubeconfig string) (*peer, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(config))
	if err != nil {
		return nil, err
	}
	p := &peer{client, config.Host, restmapper.NewDiscoveryRESTMapper(groups)}
	p.send(context.Background(), http.MethodPost, "/api/v1/namespaces", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": catalogtest.Namespace}})
	return p, nil
}

func (p *peer) do(ctx context.Context, method, path, contentType string, body map[string]any) (int, http.Header, []byte) {
	data, err := json.Marshal(body)
	if err != nil {
		return 0, nil, []byte(err.Error())
	}
	req, err := http.NewRequestWithContext(ctx, method, p.host+path, bytes.NewReader(data))
	if err != nil {
		return 0, nil, []byte(err.Error())
	}
	req.Header.Set("Content-Type", contentType)
	res, err := p.http.Do(req)
	if err != nil {
		return 0, nil, []byte(err.Error())
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, []byte(err.Error())
	}
	return res.StatusCode, res.Header, answer
}

func (p *peer) send(ctx context.Context, method, path string, body map[string]any) (int, map[string]any) {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = patches["merge"]
	}
	code, _, answer := p.do(ctx, method, path, contentType, body)
	var obj map[string]any
	if json.Unmarshal(answer, &obj) != nil {
		return 0, nil
	}
	return code, obj
}

// masked matches values that differ from server to server.
var masked = regexp.MustCompile(`resourceVersion\\?":\\?"\d+|10\.43\.\d+\.\d+|\b3[0-2]\d{3}\b|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)

// answer returns a server's answer as text, without values that differ from server to server.
func (p *peer) answer(ctx context.Context, t target, body map[string]any) string {
	contentType, query := "application/json", dryRun+"&fieldManager=mutate"
	if t.patch != "" {
		contentType = t.patch
	}
	if t.patch == patches["apply"] {
		query += "&force=true"
	}
	code, header, data := p.do(ctx, t.method, t.path+query, contentType, body)
	warnings := slices.Sorted(slices.Values(header.Values("Warning")))
	warnings = slices.DeleteFunc(warnings, func(w string) bool { return strings.HasPrefix(w, "skiff does not ") })
	var obj map[string]any
	if err := json.Unmarshal(data, &obj); err != nil {
		return fmt.Sprintf("%d %s", code, data)
	}
	if obj["kind"] == "Status" {
		var status metav1.Status
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(obj, &status); err != nil {
			return err.Error()
		}
		text := catalogtest.Describe(status)
		if status.Details != nil {
			for _, c := range status.Details.Causes {
				text += fmt.Sprintf("\n%s | %s | %s", c.Type, c.Field, c.Message)
			}
		}
		return masked.ReplaceAllString(text, "<masked>") // upstream sends some warnings before it refuses, and omits others
	}
	managed := (&unstructured.Unstructured{Object: obj}).GetManagedFields()
	for i := range managed {
		managed[i].Time = nil
	}
	obj = catalogtest.Normalize(obj)
	(&unstructured.Unstructured{Object: obj}).SetManagedFields(managed)
	text, err := yaml.Marshal(obj)
	if err != nil {
		return err.Error()
	}
	return masked.ReplaceAllString(fmt.Sprintf("%d\n%s%s", code, text, strings.Join(warnings, "\n")), "<masked>")
}

// remove deletes an object at once, without its finalizers.
func (p *peer) remove(ctx context.Context, collection, name string) {
	if name == "" {
		return
	}
	path := collection + "/" + url.PathEscape(name)
	p.send(ctx, http.MethodPatch, path, map[string]any{"metadata": map[string]any{"finalizers": nil}})
	p.send(ctx, http.MethodDelete, path, map[string]any{"gracePeriodSeconds": 0, "propagationPolicy": "Background"})
	if collection == "/api/v1/namespaces" {
		p.send(ctx, http.MethodPut, path+"/finalize", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}})
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/catalog/catalogtest"
)

func main() {
	kubeconfig := flag.String("kubeconfig", os.Getenv("UPSTREAM_KUBECONFIG"), "kubeconfig of the upstream server")
	flag.Parse()
	if err := record(context.Background(), *kubeconfig, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(ctx context.Context, kubeconfig string, files []string) error {
	unlock, err := lock()
	if err != nil {
		return err
	}
	defer unlock()
	r, err := newRecorder(kubeconfig)
	if err != nil {
		return err
	}
	for _, file := range files {
		steps, err := catalogtest.Load(file)
		if err != nil {
			return err
		}
		answers, err := r.play(ctx, steps)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		golden, err := catalogtest.Render(answers)
		if err != nil {
			return err
		}
		if err := os.WriteFile(catalogtest.Golden(file), golden, 0o644); err != nil {
			return err
		}
		fmt.Println(catalogtest.Golden(file))
	}
	return nil
}

// lock keeps two recordings from using one server at the same time.
func lock() (func(), error) {
	f, err := os.OpenFile(os.TempDir()+"/skiff-record.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

type recorder struct {
	client   rest.Interface
	mapper   meta.RESTMapper
	warnings warnings
	created  []string // the paths of created objects, in order
}

type warnings struct{ seen []string }

func (w *warnings) HandleWarningHeader(_ int, _, text string) { w.seen = append(w.seen, text) }

func newRecorder(kubeconfig string) (*recorder, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	r := &recorder{}
	config.WarningHandler = &r.warnings
	dc, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	groups, err := restmapper.GetAPIGroupResources(dc)
	if err != nil {
		return nil, err
	}
	r.client, r.mapper = dc.RESTClient(), restmapper.NewDiscoveryRESTMapper(groups)
	return r, nil
}

func (r *recorder) play(ctx context.Context, steps []catalogtest.Step) ([]catalogtest.Answer, error) {
	ns := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + catalogtest.Namespace + `"}}`
	if err := r.client.Post().AbsPath("/api/v1/namespaces").Body([]byte(ns)).Do(ctx).Error(); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	defer r.cleanup(ctx)
	var answers []catalogtest.Answer
	for _, step := range steps {
		answer, err := r.step(ctx, step)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.Title(), err)
		}
		answers = append(answers, answer)
	}
	return answers, nil
}

func (r *recorder) step(ctx context.Context, step catalogtest.Step) (catalogtest.Answer, error) {
	answer := catalogtest.Answer{Step: step.Title()}
	path, err := catalogtest.Collection(r.mapper, step.Object().GroupVersionKind())
	if err != nil {
		return answer, err
	}
	r.warnings.seen = nil
	var got []byte
	if step.Verb == "create" {
		body, err := json.Marshal(step.Body)
		if err != nil {
			return answer, err
		}
		got, err = r.client.Post().AbsPath(path).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Raw()
		if failed := describe(&answer, got, err); failed != nil {
			return answer, failed
		}
	} else {
		got, err = r.update(ctx, path+"/"+step.Object().GetName(), step)
		if failed := describe(&answer, got, err); failed != nil {
			return answer, failed
		}
	}
	answer.Warnings = r.warnings.seen
	if answer.Error != "" {
		return answer, nil
	}
	var obj map[string]any
	if err := json.Unmarshal(got, &obj); err != nil {
		return answer, err
	}
	name := obj["metadata"].(map[string]any)["name"].(string)
	if step.Verb == "create" {
		r.created = append(r.created, path+"/"+name)
	}
	answer.Object = catalogtest.Normalize(obj)
	if err := r.table(ctx, path+"/"+name, step.Verb == "create", &answer); err != nil {
		return answer, err
	}
	return answer, r.settle(ctx, path+"/"+name, step)
}

// settle waits until the loops within upstream's server, which write the status of definitions and API services, leave an object alone, so that
// the next step meets it as it then is.
func (r *recorder) settle(ctx context.Context, path string, step catalogtest.Step) error {
	switch step.Object().GroupVersionKind().Group {
	case "apiextensions.k8s.io", "apiregistration.k8s.io":
	default:
		return nil
	}
	const quiet, most = 6, 100
	last := ""
	for same, polls := 0, 0; same < quiet && polls < most; polls++ {
		var partial metav1.PartialObjectMetadata
		raw, err := r.client.Get().AbsPath(path).Do(ctx).Raw()
		if err != nil {
			return err
		}
		if err := json.Unmarshal(raw, &partial); err != nil {
			return err
		}
		if same++; partial.ResourceVersion != last {
			last, same = partial.ResourceVersion, 0
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}

// update applies the step to the current object as a merge patch and sends the result as an update.
func (r *recorder) update(ctx context.Context, path string, step catalogtest.Step) ([]byte, error) {
	live, err := r.client.Get().AbsPath(path).Do(ctx).Raw()
	if err != nil {
		return live, err
	}
	patch, err := json.Marshal(step.Body)
	if err != nil {
		return nil, err
	}
	body, err := jsonpatch.MergePatch(live, patch)
	if err != nil {
		return nil, err
	}
	if step.Subresource != "" {
		path += "/" + step.Subresource
	}
	r.warnings.seen = nil
	return r.client.Put().AbsPath(path).Body(body).SetHeader("Content-Type", "application/json").Do(ctx).Raw()
}

// describe puts an API error into the answer, and returns any other error.
func describe(answer *catalogtest.Answer, raw []byte, err error) error {
	var status metav1.Status
	if err == nil || json.Unmarshal(raw, &status) != nil || status.Kind != "Status" {
		var api apierrors.APIStatus
		if errors.As(err, &api) {
			answer.Error = catalogtest.Describe(api.Status())
			return nil
		}
		return err
	}
	answer.Error = catalogtest.Describe(status)
	return nil
}

func (r *recorder) table(ctx context.Context, path string, columns bool, answer *catalogtest.Answer) error {
	raw, err := r.client.Get().AbsPath(path).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return err
	}
	for i, c := range table.ColumnDefinitions {
		if columns {
			answer.Columns = append(answer.Columns, catalogtest.Column(c))
		}
		answer.Cells = append(answer.Cells, catalogtest.Cell(c.Name, table.Rows[0].Cells[i]))
	}
	return nil
}

// cleanup deletes the objects of the story, after removing their finalizers.
func (r *recorder) cleanup(ctx context.Context) {
	for _, path := range r.created {
		none := []byte(`{"metadata":{"finalizers":null}}`)
		r.client.Patch("application/merge-patch+json").AbsPath(path).Body(none).Do(ctx)
		r.client.Delete().AbsPath(path).Body([]byte(`{"gracePeriodSeconds":0,"propagationPolicy":"Background"}`)).Do(ctx)
		if name, ok := strings.CutPrefix(path, "/api/v1/namespaces/"); ok && !strings.Contains(name, "/") {
			r.client.Put().AbsPath(path + "/finalize").Body([]byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `"}}`)).Do(ctx)
		}
	}
	r.created = nil
}

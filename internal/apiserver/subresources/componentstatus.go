package subresources

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
	"skiff/internal/cache"
)

// component is a part of the control plane whose health can be probed.
type component struct {
	name string
	ask  func(context.Context) corev1.ComponentCondition
}

// The URLs at which the components listen by default, as upstream. They are probed whether or not they run in this process.
const (
	schedulerHealth         = "https://127.0.0.1:10259/healthz"
	controllerManagerHealth = "https://127.0.0.1:10257/healthz"
)

// probeTimeout bounds how long a component may take to answer.
const probeTimeout = 2 * time.Second

func components(schedulerURL, controllerManagerURL string, storeHealthy func(context.Context) error) []component {
	return []component{
		{"scheduler", func(ctx context.Context) corev1.ComponentCondition { return probe(ctx, schedulerURL) }},
		{"controller-manager", func(ctx context.Context) corev1.ComponentCondition { return probe(ctx, controllerManagerURL) }},
		{"etcd-0", func(ctx context.Context) corev1.ComponentCondition {
			if err := storeHealthy(ctx); err != nil {
				return corev1.ComponentCondition{Status: corev1.ConditionFalse, Error: err.Error()}
			}
			return corev1.ComponentCondition{Status: corev1.ConditionTrue, Message: "ok"}
		}},
	}
}

// probe asks a component over HTTPS. Its certificate is not verified.
func probe(ctx context.Context, url string) corev1.ComponentCondition {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	fails := func(err error) corev1.ComponentCondition {
		return corev1.ComponentCondition{Status: corev1.ConditionFalse, Message: err.Error()}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return fails(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return fails(err)
	}
	defer answer.Body.Close()
	const longest = 10 << 10
	body, err := io.ReadAll(io.LimitReader(answer.Body, longest))
	if err != nil {
		return fails(err)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return fails(fmt.Errorf("HTTP probe failed with statuscode: %d", answer.StatusCode))
	}
	return corev1.ComponentCondition{Status: corev1.ConditionTrue, Message: string(body)}
}

// ComponentStatuses serves componentstatuses. It probes the scheduler and the controller manager at the URLs of their /healthz, and the store.
func ComponentStatuses(schedulerURL, controllerManagerURL string, storeHealthy func(context.Context) error) verbs.Handler {
	all := components(schedulerURL, controllerManagerURL, storeHealthy)
	return func(rq *verbs.Request) error {
		switch {
		case rq.Route.Rest != "" || rq.Route.Subresource != "":
			return response.ErrNotFound
		case rq.Route.Verb == "get":
			return getComponentStatus(rq, all)
		case rq.Route.Verb == "list":
			return listComponentStatuses(rq, all)
		case rq.Route.Verb == "watch":
			return apierrors.NewMethodNotSupported(rq.Endpoint.Info.GVR.GroupResource(), "watch")
		}
		return response.ErrMethodNotAllowed
	}
}

func getComponentStatus(rq *verbs.Request, all []component) error {
	if err := negotiate(rq); err != nil {
		return err
	}
	for _, c := range all {
		if c.name == rq.Route.Name {
			return sendComponentStatuses(rq, probeAll(rq.Ctx, []component{c}), true)
		}
	}
	return apierrors.NewNotFound(corev1.Resource("componentstatus"), rq.Route.Name)
}

func listComponentStatuses(rq *verbs.Request, all []component) error {
	opts, err := negotiateList(rq)
	if err != nil {
		return err
	}
	selector, err := rq.Endpoint.Registry.NewSelector(rq.Endpoint.Info, "", opts.LabelSelector, opts.FieldSelector)
	if err != nil {
		return err
	}
	var selected []component
	for _, c := range all {
		if selector.Matches(&cache.Item{Key: c.name, Name: c.name}) {
			selected = append(selected, c)
		}
	}
	return sendComponentStatuses(rq, probeAll(rq.Ctx, selected), false)
}

// probeAll probes the components at the same time.
func probeAll(ctx context.Context, components []component) []corev1.ComponentStatus {
	statuses := make([]corev1.ComponentStatus, len(components))
	var wg sync.WaitGroup
	for i, c := range components {
		wg.Go(func() {
			condition := c.ask(ctx)
			condition.Type = corev1.ComponentHealthy
			statuses[i] = corev1.ComponentStatus{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Conditions: []corev1.ComponentCondition{condition}}
		})
	}
	wg.Wait()
	return statuses
}

// sendComponentStatuses answers with statuses in the form that the client asked for. single says that one was asked for, not a list.
func sendComponentStatuses(rq *verbs.Request, statuses []corev1.ComponentStatus, single bool) error {
	found := measured{list: &corev1.ComponentStatusList{Items: statuses}, single: single}
	for _, c := range rq.Endpoint.Info.Columns {
		found.columns = append(found.columns, c.TableColumnDefinition)
	}
	for i := range statuses {
		found.objects = append(found.objects, &statuses[i])
		var row []any
		for _, c := range rq.Endpoint.Info.Columns {
			row = append(row, c.Cell(&statuses[i], time.Now()))
		}
		found.rows = append(found.rows, row)
	}
	return found.send(rq)
}

package podautoscaler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/client"
	"skiff/internal/controller/kinds"
)

// podUsageList is a list of metrics.k8s.io/v1beta1 PodMetrics.
type podUsageList struct {
	Items []podUsage `json:"items"`
}

// podUsage is what the containers of a pod use.
type podUsage struct {
	Metadata   struct{ Name string } `json:"metadata"`
	Timestamp  metav1.Time           `json:"timestamp"`
	Window     metav1.Duration       `json:"window"`
	Containers []struct {
		Name  string                                    `json:"name"`
		Usage map[corev1.ResourceName]resource.Quantity `json:"usage"`
	} `json:"containers"`
}

// of returns what the pod uses of a resource in thousandths, or one of its containers. It is not known if it is not known of one of them.
func (u *podUsage) of(name corev1.ResourceName, container string) (milli int64, known bool) {
	for i := range u.Containers {
		c := &u.Containers[i]
		if container != "" && c.Name != container {
			continue
		}
		q, ok := c.Usage[name]
		if !ok {
			return 0, false
		}
		milli, known = milli+q.MilliValue(), true
	}
	return milli, known
}

// customMetricList is a list of values of custom.metrics.k8s.io, of which v1beta1 and v1beta2 have these fields in the same places.
type customMetricList struct {
	Items []struct {
		DescribedObject corev1.ObjectReference `json:"describedObject"`
		Value           resource.Quantity      `json:"value"`
	} `json:"items"`
}

// externalMetricList is a list of values of external.metrics.k8s.io/v1beta1.
type externalMetricList struct {
	Items []struct {
		Value resource.Quantity `json:"value"`
	} `json:"items"`
}

const (
	// A list of a namespace's metrics is used for that part of a sync period, but for targets that have no pod in it only for a part of that.
	listPart, emptyListPart = 3, 5
	// fewPods is how many pods of a namespace are not worth choosing from.
	fewPods = 200
	// maxLists bounds the namespaces whose lists are kept.
	maxLists = 1000
)

// worthSharing reports whether the metrics of all pods of a namespace are to be listed once rather than those of each of its autoscalers: if there are
// several, and they have most of the pods.
func worthSharing(autoscalers, pods, of int) bool {
	return autoscalers > 1 && (of <= fewPods || 2*autoscalers*pods >= of)
}

// usageLists holds the latest lists of the metrics of namespaces.
type usageLists struct {
	maxAge time.Duration // of a list that is used again

	mu    sync.Mutex
	lists map[string]*usageList
}

// usageList is a list of the metrics of a namespace. Its lock is held while it is read, as others wait for the same list.
type usageList struct {
	mu     sync.Mutex
	at     time.Time
	usages map[string]*podUsage
}

// read returns the usage of the pods of a query, and maybe of others.
func (l *usageLists) read(ctx context.Context, c *client.Client, q *metricsQuery) (map[string]*podUsage, error) {
	if !q.share {
		return listUsages(ctx, c, q.namespace, q.selector.String())
	}
	list := l.of(q.namespace, q.now)
	list.mu.Lock()
	defer list.mu.Unlock()
	age := q.now.Sub(list.at)
	if list.usages != nil && age < l.maxAge && (age < l.maxAge/emptyListPart || list.hasAny(q.pods)) {
		return list.usages, nil
	}
	usages, err := listUsages(ctx, c, q.namespace, "")
	if err != nil {
		return nil, err
	}
	list.at, list.usages = q.now, usages
	return usages, nil
}

// of returns the list of a namespace, and drops those that nobody needs any more.
func (l *usageLists) of(namespace string, now time.Time) *usageList {
	l.mu.Lock()
	defer l.mu.Unlock()
	if list := l.lists[namespace]; list != nil {
		return list
	}
	for other, list := range l.lists {
		if list.mu.TryLock() {
			if now.Sub(list.at) >= l.maxAge {
				delete(l.lists, other)
			}
			list.mu.Unlock()
		}
	}
	if l.lists == nil || len(l.lists) >= maxLists {
		l.lists = map[string]*usageList{}
	}
	list := &usageList{}
	l.lists[namespace] = list
	return list
}

func (l *usageList) hasAny(pods []*corev1.Pod) bool {
	for _, pod := range pods {
		if l.usages[pod.Name] != nil {
			return true
		}
	}
	return false
}

func listUsages(ctx context.Context, c *client.Client, namespace, selector string) (map[string]*podUsage, error) {
	params := map[string]string{}
	if selector != "" {
		params["labelSelector"] = selector
	}
	list := &podUsageList{}
	if err := kinds.Get(ctx, c, list, params, "/apis/metrics.k8s.io/v1beta1/namespaces", namespace, "pods"); err != nil {
		return nil, err
	}
	usages := make(map[string]*podUsage, len(list.Items))
	for i := range list.Items {
		usages[list.Items[i].Metadata.Name] = &list.Items[i]
	}
	return usages, nil
}

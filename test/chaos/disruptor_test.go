//go:build linux

package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// disruptor keeps changing the objects that the controllers and the scheduler work on. In the end it undoes what would block them.
type disruptor struct {
	t      *testing.T
	api    kubernetes.Interface
	random *rand.Rand
	// free says that pods of the round may be put anywhere and relabelled: nobody is to be near them or far from them.
	namespace string
	free      bool

	stop    context.CancelFunc
	running sync.WaitGroup

	mu       sync.Mutex
	bound    map[types.UID]bool // pods it put on a node
	deeds    map[string]int     // that succeeded, by what they were
	cordoned map[string]bool
	shrunk   bool // the Job was told to run fewer pods at a time, so it may have ended some
}

const finalizer = "chaos.skiff/held"

// disrupt starts a disruptor.
func disrupt(t *testing.T, api kubernetes.Interface, random *rand.Rand, namespace string, free bool) *disruptor {
	m := &disruptor{t: t, api: api, random: random, namespace: namespace, free: free, bound: map[types.UID]bool{}, deeds: map[string]int{}, cordoned: map[string]bool{}}
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	deeds := m.all()
	names := slices.Sorted(maps.Keys(deeds))
	m.running.Go(func() {
		for ctx.Err() == nil {
			name := names[random.IntN(len(names))]
			did, err := deeds[name](context.Background()) // none is cut off: who does not know what he did cannot tell the judge
			if err == nil && did {
				m.mu.Lock()
				m.deeds[name]++
				m.mu.Unlock()
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
				t.Errorf("the meddler wants to %s: %v", name, err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(time.Duration(random.IntN(25)) * time.Millisecond):
			}
		}
	})
	return m
}

// all returns the changes that the disruptor makes, by name.
func (m *disruptor) all() map[string]func(context.Context) (bool, error) {
	c := m.api
	note := func() []byte {
		return fmt.Appendf(nil, `{"metadata":{"annotations":{"meddler":"%d"}}}`, m.random.IntN(1000))
	}
	deeds := map[string]func(context.Context) (bool, error){
		"annotate the Deployment": func(ctx context.Context) (bool, error) {
			_, err := c.AppsV1().Deployments(m.namespace).Patch(ctx, webApp, types.MergePatchType, note(), metav1.PatchOptions{})
			return true, err
		},
		"annotate the Job": func(ctx context.Context) (bool, error) {
			_, err := c.BatchV1().Jobs(m.namespace).Patch(ctx, "job", types.MergePatchType, note(), metav1.PatchOptions{})
			return true, err
		},
		"annotate a pod": func(ctx context.Context) (bool, error) {
			return m.somePod(ctx, "", func(p *corev1.Pod) error {
				_, err := c.CoreV1().Pods(m.namespace).Patch(ctx, p.Name, types.MergePatchType, note(), metav1.PatchOptions{})
				return err
			})
		},
		"delete a pod": func(ctx context.Context) (bool, error) {
			return m.somePod(ctx, "app!=job", func(p *corev1.Pod) error {
				grace := int64(m.random.IntN(2))
				return c.CoreV1().Pods(m.namespace).Delete(ctx, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &grace})
			})
		},
		"evict a pod": func(ctx context.Context) (bool, error) {
			return m.somePod(ctx, "app!=job", func(p *corev1.Pod) error {
				return c.CoreV1().Pods(m.namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name}})
			})
		},
		"hold a pod": func(ctx context.Context) (bool, error) {
			return m.somePod(ctx, "app!=job", func(p *corev1.Pod) error {
				if p.DeletionTimestamp != nil {
					return nil
				}
				_, err := c.CoreV1().Pods(m.namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"finalizers":["`+finalizer+`"]}}`), metav1.PatchOptions{})
				return err
			})
		},
		"let pods go": func(ctx context.Context) (bool, error) { return true, m.release(ctx) },
		"scale a ReplicaSet": func(ctx context.Context) (bool, error) {
			sets, err := c.AppsV1().ReplicaSets(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + webApp})
			if err != nil || len(sets.Items) == 0 || m.random.IntN(4) > 0 {
				return false, err
			}
			set := sets.Items[m.random.IntN(len(sets.Items))]
			_, err = c.AppsV1().ReplicaSets(m.namespace).Patch(ctx, set.Name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, m.random.IntN(6)), metav1.PatchOptions{})
			return true, err
		},
		"delete what others make again": func(ctx context.Context) (bool, error) {
			switch m.random.IntN(8) {
			case 0:
				return true, c.DiscoveryV1().EndpointSlices(m.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
			case 1:
				return true, c.CoreV1().ConfigMaps(m.namespace).Delete(ctx, "kube-root-ca.crt", metav1.DeleteOptions{})
			case 2:
				return true, c.CoreV1().ServiceAccounts(m.namespace).Delete(ctx, "default", metav1.DeleteOptions{})
			}
			return false, nil
		},
		"cordon a node, or uncordon it": func(ctx context.Context) (bool, error) {
			name := nodeName(m.random.IntN(openNodes))
			if len(m.cordoned) > 1 && !m.cordoned[name] || m.random.IntN(3) > 0 {
				return false, nil
			}
			return true, m.cordon(ctx, name, !m.cordoned[name])
		},
	}
	if m.random.IntN(2) == 0 {
		m.shrunk = true
		deeds["change the Job's parallelism"] = func(ctx context.Context) (bool, error) {
			_, err := c.BatchV1().Jobs(m.namespace).Patch(ctx, "job", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"parallelism":%d}}`, 1+m.random.IntN(4)), metav1.PatchOptions{})
			return true, err
		}
	}
	if m.free {
		deeds["bind a pod"] = m.bind
		deeds["take a pod from its owner, or give it back"] = func(ctx context.Context) (bool, error) {
			return m.somePod(ctx, "app in (web,stray)", func(p *corev1.Pod) error {
				if m.random.IntN(3) > 0 {
					return nil
				}
				label := map[string]string{webApp: "stray", "stray": webApp}[p.Labels["app"]]
				_, err := c.CoreV1().Pods(m.namespace).Patch(ctx, p.Name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"app":%q}}}`, label), metav1.PatchOptions{})
				return err
			})
		}
	}
	return deeds
}

// somePod calls a function with a random pod.
func (m *disruptor) somePod(ctx context.Context, selector string, do func(*corev1.Pod) error) (bool, error) {
	pods, err := m.api.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil || len(pods.Items) == 0 {
		return false, err
	}
	return true, do(&pods.Items[m.random.IntN(len(pods.Items))])
}

// bind binds a pod to a node without the scheduler.
func (m *disruptor) bind(ctx context.Context) (bool, error) {
	pods, err := m.api.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=" + webApp, FieldSelector: "spec.nodeName="})
	if err != nil || len(pods.Items) == 0 {
		return false, err
	}
	p := &pods.Items[m.random.IntN(len(pods.Items))]
	b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: p.Name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: elsewhere}}
	if err := m.api.CoreV1().Pods(m.namespace).Bind(ctx, b, metav1.CreateOptions{}); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bound[p.UID] = true
	return true, nil
}

func (m *disruptor) cordon(ctx context.Context, node string, on bool) error {
	if _, err := m.api.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"unschedulable":%v}}`, on), metav1.PatchOptions{}); err != nil {
		return err
	}
	if m.cordoned[node] = true; !on {
		delete(m.cordoned, node)
	}
	return nil
}

// release removes the finalizers that the disruptor added to pods.
func (m *disruptor) release(ctx context.Context) error {
	pods, err := m.api.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if slices.Contains(p.Finalizers, finalizer) {
			_, err := m.api.CoreV1().Pods(m.namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, []byte(`{"metadata":{"$deleteFromPrimitiveList/finalizers":["`+finalizer+`"]}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				return err
			}
		}
	}
	return nil
}

// end stops the disruptor and undoes what would keep objects from their final state.
func (m *disruptor) end() {
	m.t.Helper()
	m.stop()
	m.running.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := m.release(ctx); err != nil {
		m.t.Fatal(err)
	}
	for node := range m.cordoned {
		if err := m.cordon(ctx, node, false); err != nil {
			m.t.Fatal(err)
		}
	}
	strays, err := m.api.CoreV1().Pods(m.namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=stray"})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, p := range strays.Items {
		_, err := m.api.CoreV1().Pods(m.namespace).Patch(ctx, p.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"web"}}}`), metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			m.t.Fatal(err)
		}
	}
}

// exact reports whether the Job makes exactly as many pods as it needs: its parallelism was never reduced.
func (m *disruptor) exact(j *batchv1.Job) bool { return !m.shrunk && !fails(j) }

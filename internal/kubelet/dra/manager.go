package dra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/dra/v1"

	"skiff/internal/kubelet/plugins"
)

// Source reads and writes what the API has of claims and devices.
type Source interface {
	ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// DeleteResourceSlices deletes what a driver has published for this node.
	DeleteResourceSlices(ctx context.Context, driver string) error
}

// Options of New.
type Options struct {
	Root   string // the kubelet's directory
	Source Source
	// GoneAfter is how long a driver that went away has to come back before its ResourceSlices are deleted; 30 s if zero.
	GoneAfter time.Duration
	Log       *slog.Logger
}

// callTimeout is how long a driver may take to prepare claims.
const callTimeout = 45 * time.Second

// Manager has DRA drivers prepare claims. It is safe for concurrent use.
type Manager struct {
	options Options

	calling sync.Mutex // held while claims are prepared or unprepared: they are shared by pods

	mu      sync.Mutex
	drivers map[string]*driver
	claims  map[types.UID]*claim
}

// driver is a DRA driver that is registered on the node.
type driver struct {
	connection *grpc.ClientConn
	client     api.DRAPluginClient
}

// claim is a ResourceClaim that pods of this node have.
type claim struct {
	Namespace, Name string
	UID             types.UID
	Pods            []types.UID
	Drivers         map[string][]device // what each driver has prepared
	Prepared        bool                // by all drivers
}

// device is a device that a driver has prepared.
type device struct {
	Requests []string // the requests of the claim that it is for; all if there are none
	CDI      []string // its names for the runtime
}

// New returns a manager that knows which pods have which claims.
func New(o Options) (*Manager, error) {
	if o.GoneAfter == 0 {
		o.GoneAfter = 30 * time.Second
	}
	m := &Manager{options: o, drivers: map[string]*driver{}, claims: map[types.UID]*claim{}}
	return m, m.restore()
}

var _ plugins.Handler = (*Manager)(nil)

// Validate returns why a driver is not taken.
func (m *Manager) Validate(name, endpoint string, versions []string) error {
	if !slices.Contains(versions, api.DRAPluginService) {
		return fmt.Errorf("DRA driver %s at endpoint %s supports %q, and not %s", name, endpoint, versions, api.DRAPluginService)
	}
	return nil
}

// Register has a driver used from now on.
func (m *Manager) Register(_ context.Context, name, endpoint string, _ []string) error {
	connection, err := plugins.Connect(endpoint)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if old := m.drivers[name]; old != nil {
		defer old.connection.Close()
	}
	m.drivers[name] = &driver{connection: connection, client: api.NewDRAPluginClient(connection)}
	return nil
}

// Deregister removes a driver whose socket is gone, and what it has published if it does not come back.
func (m *Manager) Deregister(ctx context.Context, name, _ string) {
	m.mu.Lock()
	if old := m.drivers[name]; old != nil {
		defer old.connection.Close()
	}
	delete(m.drivers, name)
	m.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(m.options.GoneAfter):
		}
		if _, err := m.driver(name); err == nil {
			return // it is back
		}
		if err := m.options.Source.DeleteResourceSlices(ctx, name); err != nil && ctx.Err() == nil {
			m.options.Log.Warn("failed to delete the ResourceSlices of a DRA driver that is gone", "driver", name, "err", err)
		}
	}()
}

func (m *Manager) driver(name string) (api.DRAPluginClient, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d := m.drivers[name]; d != nil {
		return d.client, nil
	}
	return nil, fmt.Errorf("DRA driver %s is not registered", name)
}

// claimName returns the name of the ResourceClaim behind a claim of a pod; empty if the pod got none from its template.
func claimName(pod *corev1.Pod, c *corev1.PodResourceClaim) (string, error) {
	if c.ResourceClaimName != nil {
		return *c.ResourceClaimName, nil
	}
	for _, s := range pod.Status.ResourceClaimStatuses {
		if s.Name == c.Name {
			if s.ResourceClaimName == nil {
				return "", nil
			}
			return *s.ResourceClaimName, nil
		}
	}
	return "", fmt.Errorf("pod \"%s/%s\": claim %q: the ResourceClaim has not been created yet", pod.Namespace, pod.Name, c.Name)
}

// claimed reads the ResourceClaim behind a claim of a pod, and checks that the pod may use it. It is nil if there is none.
func (m *Manager) claimed(ctx context.Context, pod *corev1.Pod, c *corev1.PodResourceClaim) (*resourcev1.ResourceClaim, error) {
	name, err := claimName(pod, c)
	if err != nil || name == "" {
		return nil, err
	}
	found, err := m.options.Source.ResourceClaim(ctx, pod.Namespace, name)
	switch {
	case err != nil:
		return nil, fmt.Errorf("fetch ResourceClaim %s: %w", name, err)
	case c.ResourceClaimTemplateName != nil && !metav1.IsControlledBy(found, pod):
		return nil, fmt.Errorf("ResourceClaim %s was not created for pod %s/%s (pod is not owner)", name, pod.Namespace, pod.Name)
	case !slices.ContainsFunc(found.Status.ReservedFor, func(r resourcev1.ResourceClaimConsumerReference) bool { return r.UID == pod.UID }):
		return nil, fmt.Errorf("pod %s (%s) is not allowed to use ResourceClaim %s (%s)", pod.Name, pod.UID, found.Name, found.UID)
	case found.Status.Allocation == nil:
		return nil, fmt.Errorf("ResourceClaim %s: not allocated", name)
	}
	return found, nil
}

// Prepare has the drivers prepare all claims of a pod. Those that are prepared stay as they are.
func (m *Manager) Prepare(ctx context.Context, pod *corev1.Pod) error {
	if len(pod.Spec.ResourceClaims) == 0 {
		return nil
	}
	m.calling.Lock()
	defer m.calling.Unlock()
	wanted := map[string][]*claim{} // by driver
	var all []*claim
	for i := range pod.Spec.ResourceClaims {
		found, err := m.claimed(ctx, pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return err
		}
		if found == nil {
			continue
		}
		c := m.add(found, pod.UID)
		if c.Prepared || slices.Contains(all, c) {
			continue
		}
		all = append(all, c)
		for name := range c.Drivers {
			wanted[name] = append(wanted[name], c)
		}
	}
	if err := m.save(); err != nil {
		return err
	}
	if len(all) == 0 {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		if err := m.prepare(ctx, name, wanted[name]); err != nil {
			return err
		}
	}
	m.mu.Lock()
	for _, c := range all {
		c.Prepared = true
	}
	m.mu.Unlock()
	return m.save()
}

// add notes that a pod has a claim.
func (m *Manager) add(found *resourcev1.ResourceClaim, uid types.UID) *claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.claims[found.UID]
	if c == nil {
		c = &claim{Namespace: found.Namespace, Name: found.Name, UID: found.UID, Drivers: map[string][]device{}}
		for _, r := range found.Status.Allocation.Devices.Results {
			c.Drivers[r.Driver] = nil
		}
		m.claims[found.UID] = c
	}
	if !slices.Contains(c.Pods, uid) {
		c.Pods = append(c.Pods, uid)
	}
	return c
}

// prepare has one driver prepare claims.
func (m *Manager) prepare(ctx context.Context, name string, claims []*claim) error {
	client, err := m.driver(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &api.NodePrepareResourcesRequest{}
	for _, c := range claims {
		request.Claims = append(request.Claims, c.message())
	}
	answer, err := client.NodePrepareResources(ctx, request)
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	for _, c := range claims {
		result := answer.Claims[string(c.UID)]
		switch {
		case result == nil:
			return fmt.Errorf("NodePrepareResources skipped ResourceClaim %s", c.Name)
		case result.Error != "":
			return fmt.Errorf("NodePrepareResources failed for ResourceClaim %s: %s", c.Name, result.Error)
		}
		var devices []device
		for _, d := range result.Devices {
			devices = append(devices, device{Requests: d.RequestNames, CDI: d.CdiDeviceIds})
		}
		m.mu.Lock()
		c.Drivers[name] = devices
		m.mu.Unlock()
	}
	return nil
}

func (c *claim) message() *api.Claim {
	return &api.Claim{Namespace: c.Namespace, Uid: string(c.UID), Name: c.Name}
}

// Unprepare gives up the claims of a pod. None of its containers may run.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	m.mu.Lock()
	has := slices.ContainsFunc(slices.Collect(maps.Values(m.claims)), func(c *claim) bool { return slices.Contains(c.Pods, uid) })
	m.mu.Unlock()
	if !has {
		return nil
	}
	m.calling.Lock()
	defer m.calling.Unlock()
	m.mu.Lock()
	unused := map[string][]*claim{} // by driver
	var gone []*claim
	for _, c := range m.claims {
		if !slices.Contains(c.Pods, uid) {
			continue
		}
		if len(c.Pods) > 1 {
			c.Pods = slices.DeleteFunc(c.Pods, func(other types.UID) bool { return other == uid })
			continue
		}
		c.Prepared = false // from now on
		gone = append(gone, c)
		for name := range c.Drivers {
			unused[name] = append(unused[name], c)
		}
	}
	m.mu.Unlock()
	failed := []error{m.save()}
	for _, name := range slices.Sorted(maps.Keys(unused)) {
		failed = append(failed, m.unprepare(ctx, name, unused[name]))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	m.mu.Lock()
	for _, c := range gone {
		delete(m.claims, c.UID)
	}
	m.mu.Unlock()
	return m.save()
}

// unprepare has one driver undo what it did for claims.
func (m *Manager) unprepare(ctx context.Context, name string, claims []*claim) error {
	client, err := m.driver(name)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request := &api.NodeUnprepareResourcesRequest{}
	for _, c := range claims {
		request.Claims = append(request.Claims, c.message())
	}
	answer, err := client.NodeUnprepareResources(ctx, request)
	if err != nil {
		return fmt.Errorf("NodeUnprepareResources: %w", err)
	}
	for _, c := range claims {
		if result := answer.Claims[string(c.UID)]; result == nil {
			return fmt.Errorf("NodeUnprepareResources skipped ResourceClaim %s", c.Name)
		} else if result.Error != "" {
			return fmt.Errorf("NodeUnprepareResources failed for ResourceClaim %s: %s", c.Name, result.Error)
		}
	}
	return nil
}

// CDIDevices returns the devices that a container gets from the claims it names, by their names for the runtime.
func (m *Manager) CDIDevices(pod *corev1.Pod, container *corev1.Container) ([]string, error) {
	var names []string
	for _, wanted := range container.Resources.Claims {
		i := slices.IndexFunc(pod.Spec.ResourceClaims, func(c corev1.PodResourceClaim) bool { return c.Name == wanted.Name })
		if i < 0 {
			return nil, fmt.Errorf("container %s: the pod has no claim %q", container.Name, wanted.Name)
		}
		name, err := claimName(pod, &pod.Spec.ResourceClaims[i])
		if err != nil {
			return nil, err
		}
		if name != "" {
			found, err := m.devices(pod, name, wanted.Request)
			if err != nil {
				return nil, err
			}
			names = append(names, found...)
		}
	}
	return names, nil
}

// devices returns the devices that a claim of a pod has for one of its requests, for all of them if request is empty.
func (m *Manager) devices(pod *corev1.Pod, name, request string) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.claims {
		if c.Namespace != pod.Namespace || c.Name != name || !slices.Contains(c.Pods, pod.UID) || !c.Prepared {
			continue
		}
		for _, driver := range slices.Sorted(maps.Keys(c.Drivers)) {
			for _, d := range c.Drivers[driver] {
				if request == "" || len(d.Requests) == 0 || slices.Contains(d.Requests, request) {
					names = append(names, d.CDI...)
				}
			}
		}
		return names, nil
	}
	return nil, fmt.Errorf("unable to get resources for ResourceClaim %s: it is not prepared", name)
}

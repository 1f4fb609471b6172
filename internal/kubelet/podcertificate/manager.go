package podcertificate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	certificateslisters "k8s.io/client-go/listers/certificates/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"skiff/internal/client"
)

// Options of New.
type Options struct {
	Client   *client.Client
	NodeName string
	Node     func() *corev1.Node         // the node as the API has it
	Wake     func(types.UID)             // called when a request of a pod changed
	Recorder func() record.EventRecorder // returns what records Events about pods
	Clock    clock.PassiveClock
	Log      *slog.Logger
}

// Manager keeps the certificates of a node's pods. It is safe for concurrent use.
type Manager struct {
	opts Options

	mu      sync.Mutex
	records map[projection]*certificate
	lister  certificateslisters.PodCertificateRequestLister // of this node's requests; nil until one is needed
	stop    context.CancelFunc
}

// projection is a source podCertificate of a pod's volume.
type projection struct {
	pod    types.UID
	volume string
	source int
}

// certificate is a state, and what metrics tell of it.
type certificate struct {
	mu     sync.Mutex
	signer string
	state
}

// New returns a manager that watches nothing before a pod needs a certificate.
func New(opts Options) *Manager {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &Manager{opts: opts, records: map[projection]*certificate{}}
}

// Certificate returns the key and the certificate chain that a source of a pod's volume shows, in PEM. Where there is none yet it asks for one, or for
// another if it is time to renew it, and returns an error that Waiting knows; Wake is called when that may have changed.
func (m *Manager) Certificate(ctx context.Context, pod *corev1.Pod, volume string, source int, spec *corev1.PodCertificateProjection) (keyPEM, chain []byte, err error) {
	c := m.record(projection{pod.UID, volume, source}, spec.SignerName)
	c.mu.Lock()
	defer c.mu.Unlock()
	ask, events := c.observe(m.observed(pod.Namespace, c.awaited), m.opts.Clock.Now(), rand.N(maxJitter))
	for _, e := range events {
		m.opts.Recorder().Event(pod, corev1.EventTypeWarning, e.reason, e.message)
	}
	if ask {
		err = m.ask(ctx, pod, spec, &c.state)
	}
	if err != nil && c.chain == nil {
		return nil, nil, err
	}
	if err != nil {
		m.opts.Log.Warn("failed to ask for a new certificate of a pod; it keeps the one it has", "pod", pod.Namespace+"/"+pod.Name, "signer", spec.SignerName, "until", c.notAfter, "err", err)
	}
	return c.shown()
}

// Waiting reports whether an error of Certificate says only that the signer has not answered yet.
func Waiting(err error) bool { return errors.Is(err, errNotIssued) }

func (m *Manager) record(p projection, signer string) *certificate {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.records[p]
	if c == nil {
		c = &certificate{signer: signer}
		m.records[p] = c
	}
	if m.lister == nil {
		m.watch()
	}
	return c
}

// observed returns the awaited request as the informer has it, nil if it does not have it.
func (m *Manager) observed(namespace string, a *awaited) *certificatesv1.PodCertificateRequest {
	if a == nil {
		return nil
	}
	request, err := m.lister.PodCertificateRequests(namespace).Get(a.name)
	if err != nil {
		return nil
	}
	return request
}

// watch starts to watch the requests of this node. The manager is locked.
func (m *Manager) watch() {
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	factory := m.opts.Client.Informers(client.InformerOptions{Select: func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", m.opts.NodeName).String()
	}})
	requests := factory.Certificates().V1().PodCertificateRequests()
	wake := func(obj any) {
		if request, ok := obj.(*certificatesv1.PodCertificateRequest); ok {
			m.opts.Wake(request.Spec.PodUID)
		}
	}
	_, err := requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: wake, UpdateFunc: func(_, obj any) { wake(obj) }})
	if err != nil {
		m.opts.Log.Error("failed to watch requests for pod certificates", "err", err) // only of an informer that was stopped
	}
	m.lister = requests.Lister()
	factory.Start(ctx.Done())
}

// Close stops what watches.
func (m *Manager) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != nil {
		m.stop()
	}
}

// Forget drops the certificates of a pod.
func (m *Manager) Forget(pod types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.records {
		if p.pod == pod {
			delete(m.records, p)
		}
	}
}

// ask creates a request.
func (m *Manager) ask(ctx context.Context, pod *corev1.Pod, spec *corev1.PodCertificateProjection, s *state) error {
	api := m.opts.Client.Kubernetes()
	account, err := api.CoreV1().ServiceAccounts(pod.Namespace).Get(ctx, pod.Spec.ServiceAccountName, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("while fetching service account: %w", err)
	}
	keyPEM, proof, err := newKey(spec.KeyType)
	if err != nil {
		return err
	}
	request, err := api.CertificatesV1().PodCertificateRequests(pod.Namespace).Create(ctx, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "req-", Namespace: pod.Namespace,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}}},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: spec.SignerName, PodName: pod.Name, PodUID: pod.UID, ServiceAccountName: account.Name, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(m.opts.NodeName), NodeUID: m.opts.Node().UID, MaxExpirationSeconds: spec.MaxExpirationSeconds,
			StubPKCS10Request: proof, UnverifiedUserAnnotations: spec.UserAnnotations,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("failed to create a PodCertificateRequest: %w", err)
	}
	s.asked(request, keyPEM, rand.N(maxJitter))
	return nil
}

// Count is the number of certificates of a signer in a state.
type Count struct{ Signer, State string }

// Counts returns how many certificates of which signer are in which state.
func (m *Manager) Counts() map[Count]int {
	m.mu.Lock()
	all := slices.Collect(maps.Values(m.records))
	m.mu.Unlock()
	counts := map[Count]int{}
	for _, c := range all {
		c.mu.Lock()
		counts[Count{c.signer, c.name(m.opts.Clock.Now())}]++
		c.mu.Unlock()
	}
	return counts
}

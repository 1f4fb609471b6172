package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crierrors "k8s.io/cri-api/pkg/errors"

	"skiff/internal/kubelet/cri"
)

// Reasons why an image is not there, as containers' states have them.
const (
	ErrImagePull        = "ErrImagePull"
	ErrImagePullBackOff = "ImagePullBackOff"
	ErrImageNeverPull   = "ErrImageNeverPull"
	ErrImageInspect     = "ImageInspectError"
	ErrInvalidImageName = "InvalidImageName"
)

// Error is why an image is not there.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// How long a pull that failed is not tried again.
const (
	firstBackOff = 10 * time.Second
	lastBackOff  = 5 * time.Minute
)

// Options of a Puller.
type Options struct {
	Runtime  cri.Images
	Recorder record.EventRecorder
	// Parallel is how many images are pulled at the same time; 5 if zero.
	Parallel int
	// Dir is where it is kept which images were pulled with which secrets; nowhere if empty.
	Dir string
	// Pulled is told how long pulls took that succeeded.
	Pulled func(took time.Duration, size uint64)
}

// Puller pulls images.
type Puller struct {
	options Options
	slots   chan struct{}
	records *records

	mu      sync.Mutex
	flights map[string]*flight
	waits   map[key]*wait
}

type key struct {
	pod   types.UID
	image string
}

// wait is the back-off of a pod's image.
type wait struct {
	delay time.Duration
	since time.Time
	err   *Error
}

// New returns a puller.
func New(o Options) (*Puller, error) {
	if o.Parallel <= 0 {
		o.Parallel = 5
	}
	known, err := newRecords(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("which images were pulled with which secrets: %w", err)
	}
	return &Puller{options: o, slots: make(chan struct{}, o.Parallel), records: known, flights: map[string]*flight{}, waits: map[key]*wait{}}, nil
}

// Keep forgets what is known of images that are not there any more.
func (p *Puller) Keep(there map[string]bool) error { return p.records.keep(there) }

// Request is an image that a pod needs.
type Request struct {
	Pod     *corev1.Pod
	About   runtime.Object // what events are about: a container of the pod
	Image   string         // as the pod has it
	Policy  corev1.PullPolicy
	Secrets []*corev1.Secret
	Sandbox *runtimeapi.PodSandboxConfig // the pod's
}

// Image is an image that is there.
type Image struct {
	Ref  string // its id
	UID  *int64 // of its user, if it has a number
	User string // of its user, if it has a name
}

// Ensure sees to it that an image is there. Errors are *Error, but for that of a ctx that ended, and of a runtime that does not answer.
func (p *Puller) Ensure(ctx context.Context, r Request) (Image, error) {
	repository, full, err := parse(r.Image)
	if err != nil {
		return Image{}, p.fail(r, "InspectFailed", ErrInvalidImageName, fmt.Sprintf("Failed to apply default image tag %q: %v", r.Image, err))
	}
	keys, err := newKeyring(r.Secrets)
	if err != nil {
		return Image{}, &Error{ErrImagePull, err.Error()}
	}
	spec, credentials := &runtimeapi.ImageSpec{Image: full, Annotations: r.Pod.Annotations}, keys.lookup(repository)
	if r.Policy != corev1.PullAlways {
		there, err := p.options.Runtime.ImageStatus(ctx, spec)
		switch {
		case cri.IsUnavailable(err):
			return Image{}, err
		case err != nil:
			return Image{}, p.fail(r, "InspectFailed", ErrImageInspect, fmt.Sprintf("Failed to inspect image %q: %v", full, err))
		case there != nil && p.records.allows(there.Id, credentials):
			p.options.Recorder.Eventf(r.About, corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", r.Image)
			return of(there), nil
		case r.Policy == corev1.PullNever: // also if it is there, but not for this pod: that is nobody's business
			return Image{}, p.fail(r, ErrImageNeverPull, ErrImageNeverPull, fmt.Sprintf("Container image %q is not present with pull policy of Never", r.Image))
		}
	}
	return p.pull(ctx, r, spec, credentials)
}

func (p *Puller) fail(r Request, event, reason, message string) error {
	p.options.Recorder.Event(r.About, corev1.EventTypeWarning, event, message)
	return &Error{reason, message}
}

func of(i *runtimeapi.Image) Image {
	out := Image{Ref: i.Id, User: i.Username}
	if i.Uid != nil {
		out.UID, out.User = &i.Uid.Value, ""
	}
	return out
}

// parse completes the name of an image: its repository with the registry, and the name with a tag or digest. The registry is not added to the
// name: which one is meant is for the runtime to know.
func parse(image string) (repository, full string, err error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if reference.IsNameOnly(named) {
		image += ":latest"
	}
	return named.Name(), image, nil
}

// pull pulls an image, unless that failed a short time ago.
func (p *Puller) pull(ctx context.Context, r Request, spec *runtimeapi.ImageSpec, credentials []Credentials) (Image, error) {
	k := key{r.Pod.UID, r.Image}
	if last := p.backingOff(k); last != nil {
		message := fmt.Sprintf("Back-off pulling image %q", r.Image)
		p.options.Recorder.Event(r.About, corev1.EventTypeNormal, "BackOff", message)
		return Image{}, &Error{ErrImagePullBackOff, fmt.Sprintf("%s: %s", message, last.Error())}
	}
	p.options.Recorder.Eventf(r.About, corev1.EventTypeNormal, "Pulling", "Pulling image %q", r.Image)
	start := time.Now()
	got := p.join(ctx, spec, credentials, r.Sandbox)
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if cri.IsUnavailable(got.err) { // that says nothing about the image
		return Image{}, got.err
	}
	if got.err != nil {
		p.options.Recorder.Eventf(r.About, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", r.Image, got.err)
		e := explain(r.Image, got.err)
		p.backOff(k, e)
		return Image{}, e
	}
	waited := time.Since(start).Truncate(time.Millisecond)
	p.options.Recorder.Eventf(r.About, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		r.Image, min(got.took, waited).Truncate(time.Millisecond), waited, got.size)
	if p.options.Pulled != nil {
		p.options.Pulled(waited, got.size)
	}
	p.mu.Lock()
	delete(p.waits, k)
	p.mu.Unlock()
	return got.image, nil
}

// explain returns what an error of a pull means to the pod.
func explain(image string, err error) *Error {
	for prefix, why := range map[string]string{
		crierrors.ErrRegistryUnavailable.Error():       "the registry is unavailable",
		crierrors.ErrSignatureValidationFailed.Error(): "the signature validation failed",
	} {
		if more, ok := strings.CutPrefix(err.Error(), prefix); ok {
			return &Error{prefix, fmt.Sprintf("image pull failed for %s because %s%s", image, why, more)}
		}
	}
	return &Error{ErrImagePull, err.Error()}
}

// Retry returns when a pull of an image for a pod that failed will be tried again; zero if none failed.
func (p *Puller) Retry(pod types.UID, image string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.waits[key{pod, image}]; w != nil {
		return w.since.Add(w.delay)
	}
	return time.Time{}
}

func (p *Puller) backingOff(k key) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waits[k]
	if w == nil || time.Since(w.since) >= w.delay {
		return nil
	}
	return w.err
}

func (p *Puller) backOff(k key, err *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.waits[k]
	if w == nil || time.Since(w.since) > 2*lastBackOff {
		w = &wait{delay: firstBackOff / 2}
		p.waits[k] = w
	}
	w.delay, w.since, w.err = min(2*w.delay, lastBackOff), time.Now(), err
}

// Forget forgets what failed for a pod.
func (p *Puller) Forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.waits {
		if k.pod == pod {
			delete(p.waits, k)
		}
	}
}

var errGone = errors.New("the image was removed as soon as it was pulled")

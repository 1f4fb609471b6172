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

// Reasons of a waiting container state whose image is not on the node.
const (
	ErrImagePull        = "ErrImagePull"
	ErrImagePullBackOff = "ImagePullBackOff"
	ErrImageNeverPull   = "ErrImageNeverPull"
	ErrImageInspect     = "ImageInspectError"
	ErrInvalidImageName = "InvalidImageName"
)

// Error is why an image could not be pulled.
type Error struct{ Reason, Message string }

func (e *Error) Error() string { return e.Reason + ": " + e.Message }

// How long a failed pull is not tried again; it doubles each time.
const (
	minBackOff = 10 * time.Second
	maxBackOff = 5 * time.Minute
)

// Options of a Puller.
type Options struct {
	Runtime  cri.Images
	Recorder record.EventRecorder
	// Parallel is how many images are pulled in parallel; 5 if zero.
	Parallel int
	// Dir is where the records are kept of which images were pulled with which secrets; nowhere if empty.
	Dir string
	// Pulled is called after each successful pull.
	Pulled func(took time.Duration, size uint64)
}

// Puller pulls images.
type Puller struct {
	options Options
	slots   chan struct{} // bounds parallel pulls
	records *records

	mu       sync.Mutex
	inflight map[string]*inflightPull
	backOffs map[key]*backOff
}

type key struct {
	pod   types.UID
	image string
}

// backOff is the back-off of a pod's image.
type backOff struct {
	delay time.Duration
	since time.Time
	err   *Error
}

// New returns a puller.
func New(o Options) (*Puller, error) {
	if o.Parallel <= 0 {
		o.Parallel = 5
	}
	records, err := newRecords(o.Dir)
	if err != nil {
		return nil, fmt.Errorf("failed to read which images were pulled with which secrets: %w", err)
	}
	return &Puller{options: o, slots: make(chan struct{}, o.Parallel), records: records, inflight: map[string]*inflightPull{}, backOffs: map[key]*backOff{}}, nil
}

// Keep drops the records of all images but those that are present, by id.
func (p *Puller) Keep(present map[string]bool) error { return p.records.keep(present) }

// Request is an image that a pod needs.
type Request struct {
	Pod     *corev1.Pod
	About   runtime.Object // the object of Events: a container of the pod
	Image   string         // the image as the pod's spec has it
	Policy  corev1.PullPolicy
	Secrets []*corev1.Secret
	Sandbox *runtimeapi.PodSandboxConfig // the pod's sandbox, for the runtime
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
		case err != nil && ctx.Err() != nil: // it was broken off, which says nothing about the image
			return Image{}, ctx.Err()
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

// pull pulls an image, unless its back-off is not over.
func (p *Puller) pull(ctx context.Context, r Request, spec *runtimeapi.ImageSpec, credentials []Credentials) (Image, error) {
	k := key{r.Pod.UID, r.Image}
	if last := p.backingOff(k); last != nil {
		message := fmt.Sprintf("Back-off pulling image %q", r.Image)
		p.options.Recorder.Event(r.About, corev1.EventTypeNormal, "BackOff", message)
		return Image{}, &Error{ErrImagePullBackOff, fmt.Sprintf("%s: %s", message, last.Error())}
	}
	p.options.Recorder.Eventf(r.About, corev1.EventTypeNormal, "Pulling", "Pulling image %q", r.Image)
	start := time.Now()
	got := p.joinPull(ctx, spec, credentials, r.Sandbox)
	if ctx.Err() != nil {
		return Image{}, ctx.Err()
	}
	if cri.IsUnavailable(got.err) { // the runtime does not answer, which says nothing about the image
		return Image{}, got.err
	}
	if got.err != nil {
		p.options.Recorder.Eventf(r.About, corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", r.Image, got.err)
		e := pullError(r.Image, got.err)
		p.noteFailure(k, e)
		return Image{}, e
	}
	waited := time.Since(start).Truncate(time.Millisecond)
	p.options.Recorder.Eventf(r.About, corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %d bytes.",
		r.Image, min(got.took, waited).Truncate(time.Millisecond), waited, got.size)
	if p.options.Pulled != nil {
		p.options.Pulled(waited, got.size)
	}
	p.mu.Lock()
	delete(p.backOffs, k)
	p.mu.Unlock()
	return got.image, nil
}

// pullError returns the reason and message of a failed pull.
func pullError(image string, err error) *Error {
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

// Retry returns when the back-off of a pod's image is over; zero if it has none.
func (p *Puller) Retry(pod types.UID, image string) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.backOffs[key{pod, image}]; w != nil {
		return w.since.Add(w.delay)
	}
	return time.Time{}
}

// backingOff returns the last error of a pull whose back-off is not over, nil if there is none.
func (p *Puller) backingOff(k key) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.backOffs[k]
	if w == nil || time.Since(w.since) >= w.delay {
		return nil
	}
	return w.err
}

// noteFailure starts or doubles the back-off of a failed pull.
func (p *Puller) noteFailure(k key, err *Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.backOffs[k]
	if w == nil || time.Since(w.since) > 2*maxBackOff {
		w = &backOff{delay: minBackOff / 2}
		p.backOffs[k] = w
	}
	w.delay, w.since, w.err = min(2*w.delay, maxBackOff), time.Now(), err
}

// Forget drops the back-offs of a pod.
func (p *Puller) Forget(pod types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.backOffs {
		if k.pod == pod {
			delete(p.backOffs, k)
		}
	}
}

var errRemoved = errors.New("the image was removed as soon as it was pulled")

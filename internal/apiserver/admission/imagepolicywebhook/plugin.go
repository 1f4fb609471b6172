package imagepolicywebhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/util/cache"

	"skiff/internal/apiserver/admission"
)

// Name is the plugin's name in flags and in configuration files.
const Name = "ImagePolicyWebhook"

const (
	// maxKept bounds the answers that are kept, and maxKeptSize each of them: together 32 MB.
	maxKept     = 1024
	maxKeptSize = 32 << 10

	annotationPrefix = "imagepolicywebhook.image-policy.k8s.io/"
)

// New returns the plugin. When stopping ends it closes its connections; it may be nil. time is the clock by which answers grow old.
func New(c Config, time cache.Clock, stopping context.Context, log *slog.Logger) admission.Plugin {
	if stopping != nil {
		context.AfterFunc(stopping, c.webhook.closeIdle)
	}
	return &plugin{c, cache.NewLRUExpireCacheWithClock(maxKept, time), log}
}

type plugin struct {
	Config
	answers *cache.LRUExpireCache // by the hash of what was asked
	log     *slog.Logger
}

var pods = corev1.Resource("pods")

func (*plugin) Name() string { return Name }

func (*plugin) Handles(a *admission.Attributes) bool {
	return a.Is(pods) && (a.Subresource == "" || a.Subresource == "ephemeralcontainers") && (a.Operation == admission.Create || a.Operation == admission.Update)
}

// Validate refuses a pod with images that the webhook does not allow.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	status, err := p.ask(ctx, question(a, pod))
	if err != nil {
		return p.failed(a, err)
	}
	for key, value := range status.AuditAnnotations {
		if err := a.AddAnnotation(admission.Annotation{Key: annotationPrefix + key, Value: value}); err != nil && p.log != nil {
			p.log.Warn("failed to annotate a request for the audit log", "plugin", Name, "annotation", annotationPrefix+key, "err", err)
		}
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return a.Forbidden(fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason))
	default:
		return a.Forbidden(errors.New("one or more images rejected by webhook backend"))
	}
}

// failed admits a pod that could not be reviewed, or refuses it, as the configuration says.
func (p *plugin) failed(a *admission.Attributes, reason error) error {
	if !p.defaultAllow {
		return a.Forbidden(reason)
	}
	if p.log != nil {
		p.log.Warn("image policy webhook failed: the pod was admitted without a review", "namespace", a.Namespace, "pod", a.Subject(), "err", reason)
	}
	return a.AddAnnotation(admission.Annotation{Key: annotationPrefix + "failed-open", Value: "true"})
}

// question returns what the webhook is asked about a write: the images of its containers, or of the ephemeral ones if those are what is written.
func question(a *admission.Attributes, pod *corev1.Pod) *imagepolicyv1alpha1.ImageReviewSpec {
	spec := &imagepolicyv1alpha1.ImageReviewSpec{Namespace: a.Namespace, Annotations: map[string]string{}}
	add := func(image string) {
		spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if a.Subresource == "" {
		for _, containers := range [...][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range containers {
				add(containers[i].Image)
			}
		}
	} else {
		for i := range pod.Spec.EphemeralContainers {
			add(pod.Spec.EphemeralContainers[i].Image)
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, ".image-policy.k8s.io/") {
			spec.Annotations[key] = value
		}
	}
	return spec
}

// ask returns the webhook's answer to a question, or the one that it gave before.
func (p *plugin) ask(ctx context.Context, spec *imagepolicyv1alpha1.ImageReviewSpec) (imagepolicyv1alpha1.ImageReviewStatus, error) {
	text, err := json.Marshal(spec)
	if err != nil {
		return imagepolicyv1alpha1.ImageReviewStatus{}, err
	}
	key := sha256.Sum256(text)
	if known, ok := p.answers.Get(key); ok {
		return known.(imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	review := &imagepolicyv1alpha1.ImageReview{Spec: *spec}
	if err := p.webhook.review(ctx, review, p.retryBackoff); err != nil {
		return imagepolicyv1alpha1.ImageReviewStatus{}, err
	}
	ttl := p.denyTTL
	if review.Status.Allowed {
		ttl = p.allowTTL
	}
	if ttl > 0 && sizeOf(&review.Status) <= maxKeptSize {
		p.answers.Add(key, review.Status, ttl)
	}
	return review.Status, nil
}

// sizeOf returns how many bytes of text an answer has.
func sizeOf(s *imagepolicyv1alpha1.ImageReviewStatus) int {
	const ofEntry = 48
	size := len(s.Reason)
	for key, value := range s.AuditAnnotations {
		size += len(key) + len(value) + ofEntry
	}
	return size
}

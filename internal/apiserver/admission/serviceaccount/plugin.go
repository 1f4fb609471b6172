package serviceaccount

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
	"skiff/internal/apiserver/podrefs"
)

// New returns the plugin.
func New(r objects.Reader) admission.Plugin { return &plugin{r} }

type plugin struct{ objects objects.Reader }

var (
	pods     = corev1.Resource("pods")
	accounts = corev1.Resource("serviceaccounts")
)

// defaultAccount is the service account of pods that name none. A controller creates it in every namespace.
const defaultAccount = "default"

func (*plugin) Name() string { return "ServiceAccount" }

func (*plugin) Handles(a *admission.Attributes) bool {
	if !a.Is(pods) {
		return false
	}
	return a.Creates() && a.Subresource == "" || a.Operation == admission.Update && a.Subresource == "ephemeralcontainers"
}

// Admit sets the service account of a new pod, its token volume and its imagePullSecrets.
func (p *plugin) Admit(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.Creates() {
		return nil
	}
	if isMirror(pod) { // the kubelet expects it to be stored unchanged
		return validateMirror(a, pod)
	}
	spec := &pod.Spec
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName, spec.DeprecatedServiceAccount = defaultAccount, defaultAccount
	}
	account, err := p.account(ctx, a, spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if automounts(account, spec) {
		mountToken(spec)
	}
	if len(spec.ImagePullSecrets) == 0 && len(account.ImagePullSecrets) > 0 {
		spec.ImagePullSecrets = append([]corev1.LocalObjectReference(nil), account.ImagePullSecrets...)
	}
	return validatePod(a, spec, account)
}

// Validate checks that a pod's service account exists and that the pod uses no secrets that the account does not allow.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		return nil
	}
	if a.Creates() && isMirror(pod) {
		return validateMirror(a, pod)
	}
	if pod.Spec.ServiceAccountName == "" {
		return a.Forbidden(fmt.Errorf("no service account specified for pod %s/%s", a.Namespace, pod.Name))
	}
	account, err := p.account(ctx, a, pod.Spec.ServiceAccountName)
	if err != nil {
		return err
	}
	if a.Creates() {
		return validatePod(a, &pod.Spec, account)
	}
	if !limitsSecrets(account) {
		return nil
	}
	return checkEphemeral(&pod.Spec, account)
}

func validatePod(a *admission.Attributes, spec *corev1.PodSpec, account *corev1.ServiceAccount) error {
	if !limitsSecrets(account) {
		return nil
	}
	if err := checkSecrets(spec, account); err != nil {
		return a.Forbidden(err)
	}
	return nil
}

func isMirror(pod *corev1.Pod) bool {
	_, ok := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return ok
}

// validateMirror refuses mirror pods that use a service account or secrets: a static pod runs without the API, so it cannot have them.
func validateMirror(a *admission.Attributes, pod *corev1.Pod) error {
	if pod.Spec.ServiceAccountName != "" {
		return a.Forbidden(errors.New("a mirror pod may not reference service accounts"))
	}
	if podrefs.HasSecret(&pod.Spec) {
		return a.Forbidden(errors.New("a mirror pod may not reference secrets"))
	}
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		for j := 0; projected != nil && j < len(projected.Sources); j++ {
			if projected.Sources[j].ServiceAccountToken != nil {
				return a.Forbidden(errors.New("a mirror pod may not use ServiceAccountToken volume projections"))
			}
		}
	}
	return nil
}

// automounts reports whether containers get the token: the pod's setting overrides the account's, and the default is true.
func automounts(account *corev1.ServiceAccount, spec *corev1.PodSpec) bool {
	switch {
	case spec.AutomountServiceAccountToken != nil:
		return *spec.AutomountServiceAccountToken
	case account.AutomountServiceAccountToken != nil:
		return *account.AutomountServiceAccountToken
	default:
		return true
	}
}

const (
	// defaultTries is how often the default account is read: the controller may not have created it yet in a new namespace.
	defaultTries = 10
	// minRetryInterval is the shortest time between two reads, and twice it the longest.
	minRetryInterval = 100 * time.Millisecond
)

// account returns a service account of the write's namespace, from the store if the cache does not have it: it may be new.
func (p *plugin) account(ctx context.Context, a *admission.Attributes, name string) (*corev1.ServiceAccount, error) {
	if account, ok := p.objects.Get(accounts, a.Namespace, name).(*corev1.ServiceAccount); ok {
		return account, nil
	}
	account, err := p.readAccount(ctx, a.Namespace, name)
	if err != nil {
		return nil, a.Forbidden(fmt.Errorf("error looking up service account %s/%s: %w", a.Namespace, name, err))
	}
	return account, nil
}

// readAccount reads a service account from the store, the default account with retries.
func (p *plugin) readAccount(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	tries := 1
	if name == defaultAccount {
		tries = defaultTries
	}
	interval := minRetryInterval + rand.N(minRetryInterval) // jitter, so that pods that wait together do not read together
	for try := range tries {
		if try > 0 {
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		obj, err := p.objects.Fresh(ctx, accounts, namespace, name)
		if account, ok := obj.(*corev1.ServiceAccount); ok && err == nil {
			return account, nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, err
		}
	}
	return nil, apierrors.NewNotFound(corev1.Resource("serviceaccount"), name)
}

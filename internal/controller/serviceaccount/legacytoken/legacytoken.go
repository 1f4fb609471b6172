package legacytoken

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/controller"
)

const (
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	trackingMap  = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey     = "since"

	// cleanUpPeriod is how long a token is unused before it is labelled, and labelled before it is deleted: upstream's
	// --legacy-service-account-token-clean-up-period.
	cleanUpPeriod = 365 * 24 * time.Hour
	// checkPeriod is how often a token is checked.
	checkPeriod = 24 * time.Hour
)

// NewCleaner returns the loop. Its keys are the Secrets that hold tokens of service accounts.
func NewCleaner(deps controller.Deps) controller.Loop {
	core := deps.Informers.Core().V1()
	secrets, accounts, pods, configMaps := core.Secrets(), core.ServiceAccounts().Lister(), core.Pods().Lister(), core.ConfigMaps().Lister()
	lister := secrets.Lister()
	watchOnly := func(before, after metav1.Object) []controller.Key { return nil }
	return controller.Loop{
		Name: "legacy-serviceaccount-token-cleaner-controller", ServiceAccount: "legacy-service-account-token-cleaner", Workers: 1,
		Watch: []controller.Watch{
			{Informer: secrets.Informer(), Type: &corev1.Secret{}, Keys: tokensOf},
			{Informer: core.ServiceAccounts().Informer(), Keys: watchOnly},
			{Informer: core.Pods().Informer(), Keys: watchOnly},
			{Informer: core.ConfigMaps().Informer(), Keys: watchOnly},
		},
		Reconcile: func(key controller.Key, now time.Time) controller.Decision {
			secret, err := lister.Secrets(key.Namespace).Get(key.Name)
			if err != nil {
				return controller.Nothing
			}
			o := observed{secret: secret}
			if o.account, err = accounts.ServiceAccounts(key.Namespace).Get(secret.Annotations[corev1.ServiceAccountNameKey]); err != nil {
				return controller.Decision{RequeueAfter: checkPeriod} // the token goes with its account
			}
			if o.tracking, err = configMaps.ConfigMaps(metav1.NamespaceSystem).Get(trackingMap); err != nil {
				o.tracking = nil
			}
			o.pods = func() ([]*corev1.Pod, error) { return pods.Pods(key.Namespace).List(labels.Everything()) }
			return decide(o, now)
		},
	}
}

func tokensOf(before, after metav1.Object) []controller.Key {
	if secret, ok := after.(*corev1.Secret); ok && secret.Type == corev1.SecretTypeServiceAccountToken {
		return []controller.Key{controller.KeyOf(secret)}
	}
	return nil
}

// observed is what the decision about a token follows from.
type observed struct {
	secret   *corev1.Secret
	account  *corev1.ServiceAccount
	tracking *corev1.ConfigMap // says since when uses are recorded; nil if it is missing
	pods     func() ([]*corev1.Pod, error)
}

// decide labels a token that was generated and is not used, and deletes one that has been labelled for long enough.
func decide(o observed, now time.Time) controller.Decision {
	later := controller.Decision{RequeueAfter: checkPeriod}
	if o.secret.DeletionTimestamp != nil {
		return controller.Nothing
	}
	if uid := o.secret.Annotations[corev1.ServiceAccountUIDKey]; uid != "" && uid != string(o.account.UID) || !generated(o) {
		return later
	}
	before := now.UTC().Add(-cleanUpPeriod)
	if !o.secret.CreationTimestamp.Time.Before(before) || !trackedBefore(o.tracking, before) {
		return later
	}
	if used, labelled := o.secret.Labels[lastUsed]; labelled && !dayBefore(used, before) {
		return later
	}
	pods, err := o.pods()
	if err != nil || slices.ContainsFunc(pods, mentions(o.secret.Name)) {
		return controller.Decision{Err: err, RequeueAfter: checkPeriod}
	}
	since := o.secret.Labels[invalidSince]
	if _, err := time.Parse(time.DateOnly, since); err != nil {
		patch := `{"metadata":{"uid":` + strconv.Quote(string(o.secret.UID)) + `,"labels":{"` + invalidSince + `":"` + now.UTC().Format(time.DateOnly) + `"}}}`
		return controller.Decision{Actions: []controller.Action{controller.Patch(o.secret, "", types.MergePatchType, []byte(patch))}, RequeueAfter: checkPeriod}
	}
	if !dayBefore(since, before) {
		return later
	}
	// The precondition is exactly this version: in a newer one the label may be gone.
	uid, version := o.secret.UID, o.secret.ResourceVersion
	return controller.Decision{Actions: []controller.Action{controller.Delete(o.secret, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}})}}
}

// generated reports whether the control plane made the token: its account names it.
func generated(o observed) bool {
	return slices.ContainsFunc(o.account.Secrets, func(ref corev1.ObjectReference) bool { return ref.Name == o.secret.Name })
}

// dayBefore reports whether a day is before that of a time. A day that cannot be read is not.
func dayBefore(day string, t time.Time) bool {
	_, err := time.Parse(time.DateOnly, day)
	return err == nil && day < t.Format(time.DateOnly)
}

// trackedBefore reports whether uses were recorded from before a time on: the day in the ConfigMap is the first, so that all of the next one counts.
func trackedBefore(tracking *corev1.ConfigMap, t time.Time) bool {
	if tracking == nil {
		return false
	}
	since, err := time.Parse(time.DateOnly, tracking.Data[sinceKey])
	return err == nil && !t.Before(since.AddDate(0, 0, 1))
}

// mentions returns whether a pod's spec has a name anywhere: Secrets are named in many places, and a token that is kept needlessly does no harm.
func mentions(name string) func(*corev1.Pod) bool {
	quoted := []byte(strconv.Quote(name))
	return func(pod *corev1.Pod) bool {
		spec, err := json.Marshal(pod.Spec)
		return err != nil || bytes.Contains(spec, quoted)
	}
}

package podsecurity

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/objects"
	"skiff/internal/catalog"
)

// Name is the plugin's name in flags and in configuration files.
const Name = "PodSecurity"

// New returns the plugin. Its metrics are registered unless the registerer is nil.
func New(r objects.Reader, config Config, registerer prometheus.Registerer) admission.Plugin {
	p := &plugin{objects: r, config: config, evaluator: sync.OnceValue(newEvaluator), metrics: newMetrics(), maxPods: maxPodsToCheck, maxTime: maxTimeToCheck}
	if registerer != nil {
		p.metrics.register(registerer)
	}
	return p
}

// newEvaluator returns a table of all checks of all versions. It costs a fraction of a millisecond and 200 KB, so it is made when the first namespace needs it.
func newEvaluator() policy.Evaluator {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(fmt.Sprintf("the checks of k8s.io/pod-security-admission are invalid: %v", err)) // they are constants of the library
	}
	return evaluator
}

type plugin struct {
	objects   objects.Reader
	config    Config
	evaluator func() policy.Evaluator
	metrics   *metrics
	maxPods   int
	maxTime   time.Duration
}

var (
	namespaces = corev1.Resource("namespaces")
	pods       = corev1.Resource("pods")

	// workloads are the resources that have a pod template.
	workloads = map[schema.GroupResource]bool{
		corev1.Resource("replicationcontrollers"): true,
		corev1.Resource("podtemplates"):           true,
		appsv1.Resource("replicasets"):            true,
		appsv1.Resource("deployments"):            true,
		appsv1.Resource("statefulsets"):           true,
		appsv1.Resource("daemonsets"):             true,
		batchv1.Resource("jobs"):                  true,
		batchv1.Resource("cronjobs"):              true,
	}

	// ignoredSubresources of pods do not change the spec. Any other subresource must have a pod as its object.
	ignoredSubresources = map[string]bool{"exec": true, "attach": true, "binding": true, "eviction": true, "log": true, "portforward": true, "proxy": true, "status": true}
)

func (*plugin) Name() string { return Name }

// Handles reports whether the write creates or updates a pod, through a subresource too if it changes the spec, a workload or a namespace.
func (*plugin) Handles(a *admission.Attributes) bool {
	switch {
	case a.Operation != admission.Create && a.Operation != admission.Update:
		return false
	case a.Is(pods):
		return !ignoredSubresources[a.Subresource]
	case a.Subresource != "":
		return false
	}
	switch a.Info.GVR.Group {
	case corev1.GroupName, appsv1.GroupName, batchv1.GroupName:
		return a.Is(namespaces) || workloads[a.Info.GVR.GroupResource()]
	}
	return false
}

// Validate refuses what violates the enforced level and warns of what violates the warn level.
func (p *plugin) Validate(ctx context.Context, a *admission.Attributes) error {
	switch {
	case a.Is(namespaces):
		return p.validateNamespace(ctx, a)
	case a.Is(pods):
		return p.validatePod(ctx, a)
	default:
		p.validateWorkload(ctx, a)
		return nil
	}
}

func (p *plugin) validatePod(ctx context.Context, a *admission.Attributes) error {
	if p.exempt(a) {
		return nil
	}
	labels, err := p.labels(ctx, a.Namespace)
	if err != nil {
		p.metrics.failed(true, a)
		return apierrors.NewInternalError(fmt.Errorf("failed to lookup namespace %q", a.Namespace))
	}
	effective, errs := api.PolicyToEvaluate(labels, p.config.defaults)
	if len(errs) == 0 && effective.FullyPrivileged() {
		p.metrics.evaluated(allow, effective.Enforce, enforce, a)
		return nil
	}
	pod, ok := a.Object.(*corev1.Pod)
	if !ok {
		p.metrics.failed(true, a)
		return apierrors.NewBadRequest("failed to decode pod")
	}
	if a.Operation == admission.Update {
		old, ok := a.Old.(*corev1.Pod)
		if !ok {
			p.metrics.failed(true, a)
			return apierrors.NewBadRequest("failed to decode old pod")
		}
		if !significant(pod, old) {
			return nil
		}
	}
	return p.evaluate(a, effective, len(errs) > 0, &pod.ObjectMeta, &pod.Spec, true)
}

// validateWorkload warns of a pod template that violates the warn level. It never refuses the workload itself.
func (p *plugin) validateWorkload(ctx context.Context, a *admission.Attributes) {
	if p.exempt(a) {
		return
	}
	labels, err := p.labels(ctx, a.Namespace)
	if err != nil {
		p.metrics.failed(true, a)
		return
	}
	effective, errs := api.PolicyToEvaluate(labels, p.config.defaults)
	if len(errs) == 0 && effective.Warn.Level == api.LevelPrivileged && effective.Audit.Level == api.LevelPrivileged {
		return
	}
	template, ok := templateOf(a.Object)
	if !ok {
		p.metrics.failed(true, a)
		return
	}
	if template != nil {
		_ = p.evaluate(a, effective, len(errs) > 0, &template.ObjectMeta, &template.Spec, false) // without enforcement there is no refusal
	}
}

// exempt reports whether the namespace or the user is exempt, and counts the exemption.
func (p *plugin) exempt(a *admission.Attributes) bool {
	if !p.config.namespaces[a.Namespace] && !p.config.usernames[a.User.Username] {
		return false
	}
	p.metrics.exempted(a)
	return true
}

// labels returns the labels of a namespace, from the store if the cache does not have it: it may be new.
func (p *plugin) labels(ctx context.Context, name string) (map[string]string, error) {
	obj := p.objects.Get(namespaces, "", name)
	if obj == nil {
		var err error
		if obj, err = p.objects.Fresh(ctx, namespaces, "", name); err != nil {
			return nil, err
		}
	}
	return obj.GetLabels(), nil
}

// evaluate warns of a pod that violates the warn level and, if enforced is set, refuses one that violates the enforced level.
func (p *plugin) evaluate(a *admission.Attributes, effective api.Policy, badLabels bool, meta *metav1.ObjectMeta, spec *corev1.PodSpec, enforced bool) error {
	if spec.RuntimeClassName != nil && p.config.runtimeClasses[*spec.RuntimeClassName] {
		p.metrics.exempted(a)
		return nil
	}
	if badLabels {
		p.metrics.failed(false, a)
	}
	results := map[api.LevelVersion]policy.AggregateCheckResult{}
	check := func(level api.LevelVersion) policy.AggregateCheckResult {
		result, done := results[level]
		if !done {
			result = policy.AggregateCheckResults(p.evaluator().EvaluatePod(level, meta, spec))
			results[level] = result
		}
		return result
	}
	var refusal error
	if enforced {
		decision := allow
		if result := check(effective.Enforce); !result.Allowed {
			decision = deny
			refusal = apierrors.NewForbidden(a.Info.GVR.GroupResource(), a.Subject(), fmt.Errorf("violates PodSecurity %q: %s", effective.Enforce.String(), result.ForbiddenDetail()))
		}
		p.metrics.evaluated(decision, effective.Enforce, enforce, a)
	}
	if !check(effective.Audit).Allowed {
		p.metrics.evaluated(deny, effective.Audit, audit, a)
	}
	if refusal != nil {
		return refusal
	}
	if result := check(effective.Warn); !result.Allowed {
		a.Warn(fmt.Sprintf("would violate PodSecurity %q: %s", effective.Warn.String(), result.ForbiddenDetail()))
		p.metrics.evaluated(deny, effective.Warn, warn, a)
	}
	return nil
}

// templateOf returns the pod template of a workload, nil if it has none. ok is false if the object is no workload.
func templateOf(obj catalog.Object) (template *corev1.PodTemplateSpec, ok bool) {
	switch o := obj.(type) {
	case *corev1.PodTemplate:
		return &o.Template, true
	case *corev1.ReplicationController:
		return o.Spec.Template, true
	case *appsv1.ReplicaSet:
		return &o.Spec.Template, true
	case *appsv1.Deployment:
		return &o.Spec.Template, true
	case *appsv1.DaemonSet:
		return &o.Spec.Template, true
	case *appsv1.StatefulSet:
		return &o.Spec.Template, true
	case *batchv1.Job:
		return &o.Spec.Template, true
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template, true
	}
	return nil, false
}

// significant reports whether an update of a pod changes an image or adds a container. No level restricts anything else that an update may change.
func significant(pod, old *corev1.Pod) bool {
	if changedImage(pod.Spec.Containers, old.Spec.Containers) || changedImage(pod.Spec.InitContainers, old.Spec.InitContainers) {
		return true
	}
	images := make(map[string]string, len(old.Spec.EphemeralContainers))
	for i := range old.Spec.EphemeralContainers {
		images[old.Spec.EphemeralContainers[i].Name] = old.Spec.EphemeralContainers[i].Image
	}
	for i := range pod.Spec.EphemeralContainers {
		c := &pod.Spec.EphemeralContainers[i]
		if image, known := images[c.Name]; !known || image != c.Image {
			return true
		}
	}
	return false
}

func changedImage(containers, old []corev1.Container) bool {
	if len(containers) != len(old) {
		return true
	}
	for i := range containers {
		if containers[i].Image != old[i].Image {
			return true
		}
	}
	return false
}

package kubectl

import (
	"fmt"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
)

// wanted is what the flags of run say about the container, its pod and the object around it.
type wanted struct {
	image                 string
	args                  []string
	command               bool // args are the command
	env                   []corev1.EnvVar
	port, hostPort        int32             // 0 is none
	labels                map[string]string // of the object and its pods
	givenLabels           map[string]string // the user's own
	annotations           map[string]string
	requests, limits      corev1.ResourceList
	pullPolicy            corev1.PullPolicy
	serviceAccount        string
	privileged            bool
	stdin, tty, leaveOpen bool
	replicas              int32
	schedule              string
}

// texts are flags as they were given, before they are parsed.
type texts struct {
	labels, requests, limits, port, hostPort, pullPolicy string
	env, annotations                                     []string
}

// read parses the flags that are lists or numbers.
func (w *wanted) read(t texts, name string) (err error) {
	if w.givenLabels, err = parsePairs("labels", splitList(t.labels)); err != nil {
		return err
	}
	if w.labels = w.givenLabels; len(w.labels) == 0 {
		w.labels = map[string]string{"run": name}
	}
	if w.annotations, err = parsePairs("annotations", t.annotations); err != nil {
		return err
	}
	if w.env, err = parseEnv(t.env); err != nil {
		return err
	}
	if w.requests, err = parseQuantities("requests", t.requests); err != nil {
		return err
	}
	if w.limits, err = parseQuantities("limits", t.limits); err != nil {
		return err
	}
	if w.port, err = parsePort("port", t.port); err != nil {
		return err
	}
	if w.hostPort, err = parsePort("hostport", t.hostPort); err != nil {
		return err
	}
	if w.hostPort != 0 && w.port == 0 {
		return fmt.Errorf("--hostport requires --port to be specified")
	}
	switch w.pullPolicy = corev1.PullPolicy(t.pullPolicy); w.pullPolicy {
	case "", corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever:
		return nil
	}
	return fmt.Errorf("invalid image pull policy: %s, valid values are: %s, %s, %s", w.pullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}

// generate returns the object of a plan.
func (w *wanted) generate(p plan) runtime.Object {
	meta := metav1.ObjectMeta{Name: p.name, Labels: w.labels, Annotations: w.annotations}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: w.labels}, Spec: w.podSpec(p)}
	switch p.kind {
	case deployment:
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Replicas: &w.replicas, Selector: &metav1.LabelSelector{MatchLabels: w.labels}, Template: template}}
	case replicationController:
		return &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{
			Replicas: &w.replicas, Selector: w.labels, Template: &template}}
	case job:
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: template}}
	case cronJob:
		return &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: w.schedule, ConcurrencyPolicy: batchv1.AllowConcurrent,
			JobTemplate: batchv1.JobTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: w.labels}, Spec: batchv1.JobSpec{Template: template}}}}
	}
	return &corev1.Pod{ObjectMeta: meta, Spec: template.Spec}
}

func (w *wanted) podSpec(p plan) corev1.PodSpec {
	c := corev1.Container{Name: p.name, Image: w.image, Env: w.env, ImagePullPolicy: w.pullPolicy,
		Resources: corev1.ResourceRequirements{Requests: w.requests, Limits: w.limits},
		Stdin:     w.stdin, StdinOnce: w.stdin && !w.leaveOpen, TTY: w.tty}
	if w.command {
		c.Command = w.args
	} else {
		c.Args = w.args
	}
	if w.port != 0 {
		c.Ports = []corev1.ContainerPort{{ContainerPort: w.port, HostPort: w.hostPort}}
	}
	if w.privileged {
		c.SecurityContext = &corev1.SecurityContext{Privileged: &w.privileged}
	}
	return corev1.PodSpec{Containers: []corev1.Container{c}, ServiceAccountName: w.serviceAccount, DNSPolicy: corev1.DNSClusterFirst, RestartPolicy: p.restart}
}

// service returns the Service of --expose.
func (w *wanted) service(name string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: w.givenLabels}, Spec: corev1.ServiceSpec{
		Selector: w.labels,
		Ports:    []corev1.ServicePort{{Port: w.port, Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromInt32(w.port)}}}}
}

func splitList(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// parsePairs parses key=value.
func parsePairs(flag string, list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	pairs := map[string]string{}
	for _, s := range list {
		key, value, ok := strings.Cut(s, "=")
		if !ok || key == "" || flag == "labels" && strings.Contains(value, "=") {
			return nil, fmt.Errorf("unexpected --%s: %q, want key=value", flag, s)
		}
		pairs[key] = value
	}
	return pairs, nil
}

func parseEnv(list []string) ([]corev1.EnvVar, error) {
	var env []corev1.EnvVar
	for _, s := range list {
		name, value, ok := strings.Cut(s, "=")
		if !ok || len(validation.IsEnvVarName(name)) > 0 {
			return nil, fmt.Errorf("invalid env: %v", s)
		}
		env = append(env, corev1.EnvVar{Name: name, Value: value})
	}
	return env, nil
}

func parseQuantities(flag, list string) (corev1.ResourceList, error) {
	pairs, err := parsePairs(flag, splitList(list))
	if err != nil || pairs == nil {
		return nil, err
	}
	quantities := corev1.ResourceList{}
	for name, text := range pairs {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return nil, fmt.Errorf("--%s: %s=%s: %w", flag, name, text, err)
		}
		quantities[corev1.ResourceName(name)] = q
	}
	return quantities, nil
}

func parsePort(flag, text string) (int32, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("--%s must be a number", flag)
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("--%s must be between 1 and 65535, found %d", flag, n)
	}
	return int32(n), nil
}

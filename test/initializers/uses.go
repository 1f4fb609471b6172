package initializers

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	proxyName       = "proxy"
	proxyAnnotation = "example.com/proxy"
	certificates    = "test-certificates"
	// CertificatesPath is where containers have the test certificates.
	CertificatesPath = "/etc/test-certificates"
	// Certificate is what the file ca.crt there says.
	Certificate    = "a test certificate"
	certifiedLabel = "example.com/test-certificates"
	shortest       = 20
	refusal        = "must have at least 20 characters"
)

// Cluster is where the uses are shown.
type Cluster struct {
	Config  *rest.Config
	Image   string   // of all containers
	Command []string // of all containers, which must go on
	// Running waits until a pod runs; nil if pods do not.
	Running func(t *testing.T, namespace, name string)
}

func (c *Cluster) api(t *testing.T) kubernetes.Interface {
	t.Helper()
	api, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func (c *Cluster) dynamic(t *testing.T, config *rest.Config) dynamic.Interface {
	t.Helper()
	api, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return api
}

// Way is a way to do what the guide wants.
type Way interface {
	// Start makes it effective, in namespaces whose label Within has the given value if it can choose, until the test ends.
	Start(t *testing.T, c *Cluster, within string)
}

// Within is the label of the namespaces of one way.
const Within = "example.com/way"

// Show does what the guide wants in one way, and checks that it is done.
func (c *Cluster) Show(t *testing.T, name string, way Way) {
	t.Helper()
	api := c.api(t)
	plain, certified := c.namespace(t, name, nil), c.namespace(t, name+"-certified", map[string]string{certifiedLabel: "yes"})
	_, err := api.CoreV1().ConfigMaps(certified).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: certificates}, Data: map[string]string{"ca.crt": Certificate}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	way.Start(t, c, name)
	c.awaitEffect(t, plain)
	for _, one := range []struct {
		pod         *corev1.Pod
		namespace   string
		proxy, cert bool
	}{
		{c.Pod("port", 80), plain, true, false},
		{c.Pod("other-port", 8080), plain, false, false},
		{annotated(c.Pod("annotated", 0)), plain, true, false},
		{c.Pod("both", 80), certified, true, true},
		{c.Pod("certified", 0), certified, false, true},
	} {
		created, err := api.CoreV1().Pods(one.namespace).Create(t.Context(), one.pod, metav1.CreateOptions{})
		if err != nil {
			t.Errorf("%s: %v", one.pod.Name, err)
			continue
		}
		if got := hasProxy(created); got != one.proxy {
			t.Errorf("%s: has the proxy: %t", one.pod.Name, got)
		}
		if got := hasCertificates(created); got != one.cert {
			t.Errorf("%s: has the certificates: %t", one.pod.Name, got)
		}
		if c.Running != nil {
			c.Running(t, one.namespace, one.pod.Name)
		}
	}
	_, err = api.CoreV1().Secrets(plain).Create(t.Context(), secret("short", "12345"), metav1.CreateOptions{})
	if err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("a short Secret: %v", err)
	}
	if _, err := api.CoreV1().Secrets(plain).Get(t.Context(), "short", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the short Secret: %v", err)
	}
	if _, err := api.CoreV1().Secrets(plain).Create(t.Context(), secret("long", strings.Repeat("12345", 4)), metav1.CreateOptions{}); err != nil {
		t.Errorf("a long Secret: %v", err)
	}
}

// awaitEffect waits until pods get what they should: configurations take effect a moment after they were written.
func (c *Cluster) awaitEffect(t *testing.T, namespace string) {
	t.Helper()
	api, last := c.api(t), ""
	c.await(t, "the configuration to take effect", func(ctx context.Context) bool {
		pod, err := api.CoreV1().Pods(namespace).Create(ctx, c.Pod("first", 80), metav1.CreateOptions{})
		if err != nil {
			if ctx.Err() == nil && last != err.Error() {
				last = err.Error()
				t.Log(last)
			}
			return false
		}
		return api.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}) == nil && hasProxy(pod)
	})
	c.await(t, "short Secrets to be refused", func(ctx context.Context) bool {
		_, err := api.CoreV1().Secrets(namespace).Create(ctx, secret("first", "1"), metav1.CreateOptions{})
		if err == nil {
			_ = api.CoreV1().Secrets(namespace).Delete(ctx, "first", metav1.DeleteOptions{})
		}
		return err != nil && strings.Contains(err.Error(), refusal)
	})
}

func (c *Cluster) await(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// namespace makes a namespace, which is deleted when the test ends.
func (c *Cluster) namespace(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	way, _, _ := strings.Cut(name, "-certified")
	all := map[string]string{Within: way}
	for k, v := range labels {
		all[k] = v
	}
	api := c.api(t)
	if _, err := api.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: all}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = api.CoreV1().Namespaces().Delete(context.Background(), name, metav1.DeleteOptions{}) })
	return name
}

// Pod returns a pod with one container, which exposes a port unless that is 0.
func (c *Cluster) Pod(name string, port int32) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: new(int64),
		Containers: []corev1.Container{c.container("main")}}}
	if port != 0 {
		p.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: port}}
	}
	return p
}

func (c *Cluster) container(name string) corev1.Container {
	return corev1.Container{Name: name, Image: c.Image, ImagePullPolicy: corev1.PullIfNotPresent, Command: c.Command}
}

func annotated(p *corev1.Pod) *corev1.Pod {
	p.Annotations = map[string]string{proxyAnnotation: "yes"}
	return p
}

func secret(name, password string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"password": password}}
}

func hasProxy(p *corev1.Pod) bool {
	for _, c := range p.Spec.Containers {
		if c.Name == proxyName {
			return true
		}
	}
	return false
}

// hasCertificates reports whether all containers of a pod but the proxy have the certificates.
func hasCertificates(p *corev1.Pod) bool {
	for _, c := range p.Spec.Containers {
		mounted := false
		for _, m := range c.VolumeMounts {
			mounted = mounted || m.Name == certificates && m.MountPath == CertificatesPath
		}
		if !mounted && c.Name != proxyName {
			return false
		}
	}
	for _, v := range p.Spec.Volumes {
		if v.Name == certificates && v.ConfigMap != nil && v.ConfigMap.Name == certificates {
			return true
		}
	}
	return false
}

// wantsProxy reports whether a pod exposes port 80 or has the annotation.
func wantsProxy(p *corev1.Pod) bool {
	if _, ok := p.Annotations[proxyAnnotation]; ok {
		return true
	}
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.ContainerPort == 80 {
				return true
			}
		}
	}
	return false
}

// inject changes a pod as the first two uses want.
func (c *Cluster) inject(p *corev1.Pod, certified bool) {
	if certified && !hasCertificates(p) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: certificates, VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: certificates}}}})
		for i := range p.Spec.Containers {
			p.Spec.Containers[i].VolumeMounts = append(p.Spec.Containers[i].VolumeMounts, corev1.VolumeMount{Name: certificates, MountPath: CertificatesPath})
		}
	}
	if wantsProxy(p) && !hasProxy(p) {
		p.Spec.Containers = append(p.Spec.Containers, c.container(proxyName))
	}
}

// tooShort returns why a Secret is refused; empty if it is not.
func tooShort(s *corev1.Secret) string {
	for key, value := range s.Data {
		if len(value) < shortest {
			return key + ": " + refusal
		}
	}
	return ""
}

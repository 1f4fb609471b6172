package environment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestExpand(t *testing.T) {
	known := lookup(map[string]string{"VAR": "value", "EMPTY": "", "REF": "$(VAR)", "A.b-c": "odd"}, map[string]string{"VAR": "hidden", "SECOND": "2"})
	for text, want := range map[string]string{
		"":                     "",
		"plain":                "plain",
		"$(VAR)":               "value",
		"-$(VAR)-$(VAR)-":      "-value-value-",
		"$(SECOND)":            "2",
		"$(EMPTY)":             "",
		"$(REF)":               "$(VAR)",
		"$(A.b-c)":             "odd",
		"$(NONE)":              "$(NONE)",
		"$$(VAR)":              "$(VAR)",
		"$$$(VAR)":             "$value",
		"$$$$(VAR)":            "$$(VAR)",
		"$$":                   "$",
		"$":                    "$",
		"a$":                   "a$",
		"$VAR":                 "$VAR",
		"$(VAR":                "$(VAR",
		"$(VAR$(VAR)":          "$(VAR$(VAR)",
		"$()":                  "$()",
		"$(VAR)$":              "value$",
		"$)$(VAR)":             "$)value",
		"foo$(VAR))":           "foovalue)",
		"$((VAR))":             "$((VAR))",
		"$é$(VAR)":             "$évalue",
		"\n$(VAR)\x00":         "\nvalue\x00",
		"$(VAR)_$(NONE)_$$(A)": "value_$(NONE)_$(A)",
	} {
		if got := Expand(text, known); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestCommand(t *testing.T) {
	command, args := Command(&corev1.Container{Command: []string{"sh", "-c", "$(A) $(B)"}, Args: []string{"$$(A)", "$(A)"}},
		[]*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}})
	if fmt.Sprintf("%q %q", command, args) != `["sh" "-c" "1 $(B)"] ["$(A)" "1"]` {
		t.Errorf("%q %q", command, args)
	}
	if command, args := Command(&corev1.Container{}, nil); command != nil || args != nil {
		t.Errorf("no command became %q %q", command, args)
	}
}

// stored is a Source of what a test puts into it.
type stored struct {
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
	asked      []string
}

func (o *stored) ConfigMap(_ context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	o.asked = append(o.asked, namespace+"/"+name)
	if m, ok := o.configMaps[name]; ok {
		return m, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "configmaps"}, name)
}

func (o *stored) Secret(_ context.Context, namespace, name string) (*corev1.Secret, error) {
	o.asked = append(o.asked, namespace+"/"+name)
	if name == "forbidden" {
		return nil, errors.New("forbidden")
	}
	if s, ok := o.secrets[name]; ok {
		return s, nil
	}
	return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, name)
}

func ptr[T any](v T) *T { return &v }

func newInput() Input {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Labels: map[string]string{"b": "2", "a": "1"}, Annotations: map[string]string{"x/Y": "note"}},
		Spec: corev1.PodSpec{NodeName: "node-1", ServiceAccountName: "robot", EnableServiceLinks: ptr(false), Containers: []corev1.Container{{Name: "c"}}}}
	return Input{Pod: pod, Container: &pod.Spec.Containers[0], PodIPs: []string{"10.0.0.7"}, Node: Node{IPs: []string{"192.168.0.1", "fd00::1"},
		Allocatable: corev1.ResourceList{"cpu": resource.MustParse("4"), "memory": resource.MustParse("8Gi"), "ephemeral-storage": resource.MustParse("100Gi")}},
		Source: &stored{configMaps: map[string]*corev1.ConfigMap{"cm": {Data: map[string]string{"B": "cm-b", "A": "cm-a", "file.txt": "dotted"}}},
			secrets: map[string]*corev1.Secret{"s": {Data: map[string][]byte{"A": []byte("secret-a"), "raw": {0xff, 0xfe}}}}}}
}

// text returns a container's environment in one line.
func text(variables []*runtimeapi.KeyValue) string {
	var words []string
	for _, v := range variables {
		words = append(words, fmt.Sprintf("%s=%s", v.Key, v.Value))
	}
	return strings.Join(words, " ")
}

func check(t *testing.T, in Input, want string) {
	t.Helper()
	got, err := Variables(context.Background(), in)
	if err != nil {
		t.Fatal(err)
	}
	if text(got) != want {
		t.Errorf("the environment is\n%s, want\n%s", text(got), want)
	}
}

func fails(t *testing.T, in Input, want string) {
	t.Helper()
	if _, err := Variables(context.Background(), in); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func configMapKey(name, key string, optional *bool) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func secretKey(name, key string, optional *bool) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}}
}

func TestDeclaredVariables(t *testing.T) {
	in := newInput()
	in.Container.Env = []corev1.EnvVar{{Name: "Z", Value: "z"}, {Name: "A", Value: "$(Z)$(LATER)"}, {Name: "LATER", Value: "x"}, {Name: "EMPTY"}, {Name: "Z", Value: "again $(Z)"}, {Name: "ESC", Value: "$$(Z)"}}
	check(t, in, "Z=again z A=z$(LATER) LATER=x EMPTY= ESC=$(Z)")
}

func TestKeysOfObjects(t *testing.T) {
	in := newInput()
	in.Container.Env = []corev1.EnvVar{{Name: "CM", ValueFrom: configMapKey("cm", "A", nil)}, {Name: "S", ValueFrom: secretKey("s", "A", nil)},
		{Name: "RAW", ValueFrom: secretKey("s", "raw", nil)}, {Name: "BOTH", Value: "$(CM)/$(S)"},
		{Name: "NO1", ValueFrom: configMapKey("cm", "none", ptr(true))}, {Name: "NO2", ValueFrom: configMapKey("none", "x", ptr(true))},
		{Name: "NO3", ValueFrom: secretKey("s", "none", ptr(true))}, {Name: "NO4", ValueFrom: secretKey("none", "x", ptr(true))}}
	check(t, in, "CM=cm-a S=secret-a RAW=\xff\xfe BOTH=cm-a/secret-a")
	if asked := in.Source.(*stored).asked; fmt.Sprint(asked) != "[n/cm n/s n/none n/none]" {
		t.Errorf("asked for %v", asked)
	}
	one := func(from *corev1.EnvVarSource) Input {
		in := newInput()
		in.Container.Env = []corev1.EnvVar{{Name: "V", ValueFrom: from}}
		return in
	}
	fails(t, one(configMapKey("cm", "none", nil)), "couldn't find key none in ConfigMap n/cm")
	fails(t, one(secretKey("s", "none", nil)), "couldn't find key none in Secret n/s")
	fails(t, one(configMapKey("none", "x", nil)), `configmaps "none" not found`)
	fails(t, one(secretKey("none", "x", ptr(false))), `secrets "none" not found`)
	fails(t, one(secretKey("forbidden", "x", ptr(true))), "forbidden")
}

func TestWholeObjects(t *testing.T) {
	in := newInput()
	ref := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	in.Container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("cm")}},
		{Prefix: "P_", SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s")}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("s")}},
		{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("none"), Optional: ptr(true)}},
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none"), Optional: ptr(true)}}}
	in.Container.Env = []corev1.EnvVar{{Name: "B", Value: "own"}, {Name: "NEW", Value: "$(A)-$(P_A)"}}
	check(t, in, "A=secret-a B=own P_A=secret-a P_raw=\xff\xfe file.txt=dotted raw=\xff\xfe NEW=secret-a-secret-a")
	in = newInput()
	in.Container.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref("none")}}}
	fails(t, in, `configmaps "none" not found`)
	in.Container.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref("none")}}}
	fails(t, in, `secrets "none" not found`)
}

func TestFields(t *testing.T) {
	for path, want := range map[string]string{"metadata.name": "p", "metadata.namespace": "n", "metadata.uid": "u", "metadata.labels": "a=\"1\"\nb=\"2\"", "metadata.labels['b']": "2",
		"metadata.labels['none']": "", "metadata.annotations['x/Y']": "note", "spec.nodeName": "node-1", "spec.serviceAccountName": "robot", "status.hostIP": "192.168.0.1",
		"status.hostIPs": "192.168.0.1,fd00::1", "status.podIP": "10.0.0.7", "status.podIPs": "10.0.0.7,fd00::7"} {
		in := newInput()
		in.PodIPs = []string{"fd00::7", "10.0.0.7", "10.0.0.8"}
		in.Container.Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}}
		check(t, in, "V="+want)
	}
	for path, want := range map[string]string{"spec.containers": "unsupported fieldPath: spec.containers", "metadata.name['x']": `fieldPath "metadata.name['x']" does not support subscript`,
		"metadata.labels['not a key']": "invalid key subscript in metadata.labels['not a key']: "} {
		in := newInput()
		in.Container.Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}}
		if _, err := Variables(context.Background(), in); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	in := newInput()
	in.PodIPs, in.Node.IPs = nil, nil
	in.Container.Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "status.podIP"}}}}
	check(t, in, "V=")
	in.Container.Env[0].ValueFrom.FieldRef.FieldPath = "status.hostIP"
	fails(t, in, "the address of node node-1 is not known yet")
	in.Container.Env[0].ValueFrom.FieldRef.APIVersion = "v2"
	fails(t, in, "unsupported pod version: v2")
}

func TestSortIPs(t *testing.T) {
	for _, c := range []struct{ node, ips, want string }{{"10.0.0.1", "fd00::1 10.0.0.2 10.0.0.3", "10.0.0.2 fd00::1"}, {"fd00::9", "10.0.0.2 fd00::1", "fd00::1 10.0.0.2"},
		{"", "fd00::1 10.0.0.2", "10.0.0.2 fd00::1"}, {"10.0.0.1", "fd00::1", "fd00::1"}, {"10.0.0.1", "", ""}, {"10.0.0.1", "nonsense ::ffff:10.0.0.2", "10.0.0.2"}} {
		if got := strings.Join(Node{IPs: strings.Fields(c.node)}.SortIPs(strings.Fields(c.ips)), " "); got != c.want {
			t.Errorf("on %q %q become %q, want %q", c.node, c.ips, got, c.want)
		}
	}
}

func TestResources(t *testing.T) {
	in := newInput()
	in.Container.Resources = corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("250m"), "hugepages-2Mi": resource.MustParse("4Mi")},
		Limits: corev1.ResourceList{"memory": resource.MustParse("100Mi"), "hugepages-2Mi": resource.MustParse("4Mi")}}
	in.Pod.Spec.Containers = append(in.Pod.Spec.Containers, corev1.Container{Name: "other", Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("1500m")}}})
	in.Pod.Spec.InitContainers = []corev1.Container{{Name: "init"}}
	in.Container = &in.Pod.Spec.Containers[0]
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"", "requests.cpu", "", "1"}, {"", "requests.cpu", "1m", "250"}, {"", "limits.cpu", "", "4"}, {"", "limits.memory", "", "104857600"}, {"", "limits.memory", "1Mi", "100"},
		{"", "limits.memory", "1Gi", "1"}, {"", "requests.memory", "", "0"}, {"", "limits.ephemeral-storage", "1Gi", "100"}, {"", "requests.ephemeral-storage", "", "0"},
		{"", "limits.hugepages-2Mi", "1Mi", "4"}, {"", "requests.hugepages-2Mi", "", "4194304"}, {"other", "limits.cpu", "1m", "1500"}, {"other", "limits.cpu", "", "2"},
		{"other", "limits.memory", "1Gi", "8"}, {"init", "limits.cpu", "", "0"},
	} {
		d := resource.Quantity{}
		if c.divisor != "" {
			d = resource.MustParse(c.divisor)
		}
		in.Container.Env = []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource, Divisor: d}}}}
		got, err := Variables(context.Background(), in)
		if err != nil || text(got) != "V="+c.want {
			t.Errorf("%s of %q in %s: %s %v, want %s", c.resource, c.container, c.divisor, text(got), err, c.want)
		}
	}
	ref := in.Container.Env[0].ValueFrom.ResourceFieldRef
	ref.ContainerName = "none"
	fails(t, in, "container none not found")
	for _, name := range []string{"limits.storage", "cpu", "status.cpu", "limits."} {
		ref.ContainerName, ref.Resource = "", name
		fails(t, in, "unsupported container resource : "+name)
	}
	// The pod's own limits come before the node's.
	in.Pod.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"cpu": resource.MustParse("3")}}
	ref.Resource = "limits.cpu"
	check(t, in, "V=3")
	if got, err := Resource(&corev1.ResourceFieldSelector{ContainerName: "init", Resource: "limits.cpu"}, in.Pod, in.Node.Allocatable); got != "4" || err != nil {
		t.Errorf("in a volume: %s %v", got, err)
	}
	if _, err := Resource(&corev1.ResourceFieldSelector{ContainerName: "none", Resource: "limits.cpu"}, in.Pod, in.Node.Allocatable); err == nil {
		t.Error("a container that does not exist")
	}
}

func service(namespace, name, ip string, ports ...corev1.ServicePort) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{ClusterIP: ip, Ports: ports}}
}

func TestServices(t *testing.T) {
	in := newInput()
	in.Services = []*corev1.Service{service("default", "kubernetes", "10.43.0.1", corev1.ServicePort{Name: "https", Port: 443}), service("default", "other", "10.43.0.9", corev1.ServicePort{Port: 1}),
		service("n", "my-web", "fd00::5", corev1.ServicePort{Name: "http-main", Port: 80}, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP}),
		service("n", "headless", "None", corev1.ServicePort{Port: 1}), service("n", "pending", "", corev1.ServicePort{Port: 1}), service("n", "external", "")}
	api := "KUBERNETES_PORT=tcp://10.43.0.1:443 KUBERNETES_PORT_443_TCP=tcp://10.43.0.1:443 KUBERNETES_PORT_443_TCP_ADDR=10.43.0.1 KUBERNETES_PORT_443_TCP_PORT=443 " +
		"KUBERNETES_PORT_443_TCP_PROTO=tcp KUBERNETES_SERVICE_HOST=10.43.0.1 KUBERNETES_SERVICE_PORT=443 KUBERNETES_SERVICE_PORT_HTTPS=443"
	check(t, in, api)
	in.Pod.Spec.EnableServiceLinks = ptr(true)
	web := " MY_WEB_PORT=tcp://[fd00::5]:80 MY_WEB_PORT_53_UDP=udp://[fd00::5]:53 MY_WEB_PORT_53_UDP_ADDR=fd00::5 MY_WEB_PORT_53_UDP_PORT=53 MY_WEB_PORT_53_UDP_PROTO=udp " +
		"MY_WEB_PORT_80_TCP=tcp://[fd00::5]:80 MY_WEB_PORT_80_TCP_ADDR=fd00::5 MY_WEB_PORT_80_TCP_PORT=80 MY_WEB_PORT_80_TCP_PROTO=tcp MY_WEB_SERVICE_HOST=fd00::5 " +
		"MY_WEB_SERVICE_PORT=80 MY_WEB_SERVICE_PORT_DNS=53 MY_WEB_SERVICE_PORT_HTTP_MAIN=80"
	check(t, in, api+web)
	in.Container.Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "localhost"}, {Name: "URL", Value: "$(MY_WEB_PORT) $(KUBERNETES_SERVICE_HOST)"}}
	check(t, in, "KUBERNETES_SERVICE_HOST=localhost URL=tcp://[fd00::5]:80 localhost "+strings.Replace(api, "KUBERNETES_SERVICE_HOST=10.43.0.1 ", "", 1)+web)
	in.Container.Env = nil
	in.Services = []*corev1.Service{service("n", "kubernetes", "10.43.0.77", corev1.ServicePort{Port: 1}), in.Services[0]}
	own, err := Variables(context.Background(), in)
	if err != nil || byName(own)["KUBERNETES_SERVICE_HOST"] != "10.43.0.77" {
		t.Errorf("a namespace's own service of that name: %s %v", text(own), err)
	}
	in.Pod.Spec.EnableServiceLinks = nil
	fails(t, in, "nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
}

func TestFileKeys(t *testing.T) {
	dir := t.TempDir()
	outside := filepath.Join(t.TempDir(), "outside")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "env"), []byte("# made by init\n\nA='1'\n  B='two\nlines' # really\nEMPTY=''\nC= 'lost'\n"), 0o600),
		os.WriteFile(outside, []byte("A='secret'"), 0o600), os.Symlink(outside, filepath.Join(dir, "link")), os.Mkdir(filepath.Join(dir, "sub"), 0o700),
		os.WriteFile(filepath.Join(dir, "big"), make([]byte, maxEnvFile+1), 0o600)); err != nil {
		t.Fatal(err)
	}
	in := newInput()
	in.VolumePath = func(volume string) (string, error) {
		if volume != "v" {
			return "", errors.New("not ready")
		}
		return dir, nil
	}
	from := func(path, key string, optional *bool) Input {
		in := in
		in.Container = &corev1.Container{Env: []corev1.EnvVar{{Name: "V", ValueFrom: &corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "v", Path: path, Key: key, Optional: optional}}}}}
		return in
	}
	check(t, from("env", "A", nil), "V=1")
	check(t, from("env", "B", nil), "V=two\nlines")
	check(t, from("env", "D", ptr(true)), "")
	fails(t, from("env", "D", nil), `environment variable key "D" not found in file "env"`)
	fails(t, from("env", "C", nil), `environment variable key "C" not found in file "env"`)
	for _, path := range []string{"link", "../outside", "none", "sub", "big"} {
		if got, err := Variables(context.Background(), from(path, "A", ptr(true))); err == nil || !strings.HasPrefix(err.Error(), "couldn't parse env file: ") {
			t.Errorf("%s: %s %v", path, text(got), err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	readWhileReplaced(t, dir, from)
	bad := from("env", "A", nil)
	bad.Container.Env[0].ValueFrom.FileKeyRef.VolumeName = "w"
	fails(t, bad, `cannot find the volume "w" referenced by FileKeyRef: not ready`)
	for content, want := range map[string]string{"A": "missing '='", "='1'": "empty variable name", "A ='1'": "whitespace before '=' is not allowed", "A=1": "value must be enclosed in single quotes",
		"A='1' x": "unexpected content after closing quote", "\nA='1": "unclosed single quote", "A=\"1\"": "value must be enclosed in single quotes"} {
		if _, err := parseEnvFile([]byte(content), "Z"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
	if v, err := parseEnvFile([]byte("A='1'\r\nB='2'\r\n"), "B"); v != "2" || err != nil {
		t.Errorf("%q %v", v, err)
	}
}

// readWhileReplaced reads a variable from a file that becomes a FIFO and a file again all the time.
func readWhileReplaced(t *testing.T, dir string, from func(path, key string, optional *bool) Input) {
	t.Helper()
	read := make(chan struct{})
	go func() {
		defer close(read)
		for range 20000 {
			_, _ = Variables(context.Background(), from("swapped", "A", nil)) // an error whenever it is the FIFO
		}
	}()
	deadline := time.Now().Add(60 * time.Second)
	for i := 0; ; i++ {
		select {
		case <-read:
			return
		default:
			if time.Now().After(deadline) {
				t.Fatal("reading a file of variables blocks")
			}
		}
		next := filepath.Join(dir, "next")
		if err := errors.Join(os.Link(filepath.Join(dir, []string{"fifo", "env"}[i%2]), next), os.Rename(next, filepath.Join(dir, "swapped"))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExpandSubPath(t *testing.T) {
	env := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("1")}, {Key: "E"}}
	if got, err := ExpandSubPath("x/$(A)/$$(A)", env); got != "x/1/$(A)" || err != nil {
		t.Errorf("%s %v", got, err)
	}
	if _, err := ExpandSubPath("$(Z)/$(E)/$(A)/$(Z)", env); err == nil || err.Error() != "missing value for E, Z" {
		t.Errorf("%v", err)
	}
}

package main

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"skiff/internal/http2"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "file to write for kbench")
	burst      = flag.Int("burst", 200, "after how many changes events are sent")
	objects    = flag.Int("objects", 3000, "how many pods a list has")
	streams    = flag.Int("streams", 0, "how many watchers a connection may have; as many as skiff's if 0")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "floor:", err)
		os.Exit(1)
	}
}

func run() error {
	config, err := selfSigned()
	if err != nil {
		return err
	}
	answers, err := encoded()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"f","contexts":[{"name":"f","context":{"cluster":"f","user":"f"}}],"users":[{"name":"f","user":{}}],`+
		`"clusters":[{"name":"f","cluster":{"server":"https://%s","insecure-skip-tls-verify":true}}]}`, listener.Addr())
	if err := os.WriteFile(*kubeconfig, []byte(text), 0o600); err != nil {
		return err
	}
	server := &http.Server{Handler: &sender{answers: answers, next: make(chan struct{})}, TLSConfig: config, ReadHeaderTimeout: time.Minute}
	return http2.Serve(server, listener, http2.Options{MaxStreams: *streams})
}

func selfSigned() (*tls.Config, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, err
}

// watched returns the pod that kbench changes, as a server would return it.
func watched() *corev1.Pod {
	fields := func(names string) *metav1.FieldsV1 { return &metav1.FieldsV1{Raw: []byte(names)} }
	now, seconds, no := metav1.Now(), int64(30), false
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "watched", Namespace: "kbench", UID: "26b4ea4b-8b4c-4c61-b4f5-9f8d6ff2a0de", ResourceVersion: "123456", CreationTimestamp: now,
			Labels:      map[string]string{"app": "kbench", "tier": "web", "group": "d"},
			Annotations: map[string]string{"note": strings.Repeat("a realistic annotation ", 10), "sent": now.Format(time.RFC3339Nano)},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kbench", Operation: "Update", APIVersion: "v1", Time: &now, FieldsType: "FieldsV1", FieldsV1: fields(
				`{"f:metadata":{"f:annotations":{".":{},"f:note":{},"f:sent":{}},"f:labels":{".":{},"f:app":{},"f:group":{},"f:tier":{}}},"f:spec":{"f:automountServiceAccountToken":{},"f:containers":{"k:{\"name\":\"web\"}":{".":{},"f:env":{".":{},"k:{\"name\":\"A\"}":{".":{},"f:name":{},"f:value":{}},"k:{\"name\":\"B\"}":{".":{},"f:name":{},"f:value":{}}},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":8080,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{".":{},"f:requests":{".":{},"f:cpu":{},"f:memory":{}}},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`)}}},
		Spec: corev1.PodSpec{SchedulerName: "nobody", AutomountServiceAccountToken: &no, RestartPolicy: "Always", DNSPolicy: "ClusterFirst", TerminationGracePeriodSeconds: &seconds,
			SecurityContext: &corev1.PodSecurityContext{}, ServiceAccountName: "default", DeprecatedServiceAccount: "default",
			Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds}, {Key: "node.kubernetes.io/unreachable", Operator: "Exists", Effect: "NoExecute", TolerationSeconds: &seconds}},
			Containers: []corev1.Container{{Name: "web", Image: "registry.example/web:1.0", ImagePullPolicy: "IfNotPresent", TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: "File",
				Ports: []corev1.ContainerPort{{ContainerPort: 8080, Protocol: "TCP"}}, Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"), "memory": resource.MustParse("128Mi")}}}}},
		Status: corev1.PodStatus{Phase: "Pending", QOSClass: "Burstable"},
	}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	return pod
}

// answers holds all responses, encoded.
type answers struct {
	pod, list, zipped, json, table []byte
	events                         []byte // the events of one burst
}

func encoded() (*answers, error) {
	pod := watched()
	list := &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: "123456"}, Items: slices.Repeat([]corev1.Pod{*pod}, *objects)}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: "Table", APIVersion: "meta.k8s.io/v1"}, ColumnDefinitions: make([]metav1.TableColumnDefinition, 9)}
	row := metav1.TableRow{Cells: []any{"watched", "0/1", "Pending", 0, "1s", "<none>", "<none>", "<none>", "<none>"}, Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: pod.ObjectMeta}}}
	table.Rows = slices.Repeat([]metav1.TableRow{row}, *objects)

	var a answers
	serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	for _, step := range []func() error{
		func() (err error) { a.pod, err = runtime.Encode(serializer, pod); return },
		func() (err error) { a.list, err = runtime.Encode(serializer, list); return },
		func() (err error) { a.zipped, err = zip(a.list); return },
		func() (err error) { a.json, err = json.Marshal(list); return },
		func() (err error) { a.table, err = json.Marshal(table); return },
		func() (err error) { a.events, err = events(a.pod); return },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &a, nil
}

func zip(b []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(b); err != nil {
		return nil, err
	}
	err = w.Close()
	return zipped.Bytes(), err
}

func events(object []byte) ([]byte, error) {
	event := metav1.WatchEvent{Type: "MODIFIED", Object: runtime.RawExtension{Raw: object}}
	one, err := event.Marshal()
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(os.Stderr, "floor: an event has %d bytes\n", len(one)+4)
	var all []byte
	for range *burst {
		all = append(binary.BigEndian.AppendUint32(all, uint32(len(one))), one...)
	}
	return all, nil
}

// sender sends the same answers to all clients, and a burst of events to every watcher whenever enough changes have come.
type sender struct {
	*answers

	mu      sync.Mutex
	changes int
	next    chan struct{} // closed and replaced at every burst
}

// bursts returns the number of bursts so far, and a channel that is closed at the next one.
func (s *sender) bursts() (int, chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changes / *burst, s.next
}

func (s *sender) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, kind string, body []byte) {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(code)
		_, _ = w.Write(body)
	}
	const asJSON, asProtobuf = "application/json", "application/vnd.kubernetes.protobuf"
	accept := r.Header.Get("Accept")
	switch {
	case r.URL.Query().Has("watch"):
		s.watch(w, r)
	case r.Method == http.MethodPatch:
		s.mu.Lock()
		if s.changes++; s.changes%*burst == 0 {
			close(s.next)
			s.next = make(chan struct{})
		}
		s.mu.Unlock()
		answer(http.StatusOK, asProtobuf, s.pod)
	case r.Method == http.MethodPost:
		body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
		if err != nil {
			return
		}
		answer(http.StatusCreated, asProtobuf, body)
	case strings.Contains(r.URL.Path, "/serviceaccounts/"):
		answer(http.StatusOK, asJSON, []byte(`{"kind":"ServiceAccount","apiVersion":"v1","metadata":{"name":"default"}}`))
	case strings.Contains(r.URL.Path, "/pods/"):
		answer(http.StatusOK, asProtobuf, s.pod)
	case !strings.HasSuffix(r.URL.Path, "/pods"):
		answer(http.StatusNotFound, asJSON, []byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
	case strings.Contains(accept, "as=Table"):
		answer(http.StatusOK, asJSON, s.table)
	case !strings.Contains(accept, asProtobuf):
		answer(http.StatusOK, asJSON, s.json)
	case strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		w.Header().Set("Content-Encoding", "gzip")
		answer(http.StatusOK, asProtobuf, s.zipped)
	default:
		answer(http.StatusOK, asProtobuf, s.list)
	}
}

func (s *sender) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
	sent, next := s.bursts()
	w.WriteHeader(http.StatusOK)
	flush := http.NewResponseController(w)
	for flush.Flush() == nil {
		select {
		case <-next:
		case <-r.Context().Done():
			return
		}
		var due int
		for due, next = s.bursts(); sent < due; sent++ {
			if _, err := w.Write(s.events); err != nil {
				return
			}
		}
	}
}

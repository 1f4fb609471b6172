package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/cluster/process"
)

func TestConfig(t *testing.T) {
	var c Config
	if err := c.Complete(); err != nil || c.Name != "skiff" || c.DataDir != "/var/lib/skiff" || c.BindAddress != "127.0.0.1" || c.Port != 6443 || c.EtcdPrefix != "/registry" {
		t.Errorf("%+v, %v", c, err)
	}
	c = Config{DataDir: "relative"}
	if err := c.Complete(); err != nil || !filepath.IsAbs(c.DataDir) {
		t.Errorf("%s, %v", c.DataDir, err)
	}
	for why, c := range map[string]Config{
		"is not an IP address":       {BindAddress: "host"},
		"--advertise-address":        {AdvertiseAddress: "host"},
		"not between 1 and 65535":    {Port: 70000},
		"go together":                {TLSKeyFile: "x"},
		"--storage-media-type":       {StorageMediaType: "application/yaml"},
		"--etcd-prefix":              {EtcdPrefix: "/registry/"},
		"--service-cluster-ip-range": {ServiceCIDRs: []string{"10.0.0.0/8", "x"}},
	} {
		if err := c.Complete(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%+v: %v, want %q", c, err, why)
		}
	}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func TestServer(t *testing.T) {
	config := Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet()}
	s, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	if s.URL() != fmt.Sprintf("https://127.0.0.1:%d", config.Port) {
		t.Errorf("serves at %s", s.URL())
	}
	rest, err := clientcmd.BuildConfigFromFlags("", KubeconfigPath(config.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(rest)
	namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(namespaces.Items) != 4 {
		t.Errorf("%v, %v", namespaces, err)
	}
	trust, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string]string{"client-ca-file": "pki/ca.crt", "requestheader-client-ca-file": "pki/front-proxy-ca.crt"} {
		if want, err := os.ReadFile(filepath.Join(config.DataDir, file)); err != nil || trust.Data[name] != string(want) {
			t.Errorf("%s is not %s: %s, %v", name, file, trust.Data[name], err)
		}
	}
	rest.BearerToken, rest.CertData, rest.KeyData = "wrong", nil, nil
	if _, err := kubernetes.NewForConfigOrDie(rest).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a wrong token is accepted")
	}
	for _, file := range []string{"admin.kubeconfig", "pki/ca.key", "pki/admin.key", "pki/apiserver.key"} {
		if info, err := os.Stat(filepath.Join(config.DataDir, file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
	// A second on the same port fails before it touches anything.
	other := config
	other.DataDir = t.TempDir()
	if _, err := Start(t.Context(), other); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second server: %v", err)
	}
	if left, _ := os.ReadDir(other.DataDir); len(left) != 0 {
		t.Errorf("a server that failed left %v", left)
	}
	waited := make(chan error)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { waited <- s.Wait(ctx) }()
	cancel()
	if err := <-waited; err != nil {
		t.Error(err)
	}
	s.Stop()
	if _, err := net.DialTimeout("tcp", strings.TrimPrefix(s.URL(), "https://"), time.Second); err == nil {
		t.Error("still listens after the end")
	}
	again, err := Start(t.Context(), config) // with the same certificates and token
	if err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	if _, err := client.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
		t.Errorf("a client from before: %v", err)
	}
}

func TestStartGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if s, err := Start(ctx, Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet()}); err == nil {
		s.Stop()
		t.Error("started without time")
	}
	for what, c := range map[string]Config{
		"certificate": {TLSCertFile: "/none", TLSKeyFile: "/none"},
		"data dir":    {DataDir: "/dev/null/data"},
		"node ports":  {NodePortRange: "many"},
	} {
		if c.DataDir == "" {
			c.DataDir = t.TempDir()
		}
		c.Port, c.Log = freePort(t), quiet()
		s, err := Start(t.Context(), c)
		if err == nil {
			s.Stop()
			t.Errorf("started with a bad %s", what)
		}
	}
}

func TestInspectStopped(t *testing.T) {
	if status, err := Inspect(t.Context(), t.TempDir()); err != nil || status.Running {
		t.Errorf("%+v, %v", status, err)
	}
	if stopped, err := process.Terminate(t.Context(), t.TempDir()); err != nil || stopped {
		t.Errorf("%v, %v", stopped, err)
	}
	if _, err := SaveSnapshot(t.Context(), t.TempDir(), "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("saved nothing: %v", err)
	}
}

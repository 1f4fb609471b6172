package cluster

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

const plantedSecret = "a-value-that-was-planted"

// encryptedServer is a server with a client. Stop may be called more than once.
type encryptedServer struct {
	*Server
	kubernetes.Interface
	Stop func()
}

func started(t *testing.T, config Config) encryptedServer {
	t.Helper()
	s, err := Start(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	stop := sync.OnceFunc(s.Stop)
	t.Cleanup(stop)
	rest, err := clientcmd.BuildConfigFromFlags("", KubeconfigPath(config.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	return encryptedServer{s, kubernetes.NewForConfigOrDie(rest), stop}
}

// TestEncryptSecrets turns encryption on for a cluster that has Secrets, by one flag. From then on nothing that leaves the data directory without the key shows them.
func TestEncryptSecrets(t *testing.T) {
	config := Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet(), Encryption: EncryptionConfig{Secrets: true}}
	s := started(t, config)
	file := filepath.Join(config.DataDir, "encryption", "config.yaml")
	for path, want := range map[string]fs.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "planted"}, StringData: map[string]string{"key": plantedSecret}}
	if _, err := s.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	if found := filesWith(t, filepath.Join(config.DataDir, "etcd"), plantedSecret); len(found) > 0 {
		t.Errorf("the Secret is in %q", found)
	}
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	if _, err := SaveSnapshot(t.Context(), config.DataDir, snapshot); err != nil {
		t.Fatal(err)
	}
	if found := filesWith(t, filepath.Dir(snapshot), plantedSecret); len(found) > 0 {
		t.Error("the Secret is in the snapshot")
	}

	// Without the flag, and in a restored cluster: the key in the data directory is what matters.
	config.Encryption = EncryptionConfig{}
	holds := func(client kubernetes.Interface) {
		t.Helper()
		got, err := client.CoreV1().Secrets("default").Get(t.Context(), "planted", metav1.GetOptions{})
		if err != nil || string(got.Data["key"]) != plantedSecret {
			t.Errorf("the Secret is %v, %v", got, err)
		}
	}
	s = started(t, config)
	holds(s)
	s.Stop()

	restored := Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet()}
	if _, err := RestoreSnapshot(restored.DataDir, snapshot); err != nil {
		t.Fatal(err)
	}
	if s, err := Start(t.Context(), restored); err == nil || !strings.Contains(err.Error(), `the server does not start, as stored objects cannot be decrypted`) || !strings.Contains(err.Error(), "/registry/secrets/") {
		if s != nil {
			s.Stop()
		}
		t.Errorf("without the key: %v", err)
	}
	if err := os.CopyFS(filepath.Join(restored.DataDir, "encryption"), os.DirFS(filepath.Dir(file))); err != nil {
		t.Fatal(err)
	}
	holds(started(t, restored))
}

// TestEncryptSecretsLater turns encryption on for Secrets that are stored in clear.
func TestEncryptSecretsLater(t *testing.T) {
	config := Config{DataDir: t.TempDir(), Port: freePort(t), Log: quiet()}
	s := started(t, config)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "planted"}, StringData: map[string]string{"key": plantedSecret}}
	if _, err := s.CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	config.Encryption.Secrets = true
	s = started(t, config)
	stored := func() []byte {
		kv, _, err := s.Server.store.Get(context.Background(), "/registry/secrets/default/planted")
		if err != nil {
			t.Fatal(err)
		}
		return kv.Value
	}
	for end := time.Now().Add(20 * time.Second); !bytes.HasPrefix(stored(), []byte("k8s:enc:secretbox:v1:key1:")); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("stored is %q", stored())
		}
	}
}

func TestEncryptionFlags(t *testing.T) {
	for want, c := range map[string]EncryptionConfig{
		"--encryption-provider-config-automatic-reload must be set with --encryption-provider-config": {Reload: true},
		"--encrypt-secrets and --encryption-provider-config exclude each other":                       {Secrets: true, File: "x"},
	} {
		config := Config{Encryption: c}
		if err := config.Complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	dir := t.TempDir()
	if file, own, err := (EncryptionConfig{}).locate(dir); file != "" || own || err != nil {
		t.Errorf("without flags and files: %q, %v, %v", file, own, err)
	}
	if file, own, err := (EncryptionConfig{File: "x"}).locate(dir); file != "x" || own || err != nil {
		t.Errorf("with a file: %q, %v, %v", file, own, err)
	}
	file, own, err := (EncryptionConfig{Secrets: true}).locate(dir)
	if !own || err != nil {
		t.Fatal(file, own, err)
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if again, own, err := (EncryptionConfig{Secrets: true}).locate(dir); again != file || !own || err != nil {
		t.Errorf("again: %q, %v, %v", again, own, err)
	}
	if after, err := os.ReadFile(file); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key was replaced: %v", err)
	}
}

// filesWith returns the files below a directory that contain a text.
func filesWith(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

package kmstest

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	kmsapi "k8s.io/kms/apis/v2"
)

// Plugin is a KMS plugin. Its keys are named by their ids; each key encrypts differently.
type Plugin struct {
	// Endpoint is where the plugin listens: unix:///PATH.
	Endpoint string

	kmsapi.UnimplementedKeyManagementServiceServer
	mu                           sync.Mutex
	server                       *grpc.Server
	path                         string
	keyID, encryptKeyID, healthz string
	version                      string
	annotations                  map[string][]byte
	garbage                      bool
	hang                         chan struct{} // nil unless calls hang; closed when they go on
	removed                      map[string]bool
	calls                        map[string]int
}

var _ kmsapi.KeyManagementServiceServer = (*Plugin)(nil)

// Start starts a plugin with the key "1", which runs until the test ends.
func Start(t testing.TB) *Plugin {
	t.Helper()
	dir, err := os.MkdirTemp("", "kms") // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	p := &Plugin{path: filepath.Join(dir, "s"), keyID: "1", healthz: "ok", version: "v2", removed: map[string]bool{}, calls: map[string]int{}}
	p.Endpoint = "unix://" + p.path
	t.Cleanup(func() {
		p.Release()
		p.Stop()
		os.RemoveAll(dir)
	})
	p.Resume(t)
	return p
}

// Resume starts the plugin again after Stop.
func (p *Plugin) Resume(t testing.TB) {
	t.Helper()
	listener, err := net.Listen("unix", p.path)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	kmsapi.RegisterKeyManagementServiceServer(server, p)
	p.mu.Lock()
	p.server = server
	p.mu.Unlock()
	go server.Serve(listener) // until Stop
}

// Stop stops the plugin: its socket is gone.
func (p *Plugin) Stop() {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	server.Stop()
}

// change changes how the plugin behaves.
func (p *Plugin) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// SetKeyID has the plugin encrypt with another key from now on.
func (p *Plugin) SetKeyID(id string) { p.change(func() { p.keyID, p.encryptKeyID = id, "" }) }

// SetEncryptKeyID has Encrypt name another key than Status.
func (p *Plugin) SetEncryptKeyID(id string) { p.change(func() { p.encryptKeyID = id }) }

// SetHealthz sets what Status says of the plugin's health.
func (p *Plugin) SetHealthz(healthz string) { p.change(func() { p.healthz = healthz }) }

// SetVersion sets what Status says of the API's version.
func (p *Plugin) SetVersion(version string) { p.change(func() { p.version = version }) }

// SetAnnotations sets what Encrypt returns beside the ciphertext, and Decrypt expects.
func (p *Plugin) SetAnnotations(a map[string][]byte) { p.change(func() { p.annotations = a }) }

// SetGarbage has Encrypt and Decrypt answer garbage.
func (p *Plugin) SetGarbage(garbage bool) { p.change(func() { p.garbage = garbage }) }

// RemoveKey has Decrypt fail for what a key has encrypted.
func (p *Plugin) RemoveKey(id string) { p.change(func() { p.removed[id] = true }) }

// Hang has all calls hang until Release.
func (p *Plugin) Hang() { p.change(func() { p.hang = make(chan struct{}) }) }

// Release lets calls go on.
func (p *Plugin) Release() {
	p.change(func() {
		if p.hang != nil {
			close(p.hang)
			p.hang = nil
		}
	})
}

// Calls returns how often a method was called: Status, Encrypt or Decrypt.
func (p *Plugin) Calls(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// begin counts a call, and waits while the plugin hangs.
func (p *Plugin) begin(ctx context.Context, method string) error {
	p.mu.Lock()
	p.calls[method]++
	hang := p.hang
	p.mu.Unlock()
	if hang == nil {
		return nil
	}
	select {
	case <-hang:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Status implements the KMS API.
func (p *Plugin) Status(ctx context.Context, _ *kmsapi.StatusRequest) (*kmsapi.StatusResponse, error) {
	if err := p.begin(ctx, "Status"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return &kmsapi.StatusResponse{Version: p.version, Healthz: p.healthz, KeyId: p.keyID}, nil
}

// Encrypt implements the KMS API.
func (p *Plugin) Encrypt(ctx context.Context, r *kmsapi.EncryptRequest) (*kmsapi.EncryptResponse, error) {
	if err := p.begin(ctx, "Encrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	id := p.keyID
	if p.encryptKeyID != "" {
		id = p.encryptKeyID
	}
	if p.garbage {
		return &kmsapi.EncryptResponse{Ciphertext: make([]byte, 4<<10), KeyId: id}, nil
	}
	aead := aeadOf(id)
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	return &kmsapi.EncryptResponse{Ciphertext: aead.Seal(nonce, nonce, r.Plaintext, nil), KeyId: id, Annotations: p.annotations}, nil
}

// Decrypt implements the KMS API.
func (p *Plugin) Decrypt(ctx context.Context, r *kmsapi.DecryptRequest) (*kmsapi.DecryptResponse, error) {
	if err := p.begin(ctx, "Decrypt"); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.garbage {
		return &kmsapi.DecryptResponse{Plaintext: make([]byte, 32)}, nil
	}
	if p.removed[r.KeyId] {
		return nil, status.Error(codes.NotFound, "the key "+r.KeyId+" is gone")
	}
	if fmt.Sprint(r.Annotations) != fmt.Sprint(p.annotations) {
		return nil, status.Error(codes.InvalidArgument, "annotations are missing")
	}
	aead := aeadOf(r.KeyId)
	if len(r.Ciphertext) < aead.NonceSize() {
		return nil, status.Error(codes.InvalidArgument, "ciphertext is too short")
	}
	plain, err := aead.Open(nil, r.Ciphertext[:aead.NonceSize()], r.Ciphertext[aead.NonceSize():], nil)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	return &kmsapi.DecryptResponse{Plaintext: plain}, nil
}

func aeadOf(id string) cipher.AEAD {
	key := sha256.Sum256([]byte(id))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic(err) // the key has the right size
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

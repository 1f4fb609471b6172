package clientcert

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/utils/clock"
)

// Bundle is a set of certificate authorities. It never changes; a changed set is another Bundle.
type Bundle struct {
	PEM          []byte
	Certificates []*x509.Certificate
	Pool         *x509.CertPool
}

// NewBundle reads the certificates in data.
func NewBundle(data []byte) (*Bundle, error) {
	certificates, err := cert.ParseCertsPEM(data)
	if err != nil {
		return nil, err
	}
	b := &Bundle{PEM: data, Certificates: certificates, Pool: x509.NewCertPool()}
	for _, c := range certificates {
		b.Pool.AddCert(c)
	}
	return b, nil
}

// CAs gives the authorities trusted now, or nil if there are none yet.
type CAs func() *Bundle

// recheck is how often a file is looked at, at most: only while somebody asks.
const recheck = time.Second

// FromFile gives the authorities in a file, which must be good now. When the file changes they follow within a second; a file that has
// become unreadable changes nothing but the log.
func FromFile(path string, now clock.PassiveClock, log *slog.Logger) (CAs, error) {
	f := &file{path: path, clock: now, log: log}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f.get, nil
}

type file struct {
	path    string
	clock   clock.PassiveClock
	log     *slog.Logger
	current atomic.Pointer[Bundle]
	checked atomic.Int64 // when, in nanoseconds

	loading sync.Mutex
	seen    os.FileInfo // nil if the file could not be read
}

func (f *file) get() *Bundle {
	if ago := time.Duration(f.clock.Now().UnixNano() - f.checked.Load()); (ago < 0 || ago >= recheck) && f.loading.TryLock() {
		defer f.loading.Unlock()
		f.reload()
	}
	return f.current.Load()
}

func (f *file) reload() {
	info, err := os.Stat(f.path)
	if err == nil && f.seen != nil && os.SameFile(info, f.seen) && info.ModTime().Equal(f.seen.ModTime()) && info.Size() == f.seen.Size() {
		f.checked.Store(f.clock.Now().UnixNano())
		return
	}
	failing := f.seen == nil
	if err := f.load(); err != nil && !failing {
		f.log.Error("certificate authorities not reloaded, the old ones stay", "file", f.path, "error", err)
	}
}

// load reads the file. It notes what it looked like before reading, so that what is written while it reads is read again.
func (f *file) load() error {
	f.checked.Store(f.clock.Now().UnixNano())
	f.seen = nil
	opened, err := os.Open(f.path)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	data, err := io.ReadAll(opened)
	if err != nil {
		return err
	}
	if len(data) == 0 {
		return fmt.Errorf("missing content for CA bundle %q", f.path)
	}
	if old := f.current.Load(); old == nil || !bytes.Equal(old.PEM, data) {
		bundle, err := NewBundle(data)
		if err != nil {
			return fmt.Errorf("error loading CA bundle for %q: %w", f.path, err)
		}
		f.current.Store(bundle)
		if old != nil {
			f.log.Info("certificate authorities reloaded", "file", f.path)
		}
	}
	f.seen = info
	return nil
}

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

// Bundle is an immutable set of CA certificates.
type Bundle struct {
	PEM          []byte
	Certificates []*x509.Certificate
	Pool         *x509.CertPool
}

// NewBundle parses the PEM certificates in data.
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

// CAs returns the CAs trusted now, nil if there are none yet.
type CAs func() *Bundle

// recheckInterval is how often a file is checked for changes at most; it is checked only when the CAs are used.
const recheckInterval = time.Second

// FromFile returns the CAs in a file, which must be valid now. A changed file is reloaded within a second; if it has become invalid, the
// previous CAs stay and the error is logged.
func FromFile(path string, now clock.PassiveClock, log *slog.Logger) (CAs, error) {
	f := &file{path: path, clock: now, log: log}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f.get, nil
}

type file struct {
	path      string
	clock     clock.PassiveClock
	log       *slog.Logger
	current   atomic.Pointer[Bundle]
	checkedAt atomic.Int64 // when the file was last checked, in nanoseconds

	loading    sync.Mutex
	loadedInfo os.FileInfo // of the file that was loaded; nil if it could not be read
}

func (f *file) get() *Bundle {
	if ago := time.Duration(f.clock.Now().UnixNano() - f.checkedAt.Load()); (ago < 0 || ago >= recheckInterval) && f.loading.TryLock() {
		defer f.loading.Unlock()
		f.reload()
	}
	return f.current.Load()
}

func (f *file) reload() {
	info, err := os.Stat(f.path)
	if err == nil && f.loadedInfo != nil && os.SameFile(info, f.loadedInfo) && info.ModTime().Equal(f.loadedInfo.ModTime()) && info.Size() == f.loadedInfo.Size() {
		f.checkedAt.Store(f.clock.Now().UnixNano())
		return
	}
	failing := f.loadedInfo == nil
	if err := f.load(); err != nil && !failing {
		f.log.Error("failed to reload CA certificates, the previous ones stay in use", "file", f.path, "error", err)
	}
}

// load reads the file. It takes the file's info before reading, so that a write during the read leads to another load.
func (f *file) load() error {
	f.checkedAt.Store(f.clock.Now().UnixNano())
	f.loadedInfo = nil
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
			f.log.Info("reloaded CA certificates", "file", f.path)
		}
	}
	f.loadedInfo = info
	return nil
}

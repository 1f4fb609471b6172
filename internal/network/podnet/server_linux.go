package podnet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"
)

const (
	// callBytes is how much may be asked with one call: a configuration of 1 MiB, and what is around it.
	callBytes = 1<<20 + 64<<10
	// callsAtOnce are worked on; others wait in the kernel.
	callsAtOnce = 16
	// talkTime is how long the plugin may take to say what it wants, and to hear the answer.
	talkTime = 10 * time.Second
)

// Server attaches pods to this node when the CNI plugin "skiff" is told to, which passes everything on to here: so that a pod costs a few messages to
// the kernel, and not two programs that start. What it does survives it, and the next finds it.
type Server struct {
	config    Config
	log       *slog.Logger
	listener  *net.UnixListener
	links     *links
	addresses *addresses
	ctx       context.Context // ends when no more calls are heard
	cancel    context.CancelFunc
	running   sync.WaitGroup
	seed      maphash.Seed
	turns     [64]sync.Mutex
}

// Serve listens on the configuration's Socket. Only root reaches it.
func Serve(c Config, log *slog.Logger) (*Server, error) {
	s := &Server{config: c, log: log, seed: maphash.MakeSeed()}
	var err error
	if s.addresses, err = openAddresses(filepath.Join(c.State, NetworkName)); err != nil {
		return nil, fmt.Errorf("which pod addresses are in use: %w", err)
	}
	if s.links, err = openLinks(); err != nil {
		return nil, err
	}
	if s.listener, err = listen(c.Socket); err != nil {
		s.links.close()
		return nil, err
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.running.Go(s.accept)
	return s, nil
}

// listen takes the place of a socket that was left. Its directory is nobody else's, so no one comes by before its mode is set.
func listen(path string) (*net.UnixListener, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := ignoreMissing(os.Remove(path)); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("the network's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close ends the server when what it is doing is done. What it made stays.
func (s *Server) Close() {
	s.cancel()
	s.listener.Close()
	s.running.Wait()
	s.links.close()
}

// Sweep is Config's.
func (s *Server) Sweep(sandboxes map[string]bool, before time.Time, namespaces string) error {
	s.addresses.mu.Lock()
	defer s.addresses.mu.Unlock()
	return errors.Join(s.config.Sweep(sandboxes, before, namespaces), s.addresses.load())
}

func (s *Server) accept() {
	places := make(chan struct{}, callsAtOnce)
	for {
		places <- struct{}{}
		conn, err := s.listener.AcceptUnix()
		if s.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			s.log.Warn("a call of the CNI plugin is not heard", "error", err)
			<-places
			select {
			case <-s.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		s.running.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			s.answer(conn)
		})
	}
}

// answer answers one call. Its plugin may have been killed meanwhile; then nobody knows that a pod was attached, and it is not.
func (s *Server) answer(conn *net.UnixConn) {
	c, err := s.hear(conn)
	var out any
	if err == nil {
		out, err = s.do(c)
	}
	text := []byte{'0'}
	if err != nil {
		var refused *callError
		if !errors.As(err, &refused) {
			refused = &callError{Code: codeInternal, Msg: err.Error()}
		}
		told := *refused
		if told.CNIVersion = c.config.CNIVersion; told.CNIVersion == "" {
			told.CNIVersion = versions[0]
		}
		text, out = []byte{'1'}, told
	}
	if out != nil {
		data, err := json.Marshal(out)
		if err != nil {
			panic(err) // it is made of strings and numbers
		}
		text = append(text, data...)
	}
	conn.SetWriteDeadline(time.Now().Add(talkTime))
	if _, failed := conn.Write(text); failed != nil && err == nil && c.command == "ADD" {
		if err := s.del(c.owner, c.namespace); err != nil {
			s.log.Warn("a pod's link that nobody waits for is left", "sandbox", c.sandbox, "error", err)
		}
	}
}

func (s *Server) hear(conn *net.UnixConn) (call, error) {
	conn.SetReadDeadline(time.Now().Add(talkTime))
	defer context.AfterFunc(s.ctx, func() { conn.SetReadDeadline(time.Now()) })()
	data, err := io.ReadAll(io.LimitReader(conn, callBytes+1))
	if err != nil {
		return call{}, refuse(codeDecoding, "what the CNI plugin wants is not heard: %v", err)
	}
	if len(data) > callBytes {
		return call{}, refuse(codeDecoding, "the CNI plugin says more than %d bytes", callBytes)
	}
	return parseCall(data)
}

// turn waits until nobody else works on an owner's link, and returns what ends it.
func (s *Server) turn(o owner) (done func()) {
	m := &s.turns[maphash.Comparable(s.seed, o)%uint64(len(s.turns))]
	m.Lock()
	return m.Unlock
}

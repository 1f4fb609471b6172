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
	// maxCallBytes bounds one call of the plugin: a configuration of 1 MiB and the other fields.
	maxCallBytes = 1<<20 + 64<<10
	// maxConcurrentCalls bounds the calls that are handled at a time; others wait in the socket's backlog.
	maxConcurrentCalls = 16
	// callTimeout bounds reading a call, and writing the answer.
	callTimeout = 10 * time.Second
)

// Server attaches pods to this node's network when the runtime calls the CNI plugin "skiff", which passes calls on to the Server's socket. So
// a pod costs a few netlink messages and not the start of two more programs. The links outlive the Server, and the next one finds them.
type Server struct {
	config     Config
	log        *slog.Logger
	listener   *net.UnixListener
	links      *links
	addresses  *addresses
	ctx        context.Context // ends when Close is called: no more calls are read
	cancel     context.CancelFunc
	running    sync.WaitGroup
	seed       maphash.Seed
	ownerLocks [64]sync.Mutex // by hash of the owner: calls for the same link run one after the other
}

// Serve listens on the configuration's Socket. Only root reaches it.
func Serve(c Config, log *slog.Logger) (*Server, error) {
	s := &Server{config: c, log: log, seed: maphash.MakeSeed()}
	var err error
	if s.addresses, err = openAddresses(filepath.Join(c.State, NetworkName)); err != nil {
		return nil, fmt.Errorf("failed to read the pod addresses in use: %w", err)
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

// listen creates the socket, in place of one that was left behind. Only root can enter its directory, so nobody connects before the socket's
// mode is set.
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
		return nil, fmt.Errorf("failed to listen on the pod network's socket: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// Close stops the server after the calls in flight. The links that it created stay.
func (s *Server) Close() {
	s.cancel()
	s.listener.Close()
	s.running.Wait()
	s.links.close()
}

// Sweep calls Config.Sweep and reads the addresses in use again.
func (s *Server) Sweep(sandboxes map[string]bool, before time.Time, namespaces string) error {
	s.addresses.mu.Lock()
	defer s.addresses.mu.Unlock()
	return errors.Join(s.config.Sweep(sandboxes, before, namespaces), s.addresses.load())
}

func (s *Server) accept() {
	slots := make(chan struct{}, maxConcurrentCalls)
	for {
		slots <- struct{}{}
		conn, err := s.listener.AcceptUnix()
		if s.ctx.Err() != nil {
			if err == nil {
				conn.Close()
			}
			return
		}
		if err != nil {
			s.log.Warn("failed to accept a call of the CNI plugin", "error", err)
			<-slots
			select {
			case <-s.ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		s.running.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			s.answer(conn)
		})
	}
}

// answer handles one call. If the plugin was killed meanwhile and cannot read the result of an ADD, the pod is detached again, because nobody
// would know of the link.
func (s *Server) answer(conn *net.UnixConn) {
	c, err := s.readCall(conn)
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
		response := *refused
		if response.CNIVersion = c.config.CNIVersion; response.CNIVersion == "" {
			response.CNIVersion = versions[0]
		}
		text, out = []byte{'1'}, response
	}
	if out != nil {
		data, err := json.Marshal(out)
		if err != nil {
			panic(err) // cannot happen: out consists of strings and numbers
		}
		text = append(text, data...)
	}
	conn.SetWriteDeadline(time.Now().Add(callTimeout))
	if _, failed := conn.Write(text); failed != nil && err == nil && c.command == "ADD" {
		if err := s.del(c.owner, c.namespace); err != nil {
			s.log.Warn("failed to remove the link of a pod whose CNI call was abandoned", "sandbox", c.sandbox, "error", err)
		}
	}
}

func (s *Server) readCall(conn *net.UnixConn) (call, error) {
	conn.SetReadDeadline(time.Now().Add(callTimeout))
	defer context.AfterFunc(s.ctx, func() { conn.SetReadDeadline(time.Now()) })()
	data, err := io.ReadAll(io.LimitReader(conn, maxCallBytes+1))
	if err != nil {
		return call{}, refuse(codeDecoding, "what the CNI plugin wants is not heard: %v", err)
	}
	if len(data) > maxCallBytes {
		return call{}, refuse(codeDecoding, "the CNI plugin says more than %d bytes", maxCallBytes)
	}
	return parseCall(data)
}

// lockOwner waits until no other call works on an owner's link, and returns the function that unlocks it.
func (s *Server) lockOwner(o owner) (unlock func()) {
	m := &s.ownerLocks[maphash.Comparable(s.seed, o)%uint64(len(s.ownerLocks))]
	m.Lock()
	return m.Unlock
}

package http2

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// sockets is both ends of a connection; one is what is tested.
func sockets(t *testing.T) (*socket, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialed, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		dialed.Close()
		accepted.Close()
	})
	s, ok := newSocket(accepted).(*socket)
	if !ok {
		t.Fatalf("%T is not read and written by ourselves", accepted)
	}
	return s, dialed.(*net.TCPConn)
}

// More than the kernel takes at once arrives whole and in order.
func TestSocketCarries(t *testing.T) {
	s, peer := sockets(t)
	sent := make([]byte, 32<<20)
	for i := range sent {
		sent[i] = byte(i * i >> 8)
	}
	for _, way := range []struct {
		name     string
		from, to net.Conn
	}{{"written", s, peer}, {"read", peer, s}} {
		wrote := make(chan error, 1)
		go func() {
			n, err := way.from.Write(sent)
			if err == nil && n != len(sent) {
				err = io.ErrShortWrite
			}
			wrote <- err
		}()
		time.Sleep(20 * time.Millisecond) // until the writer has to wait
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(way.to, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: not what was sent, %v", way.name, err)
		}
		if err := <-wrote; err != nil {
			t.Errorf("%s: %v", way.name, err)
		}
	}
}

func TestSocketEnds(t *testing.T) {
	t.Run("end", func(t *testing.T) {
		s, peer := sockets(t)
		if err := peer.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v", n, err)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		s, _ := sockets(t)
		if err := s.SetDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, err := s.Read(make([]byte, 1))
		var timeout net.Error
		if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("reading: %v", err)
		}
		n, err := s.Write(make([]byte, 32<<20))
		if n == 32<<20 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("wrote %d, %v", n, err)
		}
	})
	t.Run("reset", func(t *testing.T) {
		s, peer := sockets(t)
		if err := peer.SetLinger(0); err != nil {
			t.Fatal(err)
		}
		peer.Close()
		_, err := s.Read(make([]byte, 1))
		var op *net.OpError
		if !errors.Is(err, syscall.ECONNRESET) || !errors.As(err, &op) || op.Op != "read" {
			t.Errorf("reading: %v", err)
		}
		if _, err := s.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("writing: %v", err)
		}
	})
	t.Run("closed", func(t *testing.T) {
		s, _ := sockets(t)
		read := make(chan error, 1)
		go func() {
			_, err := s.Read(make([]byte, 1))
			read <- err
		}()
		time.Sleep(20 * time.Millisecond) // until it waits
		s.Close()
		select {
		case err := <-read:
			if !errors.Is(err, net.ErrClosed) {
				t.Errorf("reading: %v", err)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("who reads is not told")
		}
		if _, err := s.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing: %v", err)
		}
	})
}

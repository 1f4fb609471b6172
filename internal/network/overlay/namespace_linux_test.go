package overlay

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"skiff/internal/network/networktest"
)

// namespace is a network namespace.
type namespace struct{ *networktest.Namespace }

func newNamespace(t testing.TB, name string) *namespace { return &namespace{networktest.New(t, name)} }

// link connects two namespaces by a veth pair.
func link(t testing.TB, a, b *namespace, nameA, nameB string, mtu int) {
	t.Helper()
	networktest.Link(t, a.Namespace, b.Namespace, nameA, nameB, mtu)
	a.Up(t, nameA)
	b.Up(t, nameB)
}

// serve runs an echo server on UDP and TCP port 7. Over TCP it first sends a line with the source address that it sees.
func (s *namespace) serve(t testing.TB) {
	t.Helper()
	s.ServePackets(t, "udp", ":7", func(packet []byte, _ net.Addr) []byte { return packet })
	s.Serve(t, "tcp", ":7", func(conn net.Conn) {
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		fmt.Fprintf(conn, "%s\n", host)
		io.Copy(conn, conn)
	})
}

// dial connects over TCP and returns the source address that the server sees.
func (s *namespace) dial(to string) (conn net.Conn, seen string, err error) {
	err = s.Do(func() error {
		d := net.Dialer{Timeout: 500 * time.Millisecond} // less than the kernel waits before a second SYN: callers retry
		conn, err = d.Dial("tcp", net.JoinHostPort(to, "7"))
		return err
	})
	if err != nil {
		return nil, "", err
	}
	conn.SetDeadline(time.Now().Add(testTimeout))
	var one [1]byte
	for {
		if _, err := io.ReadFull(conn, one[:]); err != nil {
			conn.Close()
			return nil, "", err
		}
		if one[0] == '\n' {
			return conn, seen, nil
		}
		seen += string(one[:])
	}
}

// reaches waits until a TCP connection succeeds, and checks the source address that the server sees.
func (s *namespace) reaches(t testing.TB, to, seenAs string) {
	t.Helper()
	var seen string
	eventually(t, func() error {
		conn, got, err := s.dial(to)
		if err == nil {
			conn.Close()
			seen = got
		}
		return err
	})
	if seen != seenAs {
		t.Errorf("%s is seen by %s as %s, want %s", s.Name, to, seen, seenAs)
	}
}

// echo sends a UDP packet of a size, with fragmentation forbidden, and waits for it to come back.
func (s *namespace) echo(to string, size int) error {
	return s.Do(func() error {
		d := net.Dialer{}
		conn, err := d.Dial("udp", net.JoinHostPort(to, "7"))
		if err != nil {
			return err
		}
		defer conn.Close()
		raw, err := conn.(*net.UDPConn).SyscallConn()
		if err != nil {
			return err
		}
		raw.Control(func(fd uintptr) {
			if strings.Contains(to, ":") {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO)
			} else {
				err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO)
			}
		})
		if err != nil {
			return err
		}
		sent, got := bytes.Repeat([]byte{'x'}, size), make([]byte, 1<<16)
		for range 5 { // UDP may be lost
			if _, err = conn.Write(sent); err != nil {
				return err
			}
			conn.SetReadDeadline(time.Now().Add(time.Second))
			var n int
			if n, err = conn.Read(got); err == nil && n != size {
				return fmt.Errorf("%d bytes came back of %d", n, size)
			} else if err == nil {
				return nil
			}
		}
		return err
	})
}

// ping sends an ICMP echo request.
func (s *namespace) ping(to string) error {
	return s.Do(func() error {
		conn, err := net.DialIP("ip4:icmp", nil, &net.IPAddr{IP: net.ParseIP(to)})
		if err != nil {
			return err
		}
		defer conn.Close()
		request := []byte{8, 0, 0, 0, 0x12, 0x34, 0, 1}
		var sum uint32
		for i := 0; i < len(request); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(request[i:]))
		}
		binary.BigEndian.PutUint16(request[2:], ^uint16(sum+sum>>16))
		if _, err := conn.Write(request); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		answer := make([]byte, 1500)
		for {
			n, _, err := conn.ReadFrom(answer)
			if err != nil {
				return err
			}
			if n >= 8 && answer[0] == 0 && bytes.Equal(answer[4:8], request[4:8]) {
				return nil
			}
		}
	})
}

// eventually retries f until it succeeds.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(testTimeout); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("not after %v: %v", testTimeout, err)
}

// snmp returns an SNMP counter of the namespace.
func (s *namespace) snmp(t testing.TB, group, name string) (value string) {
	t.Helper()
	s.Must(t, func() error {
		data, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/net/snmp", unix.Gettid()))
		if err != nil {
			return err
		}
		var names []string
		for line := range strings.Lines(string(data)) {
			fields := strings.Fields(line)
			if len(fields) == 0 || fields[0] != group+":" {
				continue
			}
			if names == nil {
				names = fields
				continue
			}
			for i, n := range names {
				if n == name {
					value = fields[i]
				}
			}
		}
		return nil
	})
	return value
}

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

// space is a network namespace.
type space struct{ *networktest.Place }

func newSpace(t testing.TB, name string) *space { return &space{networktest.New(t, name)} }

// link makes a pair of links.
func link(t testing.TB, a, b *space, nameA, nameB string, mtu int) {
	t.Helper()
	networktest.Link(t, a.Place, b.Place, nameA, nameB, mtu)
	a.Up(t, nameA)
	b.Up(t, nameB)
}

// serve answers whoever asks, on TCP and UDP: with the address that is seen in a first line, and then with what is sent.
func (s *space) serve(t testing.TB) {
	t.Helper()
	s.ServePackets(t, "udp", ":7", func(packet []byte, _ net.Addr) []byte { return packet })
	s.Serve(t, "tcp", ":7", func(conn net.Conn) {
		host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		fmt.Fprintf(conn, "%s\n", host)
		io.Copy(conn, conn)
	})
}

// dial connects and returns what the other side sees as our address.
func (s *space) dial(to string) (conn net.Conn, seen string, err error) {
	err = s.Do(func() error {
		d := net.Dialer{Timeout: 500 * time.Millisecond} // before a second SYN is sent: it is tried again
		conn, err = d.Dial("tcp", net.JoinHostPort(to, "7"))
		return err
	})
	if err != nil {
		return nil, "", err
	}
	conn.SetDeadline(time.Now().Add(patience))
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

// reaches waits until one can connect to another, and checks which address that sees.
func (s *space) reaches(t testing.TB, to, seenAs string) {
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

// echo sends a UDP packet of a size that may not be fragmented, and waits for it to come back.
func (s *space) echo(to string, size int) error {
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
func (s *space) ping(to string) error {
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

// eventually waits until something works.
func eventually(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatalf("not after %v: %v", patience, err)
}

// snmp is a counter of the namespace.
func (s *space) snmp(t testing.TB, group, name string) (value string) {
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

package dns

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// typeNumbers maps the names of record types to their numbers.
var typeNumbers = map[string]uint16{"A": 1, "NS": 2, "CNAME": 5, "SOA": 6, "PTR": 12, "HINFO": 13, "MX": 15, "TXT": 16, "AAAA": 28, "SRV": 33, "HTTPS": 65, "IXFR": 251, "AXFR": 252, "ANY": 255}

// ask sends a query, written as in testdata/queries.txt: NAME TYPE [tcp] [edns=SIZE] [do] ...
func ask(t testing.TB, server netip.AddrPort, question string) []byte {
	t.Helper()
	packet, tcp := packetOf(t, question)
	answer, err := exchangePacket(server, packet, tcp)
	if err != nil {
		t.Fatalf("%s: %v", question, err)
	}
	return answer
}

// answerText sends a query and returns the answer as text.
func answerText(t testing.TB, server netip.AddrPort, question string) string {
	t.Helper()
	return textOf(ask(t, server, question))
}

func packetOf(t testing.TB, question string) (packet []byte, tcp bool) {
	t.Helper()
	words := strings.Fields(question)
	number, ok := typeNumbers[words[1]]
	if !ok {
		n, err := strconv.ParseUint(words[1], 10, 16)
		if err != nil {
			t.Fatalf("%s: no such type", question)
		}
		number = uint16(n)
	}
	flags, class, questions, edns, do, version := uint16(flagRecursion), uint16(classIN), 1, -1, uint32(0), uint32(0)
	for _, word := range words[2:] {
		name, value, _ := strings.Cut(word, "=")
		n, _ := strconv.Atoi(value)
		switch name {
		case "tcp":
			tcp = true
		case "nord":
			flags &^= flagRecursion
		case "cd":
			flags |= flagUnchecked
		case "class":
			class = uint16(n)
		case "opcode":
			flags |= uint16(n) << 11
		case "questions":
			questions = n
		case "edns":
			edns = n
		case "do":
			do = 1 << 15
		case "version":
			version = uint32(n) << 16
		default:
			t.Fatalf("%s: what is %s?", question, word)
		}
	}
	packet = binary.BigEndian.AppendUint16([]byte{0x12, 0x34}, flags)
	packet = append(packet, 0, byte(questions), 0, 0, 0, 0, 0, 0)
	for range questions {
		for label := range strings.SplitSeq(strings.TrimSuffix(words[0], "."), ".") {
			packet = append(append(packet, byte(len(label))), label...)
		}
		packet = binary.BigEndian.AppendUint16(append(packet, 0), number)
		packet = binary.BigEndian.AppendUint16(packet, class)
	}
	if edns >= 0 {
		packet[11] = 1
		packet = binary.BigEndian.AppendUint16(append(packet, 0, 0, typeOPT), uint16(edns))
		packet = append(binary.BigEndian.AppendUint32(packet, version|do), 0, 0)
	}
	return packet, tcp
}

func exchangePacket(server netip.AddrPort, packet []byte, tcp bool) ([]byte, error) {
	network := "udp"
	if tcp {
		network = "tcp"
		packet = append(binary.BigEndian.AppendUint16(nil, uint16(len(packet))), packet...)
	}
	conn, err := net.Dial(network, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testTimeout))
	if _, err := conn.Write(packet); err != nil {
		return nil, err
	}
	if tcp {
		return readFrame(conn)
	}
	answer := make([]byte, 65536)
	n, err := conn.Read(answer)
	return answer[:n], err
}

func readFrame(r io.Reader) ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	_, err := io.ReadFull(r, answer)
	return answer, err
}

// textOf returns a message as text, parsed by another DNS library: the code and flags, and the records of each section in alphabetical order. Of a
// truncated message it returns only that it is truncated.
func textOf(msg []byte) string {
	var p dnsmessage.Parser
	h, err := p.Start(msg)
	if err != nil {
		return "unreadable: " + err.Error()
	}
	lines := []string{strings.TrimPrefix(h.RCode.String(), "RCode")}
	for name, set := range map[string]bool{"aa": h.Authoritative, "tc": h.Truncated, "rd": h.RecursionDesired, "ra": h.RecursionAvailable, "cd": h.CheckingDisabled} {
		if set {
			lines = append(lines, name)
		}
	}
	slices.Sort(lines[1:])
	lines = []string{strings.Join(lines, " ")}
	if !h.Response || h.ID != 0x1234 {
		lines[0] += fmt.Sprintf(" response=%v id=%x", h.Response, h.ID)
	}
	questions, err := p.AllQuestions()
	if err != nil {
		return lines[0] + "\nunreadable question: " + err.Error()
	}
	for _, q := range questions {
		lines = append(lines, fmt.Sprintf("question %s %v", q.Name, uint16(q.Type)))
	}
	for _, section := range []struct {
		name string
		read func() ([]dnsmessage.Resource, error)
	}{{"answer", p.AllAnswers}, {"authority", p.AllAuthorities}, {"additional", p.AllAdditionals}} {
		resources, err := section.read()
		if err != nil {
			return strings.Join(append(lines, "unreadable "+section.name+": "+err.Error()), "\n")
		}
		var records []string
		for _, r := range resources {
			if r.Header.Type == dnsmessage.TypeOPT {
				lines[0] += fmt.Sprintf(" edns code=%d do=%v", r.Header.ExtendedRCode(h.RCode), r.Header.DNSSECAllowed())
				continue
			}
			records = append(records, section.name+" "+recordText(r))
		}
		slices.Sort(records)
		if !h.Truncated {
			lines = append(lines, records...)
		}
	}
	return strings.Join(lines, "\n")
}

func recordText(r dnsmessage.Resource) string {
	head := fmt.Sprintf("%s %d ", r.Header.Name, r.Header.TTL)
	switch b := r.Body.(type) {
	case *dnsmessage.AResource:
		return head + "A " + netip.AddrFrom4(b.A).String()
	case *dnsmessage.AAAAResource:
		return head + "AAAA " + netip.AddrFrom16(b.AAAA).String()
	case *dnsmessage.SRVResource:
		return head + fmt.Sprintf("SRV %d %d %d %s", b.Priority, b.Weight, b.Port, b.Target)
	case *dnsmessage.PTRResource:
		return head + "PTR " + b.PTR.String()
	case *dnsmessage.CNAMEResource:
		return head + "CNAME " + b.CNAME.String()
	case *dnsmessage.NSResource:
		return head + "NS " + b.NS.String()
	case *dnsmessage.TXTResource:
		return head + fmt.Sprintf("TXT %q", b.TXT)
	case *dnsmessage.SOAResource: // the serial number is a time
		return head + fmt.Sprintf("SOA %s %s %d %d %d %d", b.NS, b.MBox, b.Refresh, b.Retry, b.Expire, b.MinTTL)
	}
	return head + fmt.Sprintf("%v %v", r.Header.Type, r.Body)
}

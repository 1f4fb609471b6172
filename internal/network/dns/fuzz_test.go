package dns

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/test/seed"
)

// fuzzServer returns a server with a few Services and no upstream servers.
func fuzzServer() *Server {
	z := newZone([]byte("\x07cluster\x05local\x00"), 30, nil)
	z.synced.Store(true)
	z.namespaceChanged(nil, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	z.serviceChanged(nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.20",
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: "TCP"}}}})
	z.serviceChanged(nil, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: corev1.ServiceSpec{ClusterIP: "None"}})
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-1", Labels: map[string]string{discoveryv1.LabelServiceName: "db"}}}
	for i := range 60 {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.42.0." + string(rune('1'+i%9)) + string(rune('0'+i/9))}})
	}
	z.sliceChanged(nil, slice)
	return &Server{zone: z, forward: newForwarder(&resolvers{}, nil)}
}

// FuzzQuery: the answer to any packet is a well-formed message with the same question, and not longer than the client accepts.
func FuzzQuery(f *testing.F) {
	for _, question := range questions(f) {
		packet, tcp := packetOf(f, question)
		f.Add(packet, !tcp)
	}
	s := fuzzServer()
	q := &query{}
	f.Fuzz(func(t *testing.T, packet []byte, udp bool) { checkAnswer(t, s, q, packet, udp) })
}

func checkAnswer(t *testing.T, s *Server, q *query, packet []byte, udp bool) {
	before := bytes.Clone(packet)
	msg, _ := s.handle(q, packet, udp, nil, &counts{})
	if !bytes.Equal(before, packet) {
		t.Fatal("the packet was changed")
	}
	if msg == nil {
		return
	}
	if udp && len(msg) > maxUDPSize || len(msg) > maxMessage {
		t.Errorf("%d bytes", len(msg))
	}
	binary.BigEndian.PutUint16(msg, binary.BigEndian.Uint16(msg)-binary.BigEndian.Uint16(packet)+0x1234)
	if text := textOf(msg); strings.Contains(text, "unreadable") && !strings.Contains(text, "unreadable question") || strings.Contains(text, "id=") {
		t.Errorf("%q\n%s", packet, text)
	}
}

// TestRandomPackets changes queries and upstream responses at random, from a printed seed.
func TestRandomPackets(t *testing.T) {
	seed := seed.New(t)
	random := rand.New(rand.NewPCG(seed, 0))
	mutated := func(packet []byte) []byte {
		packet = bytes.Clone(packet)
		for range 1 + random.IntN(4) {
			switch at := random.IntN(len(packet)); random.IntN(5) {
			case 0:
				packet = packet[:max(at, 1)]
			case 1:
				packet = append(packet, packet[at:]...)
			case 2:
				packet = append(packet[:at:at], append([]byte{byte(random.IntN(70))}, packet[at:]...)...)
			case 3:
				packet[at] = []byte{0, 1, 12, 41, 63, 64, 0xC0, 0xFF}[random.IntN(8)]
			default:
				packet[at] ^= 1 << random.IntN(8)
			}
		}
		return packet
	}
	s, q := fuzzServer(), &query{}
	var packets [][]byte
	for _, question := range questions(t) {
		packet, _ := packetOf(t, question)
		packets = append(packets, packet)
	}
	for range 50_000 {
		checkAnswer(t, s, q, mutated(packets[random.IntN(len(packets))]), random.IntN(2) == 0)
	}
	external := &upstream{}
	var answers [][]byte
	for _, question := range []string{"www.example.com. A", "alias.example.com. A", "missing.example.com. A", "big.example.com. TXT"} {
		packet, _ := packetOf(t, question)
		answers = append(answers, external.answer(packet, true))
	}
	packet, _ := packetOf(t, "alias.example.com. A edns=1232")
	q.read(packet, true)
	for range 50_000 {
		checkResponse(t, q, mutated(answers[random.IntN(len(answers))]))
	}
}

// FuzzResponse: any upstream response can be passed on without a panic.
func FuzzResponse(f *testing.F) {
	external := &upstream{}
	for _, question := range []string{"www.example.com. A", "alias.example.com. A", "missing.example.com. A", "big.example.com. TXT"} {
		packet, _ := packetOf(f, question)
		f.Add(external.answer(packet, true))
	}
	packet, _ := packetOf(f, "alias.example.com. A edns=1232")
	q := &query{}
	q.read(packet, true)
	f.Fuzz(func(t *testing.T, msg []byte) { checkResponse(t, q, msg) })
}

func checkResponse(t *testing.T, q *query, msg []byte) {
	r, err := newResponse(bytes.Clone(msg), time.Now())
	if err != nil {
		return
	}
	if out := r.write(q, nil, time.Now().Add(time.Second)); len(out) > q.maxSize {
		t.Errorf("%d bytes", len(out))
	}
	in := &reader{msg: r.msg}
	in.skipQuestion()
	in.answers(toQuestion)
	newResponseCache(1<<20).put("x", r)
}

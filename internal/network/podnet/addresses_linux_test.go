package podnet

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestAddressesExhausted: addresses are allocated round robin, and the error when none is left is host-local's.
func TestAddressesExhausted(t *testing.T) {
	node := newNamespace(t, "node")
	a := newTestServer(t, node)
	small := prefixes("10.42.0.0/29")
	first := newNamespace(t, "first")
	for _, want := range []string{"10.42.0.2/29", "10.42.0.3/29", "10.42.0.4/29", "10.42.0.5/29", "10.42.0.6/29"} { // a released address is not allocated next
		if made := a.add(t, "first", first, small); made.IPs[0].Address.String() != want {
			t.Errorf("%v instead of %s", made.IPs[0].Address, want)
		}
		if _, err := a.call("DEL", "first", first, pluginConfig{}); err != nil {
			t.Error(err)
		}
	}
	var pods []*namespace
	for i := range 5 { // .1 is the gateway, .7 the broadcast address
		pods = append(pods, newNamespace(t, fmt.Sprint("pod", i)))
		made := a.add(t, fmt.Sprint("pod", i), pods[i], small)
		if got, want := made.IPs[0].Address.String(), fmt.Sprintf("10.42.0.%d/29", i+2); got != want {
			t.Errorf("pod %d has %s, not %s", i, got, want)
		}
	}
	more := newNamespace(t, "more")
	const want = "failed to allocate for range 0: no IP addresses available in range set: 10.42.0.1-10.42.0.6"
	if _, err := a.call("ADD", "more", more, pluginConfig{Ranges: small}); err == nil || err.Error() != want {
		t.Errorf("%v, not %s", err, want)
	}
	if _, err := a.call("STATUS", "", nil, pluginConfig{Ranges: small}); err == nil || !strings.Contains(err.Error(), "no IP addresses available") {
		t.Errorf("STATUS of a full node: %v", err)
	}
	if len(a.files(t)) != 5 {
		t.Errorf("addresses %v", a.files(t))
	}
	for _, i := range []int{1, 3} {
		if _, err := a.call("DEL", fmt.Sprint("pod", i), pods[i], pluginConfig{}); err != nil {
			t.Error(err)
		}
	}
	for _, want := range []string{"10.42.0.3/29", "10.42.0.5/29"} {
		if made := a.add(t, "more"+want[8:9], newNamespace(t, "more"+want[8:9]), small); made.IPs[0].Address.String() != want {
			t.Errorf("after %v were given back comes %v", want, made.IPs[0].Address)
		}
	}
	// If one family has no address left, that of the other is released again.
	if _, err := a.call("ADD", "more", more, pluginConfig{Ranges: prefixes("fd42::/64", "10.42.0.0/29")}); err == nil {
		t.Error("a pod without one of its addresses is attached")
	}
	if slices.ContainsFunc(a.files(t), func(name string) bool { return strings.Contains(name, ":") }) {
		t.Errorf("addresses %v", a.files(t))
	}
	// GC removes attachments that are not listed as valid.
	if _, err := a.call("GC", "", nil, pluginConfig{Valid: []validAttachment{{"pod0", "eth0"}}}); err != nil {
		t.Error(err)
	}
	if files, links := a.files(t), node.veths(t); !slices.Equal(files, []string{"10.42.0.2"}) || len(links) != 1 {
		t.Errorf("addresses %v, links %v", files, links)
	}
	if _, err := a.call("STATUS", "", nil, pluginConfig{Ranges: small}); err != nil {
		t.Errorf("STATUS: %v", err)
	}
}

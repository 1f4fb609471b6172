package dns

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"
	"time"
)

// TestSourcesSurviveAFailedListing: when the node's addresses cannot be listed, those of the last listing are still answered.
func TestSourcesSurviveAFailedListing(t *testing.T) {
	var listErr error
	nodeAddr, stranger := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("198.51.100.1")
	s := &sources{log: slog.New(slog.DiscardHandler), listAddrs: func() ([]netip.Prefix, error) {
		if listErr != nil {
			return nil, listErr
		}
		return []netip.Prefix{netip.PrefixFrom(nodeAddr, 24)}, nil
	}}
	if !s.allow(nodeAddr) || s.allow(stranger) {
		t.Fatal("only the node's address is to be answered")
	}
	listErr = errors.New("no netlink")
	s.listedAt = time.Now().Add(-2 * nodeAddrsMaxAge)
	if s.allow(stranger) {
		t.Error("a stranger is answered after a failed listing")
	}
	if s.listedAt.Before(time.Now().Add(-nodeAddrsMaxAge)) {
		t.Fatal("the addresses were not listed again")
	}
	if !s.allow(nodeAddr) {
		t.Error("the node's address is not answered after a failed listing")
	}
}

package bundle

import (
	"bytes"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// What containerd answers about leases is read field by field: unknown ones are passed over, and what is broken is not taken for a lease.
func TestLeaseFields(t *testing.T) {
	made := time.Unix(1_700_000_000, 5)
	at, err := proto.Marshal(timestamppb.New(made))
	if err != nil {
		t.Fatal(err)
	}
	field := func(to []byte, number protowire.Number, value []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
	}
	lease := protowire.AppendVarint(protowire.AppendTag(nil, 9, protowire.VarintType), 7)
	lease = field(field(field(lease, 1, []byte("lease")), 2, at), 3, []byte("label"))
	list := fields(field(field(nil, 1, lease), 1, []byte("\x00")))[1]
	if len(list) != 2 || !bytes.Equal(list[0], lease) {
		t.Fatalf("%d leases: %q", len(list), list)
	}
	in := fields(list[0])
	if string(in[1][0]) != "lease" || !timestamp(in[2][0]).Equal(made) {
		t.Errorf("%q made at %v", in[1], timestamp(in[2][0]))
	}
	if broken := fields(list[1]); len(broken) > 0 {
		t.Errorf("what is broken has fields: %v", broken)
	}
	if time.Since(timestamp(nil)) > time.Minute {
		t.Error("a lease without a time is old")
	}
	request := fields(deleteLease("lease"))
	if string(request[1][0]) != "lease" {
		t.Errorf("the request deletes %q", request[1])
	}
}

package codec_test

import (
	"testing"

	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// TestStale: a stored value is stale if it is of another encoding or version than is written today, in whatever order its fields are.
func TestStale(t *testing.T) {
	var info *catalog.Info
	for _, i := range all.Resources() {
		if i.GVR.Resource == "storageversionmigrations" {
			info = i // served as v1, stored as v1beta1
		}
	}
	obj := info.New().(catalog.Object)
	obj.SetName("m")
	protobuf, _, err := codec.NewStored(info, false).Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	ownJSON, _, err := codec.NewStored(info, true).Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	older := codec.AppendEnvelope(nil, codec.EnvelopeHead(info.GVK), nil)
	for _, c := range []struct {
		name         string
		value        []byte
		asJSON, want bool
	}{
		{"protobuf", protobuf, false, false},
		{"protobuf in another version", older, false, true},
		{"JSON where protobuf is written", ownJSON, false, true},
		{"protobuf where JSON is written", protobuf, true, true},
		{"JSON", ownJSON, true, false},
		{"JSON in another order", []byte(`{"apiVersion":"storagemigration.k8s.io/v1beta1","kind":"StorageVersionMigration","metadata":{}}`), true, false},
		{"JSON in another version", []byte(`{"apiVersion":"storagemigration.k8s.io/v1","kind":"StorageVersionMigration","metadata":{}}`), true, true},
		{"JSON in another version, in our order", []byte(`{"kind":"StorageVersionMigration","apiVersion":"storagemigration.k8s.io/v1","metadata":{}}`), true, true},
	} {
		if got := codec.NewStored(info, c.asJSON).Stale(c.value); got != c.want {
			t.Errorf("%s: stale is %v", c.name, got)
		}
	}
}

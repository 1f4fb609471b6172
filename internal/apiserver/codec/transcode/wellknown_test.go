package transcode

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"skiff/test/seed"
)

func TestStrings(t *testing.T) {
	all := slices.Clone(texts)
	for c := range 0x300 {
		all = append(all, "x"+string(rune(c))+"y", "x"+string([]byte{byte(c), byte(c >> 2)})+"y")
	}
	for r := rune(0x2020); r < 0x2030; r++ {
		all = append(all, string(r))
	}
	for _, s := range all {
		want, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := AppendString(nil, []byte(s)); !bytes.Equal(got, want) {
			t.Errorf("%q: got %s, want %s", s, got, want)
		}
	}
}

func TestQuantities(t *testing.T) {
	seed := seed.New(t)
	r := filler{rand.New(rand.NewPCG(seed, 0))}
	for range 100000 {
		of := reflect.TypeFor[resource.Quantity]()
		plan, err := Compile(of)
		if err != nil {
			t.Fatal(err)
		}
		message := appendBytes(nil, 1, []byte(r.quantityText()))
		want, wantErr := reference(of, message)
		got, gotErr := appendWellKnown(nil, value{quantity, plan}, message)
		if (gotErr == nil) != (wantErr == nil) || gotErr == nil && !bytes.Equal(got, want) {
			t.Fatalf("%q: got %s %v, want %s %v", message, got, gotErr, want, wantErr)
		}
	}
}

func TestPlainObjects(t *testing.T) {
	tests := map[string]bool{
		`{}`: true, `{"a":{}}`: true, `{"a":{},"b":{"c":{}},"d":{}}`: true, `{"k:{\"a\":\"\\\"}":{}}`: true, `{"":{}}`: true,
		``: false, `{`: false, `}`: false, `{}}`: false, `{},{}`: false, `{"a"}`: false, `{"a":}`: false, `{"a":{},}`: false, `{,"a":{}}`: false,
		`{"a":1}`: false, `{"a":{} }`: false, `{"<":{}}`: false, `{"a`: false, `{"a\`: false, `{"\x":{}}`: false, "{\"\n\":{}}": false, `{{}}`: false,
		strings.Repeat(`{"a":`, maxPlain) + strings.Repeat("}", maxPlain):                   false,
		strings.Repeat(`{"a":`, maxPlain-1) + "{" + strings.Repeat("}", maxPlain):           true,
		strings.Repeat(`{"a":`, maxPlain) + "{" + strings.Repeat("}", maxPlain+1):           false,
		strings.Repeat(`{"a":`, maxPlain-1) + `{},"b":{}` + strings.Repeat("}", maxPlain-1): true,
	}
	for raw, want := range tests {
		if got := plainObject([]byte(raw)); got != want {
			t.Errorf("%.40s: %t", raw, got)
		}
		if want && !json.Valid([]byte(raw)) {
			t.Errorf("%.40s is not JSON", raw)
		}
	}
}

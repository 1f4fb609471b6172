package codec_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"skiff/internal/apiserver/codec"
	"skiff/internal/catalog/initializers"
)

func TestSentInitializers(t *testing.T) {
	for _, c := range []struct {
		body string
		sent bool
		want string
	}{
		{`{}`, false, ""},
		{`{"metadata":{"name":"initializers"},"data":{"initializers":"{}"}}`, false, ""},
		{`{"metadata":{"annotations":{"initializers":"x"}}}`, false, ""},
		{`{"metadata":{"initializers":null}}`, true, ""},
		{`{"metadata":{"initializers":{}}}`, true, ""},
		{`{"metadata":{"initializers":{"pending":[]}}}`, true, ""},
		{`{"metadata":{"initializers":{"pending":[{"name":"a"},{"name":"b"}]}}}`, true, "a b"},
		{`{"metadata":{"Initializers":{"pending":[{"name":"a"}]}}}`, false, ""},
		{`{"metadata":"initializers"}`, false, ""},
		{`initializers`, false, ""},
	} {
		in, sent, err := codec.SentInitializers([]byte(c.body), codec.JSON)
		if got := strings.Join(in.Names(), " "); err != nil || sent != c.sent || got != c.want {
			t.Errorf("%s: %q, %t, %v", c.body, got, sent, err)
		}
	}
	for _, body := range []string{`{"metadata":{"initializers":[]}}`, `{"metadata":{"initializers":{"pending":{}}}}`, `{"metadata":{"initializers":{"pending":[1]}}}`} {
		if _, _, err := codec.SentInitializers([]byte(body), codec.JSON); err == nil {
			t.Errorf("%s is no error", body)
		}
	}
}

// FuzzSentInitializers: what is written into the JSON of an object is what is read from it.
func FuzzSentInitializers(f *testing.F) {
	f.Add([]byte(`{"metadata":{"initializers":{"pending":[{"name":"a"}],"result":{"status":"Failure"}}},"data":{}}`))
	f.Add([]byte("metadata: {initializers: {pending: [{name: a}]}}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, media := range []codec.Media{codec.JSON, codec.YAML, codec.Protobuf} {
			in, sent, err := codec.SentInitializers(body, media)
			if err != nil || !sent || in == nil {
				continue
			}
			object, err := codec.WithInitializers([]byte(`{"kind":"K","metadata":{"name":"x"},"spec":{"metadata":{}}}`), in)
			if err != nil || !json.Valid(object) {
				t.Fatalf("%s, %v", object, err)
			}
			again, sent, err := codec.SentInitializers(object, codec.JSON)
			if err != nil || !sent {
				t.Fatalf("%s: %t, %v", object, sent, err)
			}
			a, _ := json.Marshal(in)
			if b, _ := json.Marshal(again); !bytes.Equal(a, b) || !again.Done() && initializers.Of(again.Names()...) == nil && again.Result == nil {
				t.Fatalf("%s becomes %s", a, b)
			}
		}
	})
}

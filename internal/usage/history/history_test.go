package history

import (
	"bytes"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"
)

var today = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

func ago(days int) time.Time { return today.Add(-time.Duration(days) * 24 * time.Hour) }

func open(t testing.TB, file string) *History {
	t.Helper()
	return Open(file, slog.New(slog.DiscardHandler))
}

const week = 7 * 24 * time.Hour

func (h *History) expect(t *testing.T, q Query, r Resource, value, numbers uint64) {
	t.Helper()
	got, n := h.Percentile(q, r, 90, today)
	if n != numbers || float64(got) < float64(value) || float64(got) > float64(value)*growth+1 {
		t.Errorf("%+v: got %d of %d numbers, want at least %d, a tenth more at most, of %d", q, got, n, value, numbers)
	}
}

func TestPercentiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "usage", "history")
	h := open(t, file)
	for i := range 100 {
		h.Add("a", "web:1", ago(1), uint64(i+1)*10_000_000, 100<<20)
	}
	h.Add("b", "web:1", ago(2), 5_000_000_000, 1<<30)
	h.Add("a", "web:2", ago(10), 3_000_000, 1<<20)
	h.Add("a", "registry:5000/web", ago(1), 1, 1)
	check := func(h *History) {
		t.Helper()
		h.expect(t, Query{Namespace: "a", Image: "web:1", Within: week}, CPU, 900_000_000, 100)
		h.expect(t, Query{Namespace: "a", Image: "web:1", Within: week}, Memory, 100<<20, 100)
		h.expect(t, Query{Image: "web:1", Within: week}, CPU, 910_000_000, 101)
		h.expect(t, Query{Namespace: "b", Image: "web:1", Within: week}, Memory, 1<<30, 1)
		h.expect(t, Query{Namespace: "a", Image: "web:2", Within: week}, CPU, 0, 0)
		h.expect(t, Query{Namespace: "a", Image: "web:2", Within: 30 * 24 * time.Hour}, CPU, 3_000_000, 1)
		h.expect(t, Query{Image: "web:3", AnyTag: true, Within: 30 * 24 * time.Hour}, Memory, 100<<20, 102)
		h.expect(t, Query{Image: "web@sha256:0", AnyTag: true, Within: week}, CPU, 910_000_000, 101)
		h.expect(t, Query{Image: "registry:5000/web:3", AnyTag: true, Within: week}, CPU, 1_000_000, 1)
	}
	check(h)
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	check(open(t, file)) // what a server that was killed finds
}

// Numbers of each size are in a bucket that holds them.
func TestBuckets(t *testing.T) {
	for r := range resources {
		for n := uint64(1); n < 1<<50; n += n/7 + 1 {
			b := bucketOf(r, n)
			if high := bound(r, int(b)); float64(n) > high || b > 0 && float64(n) < bound(r, int(b)-1) {
				t.Fatalf("%d is in bucket %d, up to %f", n, b, high)
			}
		}
		if b := bucketOf(r, math.MaxUint64); b != 255 {
			t.Errorf("the largest number is in bucket %d", b)
		}
	}
}

// There is a bound for everything, and what is oldest goes first.
func TestBounds(t *testing.T) {
	h := open(t, filepath.Join(t.TempDir(), "history"))
	h.Add("a", "old:1", ago(40), 1, 1)
	h.Add("a", "web:1", ago(31), 1, 1)
	h.Add("a", "web:1", ago(0), 1, 1)
	if len(h.images) != 1 || h.buckets != 2 || len(h.images[key{"a", "web:1"}]) != 1 {
		t.Errorf("%d images, %d buckets", len(h.images), h.buckets)
	}
	for i := range maxImages {
		h.Add("a", fmt.Sprint("image:", i), ago(0).Add(24*time.Hour), 1, 1)
	}
	if len(h.images) != maxImages || h.images[key{"a", "web:1"}] != nil {
		t.Errorf("%d images", len(h.images))
	}
	h.Add("a", "", today, 1, 1)
	h.Add("a", string(make([]byte, maxName+1)), today, 1, 1)
	if len(h.images) != maxImages {
		t.Errorf("%d images", len(h.images))
	}
	// The most that there can be: each image uses something else every time.
	h = open(t, filepath.Join(t.TempDir(), "history"))
	for d := 30; d >= 0; d-- {
		for i := range 100 {
			for b := range 256 {
				h.Add("a", fmt.Sprint("image:", i), ago(d), uint64(bound(CPU, b)), uint64(bound(Memory, b)))
			}
		}
	}
	if h.buckets > maxBuckets || h.buckets < maxBuckets/2 {
		t.Errorf("%d buckets", h.buckets)
	}
	data, err := h.encode()
	if err != nil || len(data) > maxFile/8 {
		t.Errorf("%d bytes, %v", len(data), err)
	}
	t.Logf("the fullest file has %d bytes", len(data))
	counted := 0
	for _, of := range h.images {
		for _, u := range of {
			counted += len(u[CPU]) + len(u[Memory])
		}
	}
	if counted != h.buckets {
		t.Errorf("counted %d buckets, there are %d", h.buckets, counted)
	}
}

// A damaged file is put aside, and the next one is written in its place.
func TestDamaged(t *testing.T) {
	file := filepath.Join(t.TempDir(), "history")
	h := open(t, file)
	h.Add("a", "web:1", today, 1, 1)
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		if _, _, err := decode(damaged); err == nil && !bytes.Equal(bytes.ToLower(damaged), whole) { // a checksum in capitals is the same
			t.Errorf("read: %q", damaged)
		}
		if _, _, err := decode(whole[:i]); err == nil {
			t.Errorf("read: %q", whole[:i])
		}
	}
	if err := os.WriteFile(file, whole[:len(whole)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	h = open(t, file)
	if len(h.images) != 0 {
		t.Error("a damaged file was read")
	}
	if kept, err := os.ReadFile(file + aside); err != nil || !bytes.Equal(kept, whole[:len(whole)-1]) {
		t.Errorf("aside: %q, %v", kept, err)
	}
	h.Add("a", "web:2", today, 1, 1)
	if err := h.Save(); err != nil {
		t.Fatal(err)
	}
	open(t, file).expect(t, Query{Image: "web:2", Within: week}, CPU, 1_000_000, 1)
}

func FuzzDecode(f *testing.F) {
	h := open(f, filepath.Join(f.TempDir(), "history"))
	for i := range 5 {
		h.Add("a", fmt.Sprint("web:", i), ago(i), uint64(i)<<30, uint64(i)<<30)
	}
	data, err := h.encode()
	if err != nil {
		f.Fatal(err)
	}
	_, body, _ := bytes.Cut(data, []byte("\n"))
	f.Add(body)
	f.Add([]byte(`[{"image":"i","days":[{"day":-2147483648,"cpu":[[0,1]],"memory":[]}]}]`))
	f.Fuzz(func(t *testing.T, body []byte) {
		images, buckets, err := decode(withHeader(body))
		if err != nil {
			return
		}
		h := &History{images: images, buckets: buckets}
		h.Add("a", "web:1", today, 1, 1)
		h.Percentile(Query{Image: "web", AnyTag: true, Within: week}, CPU, 90, today)
		again, err := h.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := decode(again); err != nil {
			t.Errorf("what was written cannot be read: %v", err)
		}
	})
}

package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

const sampleLog = `2026-01-01T00:00:01.5Z stdout F one
2026-01-01T00:00:02.000000001Z stderr F two
this is no line of a log
2026-01-01T00:00:03Z stdout P three, be
2026-01-01T00:00:03.1Z stdout P gun and
2026-01-01T00:00:03.2Z stdout F  ended
2026-01-01T00:00:04Z stdout F 
2026-01-01T00:00:05+02:00 stdout F:more:tags five
`

func read(t *testing.T, content, query string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	o, err := parseLogQuery(q, time.Date(2026, 1, 1, 0, 0, 10, 0, time.UTC))
	if err != nil {
		return "", err
	}
	if !o.valid() {
		return "", fmt.Errorf("invalid")
	}
	l, err := openLog(path, o)
	if err != nil {
		return "", err
	}
	defer l.Close()
	w := httptest.NewRecorder()
	err = l.copyTo(t.Context(), &flushed{w, http.NewResponseController(w)}, func() bool { return false })
	return w.Body.String(), err
}

func TestWhatIsWantedOfALog(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	for _, test := range []struct{ content, query, want string }{
		{sampleLog, "", "one\ntwo\nthree, begun and ended\n\nfive\n"},
		{sampleLog, "stream=Stderr", "two\n"},
		{sampleLog, "stream=Stdout", "one\nthree, begun and ended\n\nfive\n"},
		{sampleLog, "tailLines=2", "\nfive\n"},
		{sampleLog, "tailLines=0", ""},
		{sampleLog, "tailLines=100", "one\ntwo\nthree, begun and ended\n\nfive\n"},
		{sampleLog, "tail=1", "five\n"},
		{sampleLog, "tail=all&tailLines=1", "one\ntwo\nthree, begun and ended\n\nfive\n"},
		{sampleLog, "limitBytes=6", "one\ntw"},
		{sampleLog, "limitBytes=6&tailLines=2", "\nfive\n"},
		{sampleLog, "sinceSeconds=7", "three, begun and ended\n\n"}, // the last one is two hours older
		{sampleLog, "sinceTime=2026-01-01T00:00:04Z", "\n"},
		{sampleLog, "timestamps=true&tailLines=5", "2026-01-01T00:00:03.000000000Z three, begun and ended\n2026-01-01T00:00:04.000000000Z \n2026-01-01T00:00:05.000000000+02:00 five\n"},
		{sampleLog, "timestamps=1&limitBytes=32", "2026-01-01T00:00:01.500000000Z o"},
		{sampleLog + "2026-01-01T00:00:06Z stdout F cut o", "tailLines=1", "five\n"},
		{sampleLog + "2026-01-01T00:00:06Z stdout F cut o", "follow=true&tailLines=1", "five\ncut o"},
		{sampleLog + "2026-01-01T00:00:06Z stdout F cut o", "sinceTime=2026-01-01T00:00:05Z", "cut o"},
		{"", "", ""},
		{"\n\n \n  \n   \n", "", ""},
		{"2026-01-01T00:00:06Z stdout F " + long + "\n" + sampleLog, "", long + "\none\ntwo\nthree, begun and ended\n\nfive\n"},
		{"2026-01-01T00:00:06Z stdout P " + long + "\n2026-01-01T00:00:06Z stdout F end\n", "timestamps=true", "2026-01-01T00:00:06.000000000Z " + long + "end\n"},
		{sampleLog + "2026-01-01T00:00:06Z stdout F " + long + "\n", "tailLines=1", long + "\n"},
	} {
		got, err := read(t, test.content, test.query)
		if err != nil || got != test.want {
			t.Errorf("%s of %d bytes:\ngot  %.200q (%d) %v\nwant %.200q (%d)", test.query, len(test.content), got, len(got), err, test.want, len(test.want))
		}
	}
	for _, query := range []string{"tailLines=x", "limitBytes=0", "limitBytes=-1", "tailLines=-1", "sinceSeconds=0", "sinceSeconds=1&sinceTime=2026-01-01T00:00:04Z",
		"sinceTime=yesterday", "stream=Other", "stream=Stdout&tailLines=1", "sinceSeconds=x"} {
		if got, err := read(t, sampleLog, query); err == nil {
			t.Errorf("%s: %q", query, got)
		}
	}
}

// A log that is followed is read through its rotations, and to its end.
func TestFollowThroughRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "0.log")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		line := func(f *os.File, text string) { fmt.Fprintf(f, "2026-01-01T00:00:06Z stdout F %s\n", text) }
		line(f, "before")
		l, err := openLog(path, &logQuery{follow: true, tail: -1, limit: -1, stdout: true, stderr: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w := &httptest.ResponseRecorder{Body: &bytes.Buffer{}}
		var alive atomic.Bool
		alive.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- l.copyTo(ctx, &flushed{w, http.NewResponseController(w)}, alive.Load)
		}()
		expect := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			if got := w.Body.String(); got != want {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
		expect("before\n")
		fmt.Fprint(f, "2026-01-01T00:00:07Z stdout F half")
		expect("before\n")
		fmt.Fprint(f, " a line\n")
		expect("before\nhalf a line\n")
		for i := range 3 {
			if err := os.Rename(path, path+fmt.Sprint(".", i)); err != nil {
				t.Fatal(err)
			}
			line(f, "into the old file") // until the runtime is told
			next, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			line(f, "just before the change")
			f.Close()
			f = next
			line(f, "into the new file")
		}
		one := "into the old file\njust before the change\ninto the new file\n"
		// Who rotates three times in no time loses what was in between.
		expect("before\nhalf a line\ninto the old file\njust before the change\ninto the new file\n")
		line(f, "last words")
		alive.Store(false)
		expect("before\nhalf a line\n" + one + "last words\n")
		if err := <-done; err != nil {
			t.Error(err)
		}
		f.Close()
	})
}

func TestFollowTruncated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "0.log")
		write := func(text string) {
			if err := os.WriteFile(path, []byte("2026-01-01T00:00:06Z stdout F "+text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("something long")
		l, err := openLog(path, &logQuery{follow: true, tail: -1, limit: -1, stdout: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		w := &httptest.ResponseRecorder{Body: &bytes.Buffer{}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- l.copyTo(ctx, &flushed{w, http.NewResponseController(w)}, func() bool { return true })
		}()
		time.Sleep(time.Second)
		write("short")
		time.Sleep(time.Second)
		cancel()
		<-done
		if got, want := w.Body.String(), "something long\nshort\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

func FuzzLogLine(f *testing.F) {
	f.Add([]byte(sampleLog))
	f.Fuzz(func(t *testing.T, content []byte) {
		l := &logFile{q: &logQuery{stdout: true, stderr: true, timestamps: true}, lines: -1, bytes: -1}
		for line := range bytes.Lines(content) {
			if err := l.write(line, &bytes.Buffer{}); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestLogIsARegularFile opens what a pod that may write to the node's logs can put in the place of one.
func TestLogIsARegularFile(t *testing.T) {
	dir := t.TempDir()
	secret, link, fifo := filepath.Join(dir, "secret"), filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.WriteFile(secret, []byte("secret"), 0o600), os.Symlink(secret, link), syscall.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, fifo} {
		if l, err := openLog(path, &logQuery{tail: -1}); err == nil {
			l.Close()
			t.Fatalf("%s was opened", path)
		}
	}
}

package apiserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	recordFrom  = flag.String("record", "", "URL of an upstream API server: write its answers into testdata/stories")
	stories     = flag.String("stories", "testdata/stories", "directory of the stories")
	recordToken = flag.String("record-token", "admintoken", "bearer token for -record")
)

// A story is a file of requests with the answers an upstream server gave to them, in order. The server must give the same. To write the
// answers down again:
//
//	go test ./internal/apiserver -run TestStories -record https://127.0.0.1:6443
//
// A request is its first line, headers, what to remember of its answer ("@name = path"), and a body. In all of them $NS is the story's
// namespace, $name something remembered, and ${100*x*} a hundred x. A body that begins with base64: is binary.
//
// What differs with every run (uids, versions, times) is left out of answers unless it was remembered. The line "managed" shows managed
// fields, "header NAME" a header; "quiet" leaves out the body. "ours" says that the answer is skiff's own, and why.
func TestStories(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(*stories, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			if *recordFrom != "" {
				record(t, file)
			} else {
				replay(t, file)
			}
		})
	}
}

func replay(t *testing.T, file string) {
	play(t, file, inProcess(t), func(step *step, got string) {
		if got = shortAge.ReplaceAllString(got, `"0s"`); got != step.want { // on a slow machine things get old
			t.Errorf("%s:%d: %s\n got: %s\nwant: %s", file, step.line, step.request, around(got, step.want), around(step.want, got))
		}
	})
}

type sender func(*http.Request) (*http.Response, error)

func inProcess(t *testing.T) sender {
	s := start(t)
	return func(r *http.Request) (*http.Response, error) {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, r)
		return w.Result(), nil
	}
}

// around cuts a text down to where it begins to differ from another.
func around(text, other string) string {
	const before, after = 200, 600
	same := 0
	for same < min(len(text), len(other)) && text[same] == other[same] {
		same++
	}
	from, to := max(0, same-before), min(len(text), same+after)
	return strings.TrimSpace(text[from:to])
}

// record writes down what upstream answers, and then what skiff answers to the requests that are answered in its own way.
func record(t *testing.T, file string) {
	rewrite(t, file, upstream, func(s *step) bool { return !s.ours })
	rewrite(t, file, inProcess(t), func(s *step) bool { return s.ours })
}

func upstream(r *http.Request) (*http.Response, error) {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, Timeout: 30 * time.Second}
	target, err := http.NewRequestWithContext(r.Context(), r.Method, *recordFrom+r.URL.RequestURI(), r.Body)
	if err != nil {
		return nil, err
	}
	target.Header, target.ContentLength = r.Header, r.ContentLength
	target.Header.Set("Authorization", "Bearer "+*recordToken)
	if target.Header.Get("Accept-Encoding") == "" {
		target.Header.Set("Accept-Encoding", "identity")
	}
	return client.Do(target)
}

func rewrite(t *testing.T, file string, send sender, which func(*step) bool) {
	var out strings.Builder
	tail := play(t, file, send, func(s *step, got string) {
		if !which(s) {
			got = s.want
		}
		out.WriteString(s.source + "----\n" + got + "\n")
	})
	text := strings.TrimRight(out.String()+tail, "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// play sends the requests of a story and passes on what was answered. It returns what follows the last request.
func play(t *testing.T, file string, by sender, told func(*step, string)) string {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	steps, tail := parseStory(t, file, string(data))
	known := map[string]string{"NS": fmt.Sprintf("story-%x", rand.Uint32())}
	namespace := &step{request: "POST /api/v1/namespaces", body: `{"metadata":{"name":"$NS"}}`}
	if got := namespace.send(t, known, by); !strings.HasPrefix(got, "201") {
		t.Fatalf("making the namespace: %s", got)
	}
	for _, s := range steps {
		told(s, s.send(t, known, by))
	}
	return tail
}

// step is one request of a story.
type step struct {
	line     int
	source   string // what stands before the answer
	request  string
	headers  [][2]string
	remember [][2]string
	body     string
	shown    []string // headers to show
	managed  bool
	quiet    bool
	ours     bool
	want     string
}

var (
	headerLine   = regexp.MustCompile(`^([A-Z][A-Za-z-]+): (.*)$`)
	rememberLine = regexp.MustCompile(`^@(\w+) = (.*)$`)
	manyTimes    = regexp.MustCompile(`\$\{(\d+)\*(.*?)\*\}`)
	// quotedVersion is a version in an error that quotes the object.
	quotedVersion = regexp.MustCompile(`(resourceVersion(?::|\\+":\\+"))\d+`)
	anyUUID       = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	anyTime       = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`)
	shortAge      = regexp.MustCompile(`"\d{1,2}s"`)
	variable      = regexp.MustCompile(`\$\w+`)
)

func parseStory(t *testing.T, file, text string) (steps []*step, tail string) {
	lines := strings.SplitAfter(text, "\n")
	var source strings.Builder
	for i := 0; i < len(lines); {
		if line := lines[i]; strings.TrimSpace(line) == "" || line[0] == '#' {
			source.WriteString(line)
			i++
			continue
		}
		s := &step{line: i + 1, request: strings.TrimSpace(lines[i])}
		begin := i
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != "----"; i++ {
			s.add(strings.TrimSuffix(lines[i], "\n"))
		}
		if i == len(lines) {
			t.Fatalf("%s:%d: no line ---- after the request", file, s.line)
		}
		s.source = source.String() + strings.Join(lines[begin:i], "")
		source.Reset()
		var want strings.Builder
		for i++; i < len(lines) && strings.TrimSpace(lines[i]) != ""; i++ {
			want.WriteString(lines[i])
		}
		s.want = want.String()
		i++ // the empty line
		steps = append(steps, s)
	}
	return steps, source.String()
}

func (s *step) add(line string) {
	switch {
	case s.body != "":
		s.body += "\n" + line
	case line == "managed":
		s.managed = true
	case line == "quiet":
		s.quiet = true
	case strings.HasPrefix(line, "ours: "):
		s.ours = true
	case strings.HasPrefix(line, "header "):
		s.shown = append(s.shown, strings.TrimPrefix(line, "header "))
	case headerLine.MatchString(line):
		m := headerLine.FindStringSubmatch(line)
		s.headers = append(s.headers, [2]string{m[1], m[2]})
	case rememberLine.MatchString(line):
		m := rememberLine.FindStringSubmatch(line)
		s.remember = append(s.remember, [2]string{m[1], m[2]})
	default:
		s.body = line
	}
}

// send sends the request and returns the answer as the story tells it.
func (s *step) send(t *testing.T, known map[string]string, by sender) string {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	expand := func(text string) string {
		text = manyTimes.ReplaceAllStringFunc(text, func(m string) string {
			parts := manyTimes.FindStringSubmatch(m)
			n, err := strconv.Atoi(parts[1])
			if err != nil {
				t.Fatal(err)
			}
			return strings.Repeat(parts[2], n)
		})
		return variable.ReplaceAllStringFunc(text, func(m string) string {
			if v, ok := known[m[1:]]; ok {
				return v
			}
			return m
		})
	}
	method, path, _ := strings.Cut(s.request, " ")
	body := []byte(expand(s.body))
	if encoded, ok := strings.CutPrefix(s.body, "base64:"); ok {
		var err error
		if body, err = base64.StdEncoding.DecodeString(encoded); err != nil {
			t.Fatalf("line %d: %v", s.line, err)
		}
	}
	r := httptest.NewRequestWithContext(ctx, method, expand(path), bytes.NewReader(body))
	r.Header.Set("User-Agent", "storyteller/1")
	for _, h := range s.headers {
		r.Header.Set(h[0], expand(h[1]))
	}
	response, err := by(r)
	if err != nil {
		t.Fatalf("line %d: %s: %v", s.line, s.request, err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("line %d: %s: %v", s.line, s.request, err)
	}
	return s.show(t, known, response, got)
}

func (s *step) show(t *testing.T, known map[string]string, response *http.Response, body []byte) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%d", response.StatusCode)
	if kind := response.Header.Get("Content-Type"); kind != "application/json" {
		fmt.Fprintf(&out, " %s", kind)
	}
	out.WriteString("\n")
	for _, w := range response.Header["Warning"] {
		fmt.Fprintf(&out, "Warning: %s\n", w)
	}
	if after := response.Header.Get("Retry-After"); after != "" {
		fmt.Fprintf(&out, "Retry-After: %s\n", after)
	}
	for _, name := range s.shown {
		for _, v := range response.Header.Values(name) {
			fmt.Fprintf(&out, "%s: %s\n", name, v)
		}
	}
	var v any
	if json.Unmarshal(body, &v) == nil {
		for _, r := range s.remember {
			known[r[0]] = lookUp(t, v, r[1])
		}
		v = s.tidy(v, known)
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(v); err != nil {
			t.Fatal(err)
		}
		body = bytes.TrimSpace(b.Bytes())
	}
	text := anyTime.ReplaceAllLiteralString(string(body), "…")
	text = quotedVersion.ReplaceAllString(text, "$1…")
	for _, name := range sortedKeys(known) {
		if value := known[name]; value != "" {
			whole := regexp.MustCompile(`\b` + regexp.QuoteMeta(value) + `\b`)
			text = whole.ReplaceAllLiteralString(text, "$"+name)
		}
	}
	text = anyUUID.ReplaceAllLiteralString(text, "$$")
	if !s.quiet && text != "" {
		const longest = 4000
		if len(text) > longest {
			text = text[:longest] + " …"
		}
		for line := range strings.Lines(text) {
			if strings.TrimSpace(line) != "" { // an empty line would end the answer
				out.WriteString(line)
			}
		}
		out.WriteString("\n")
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	// The longest values first: one may be a part of another.
	sort.Slice(keys, func(i, j int) bool { return len(m[keys[i]]) > len(m[keys[j]]) })
	return keys
}

func lookUp(t *testing.T, v any, path string) string {
	for _, part := range strings.Split(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[part]
		case []any:
			n, err := strconv.Atoi(part)
			if err != nil || n >= len(in) {
				t.Fatalf("%s: nothing at %s", path, part)
			}
			v = in[n]
		}
	}
	if v == nil {
		t.Fatalf("the answer has no %s", path)
	}
	return fmt.Sprint(v)
}

// tidy leaves out what is different every time.
func (s *step) tidy(v any, known map[string]string) any {
	remembered := func(text any) bool {
		for _, k := range known {
			if k == text {
				return true
			}
		}
		return false
	}
	switch in := v.(type) {
	case map[string]any:
		meta, _ := in["metadata"].(map[string]any)
		if list := in["items"] != nil || in["rows"] != nil; list && meta != nil && !strings.Contains(s.request, "resourceVersionMatch=Exact") {
			delete(meta, "resourceVersion") // others write too
		}
		for key, value := range in {
			switch key {
			case "continue":
				in[key] = "…"
				continue
			case "uid", "resourceVersion":
				if !remembered(value) {
					delete(in, key)
					continue
				}
			case "creationTimestamp", "deletionTimestamp", "time", "lastTransitionTime":
				if value != nil {
					in[key] = "…"
				}
				if key == "creationTimestamp" {
					delete(in, key)
				}
				continue
			case "managedFields":
				if !s.managed {
					delete(in, key)
					continue
				}
			}
			in[key] = s.tidy(value, known)
		}
		if fields, ok := in["managedFields"].([]any); ok { // they are in order of time, which is told in seconds
			sort.Slice(fields, func(i, j int) bool { return owner(fields[i]) < owner(fields[j]) })
		}
	case []any:
		for i := range in {
			in[i] = s.tidy(in[i], known)
		}
	}
	return v
}

func owner(entry any) string {
	e, _ := entry.(map[string]any)
	return fmt.Sprint(e["manager"], e["operation"], e["subresource"])
}

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

	"skiff/internal/apiserver"
)

var (
	recordFrom  = flag.String("record", "", "URL of an upstream API server: write its answers into the stories")
	stories     = flag.String("stories", "testdata/stories", "directory of the stories")
	extensions  = flag.String("extensions", "testdata/extensions", "directory of the stories of TestExtensionStories")
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
// fields, "header NAME" a header; "quiet" leaves out the body. "until TEXT" repeats the request until its answer contains the text: for what
// a server does in its own time. "ours" says that the answer is skiff's own, and why.
func TestStories(t *testing.T) { tellStories(t, *stories) }

// TestExtensionStories plays the stories about definitions and custom objects, webhooks and policies, with the admission plugins that
// test/differential/upstream.sh leaves on.
func TestExtensionStories(t *testing.T) {
	tellStories(t, *extensions, func(o *apiserver.Options) {
		o.DisableAdmission = []string{"ServiceAccount", "Priority", "DefaultTolerationSeconds", "StorageObjectInUseProtection", "TaintNodesByCondition", "LimitRanger", "ResourceQuota"}
	})
}

// tellStories replays the stories of a directory on servers with these options, or records them.
func tellStories(t *testing.T, directory string, options ...func(*apiserver.Options)) {
	files, err := filepath.Glob(filepath.Join(directory, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no stories", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			if *recordFrom != "" {
				record(t, file, options)
			} else {
				replay(t, file, options)
			}
		})
	}
}

func replay(t *testing.T, file string, options []func(*apiserver.Options)) {
	play(t, file, inProcess(t, options...), func(step *step, got string) {
		got, want := shortAge.ReplaceAllString(got, `"0s"`), shortAge.ReplaceAllString(step.want, `"0s"`) // on a slow machine things get old
		if got != want {
			t.Errorf("%s:%d: %s\n got: %s\nwant: %s", file, step.line, step.request, around(got, want), around(want, got))
		}
	})
}

type sender func(*http.Request) (*http.Response, error)

func inProcess(t *testing.T, options ...func(*apiserver.Options)) sender {
	s := start(t, options...)
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
func record(t *testing.T, file string, options []func(*apiserver.Options)) {
	rewrite(t, file, upstream, func(s *step) bool { return !s.ours })
	rewrite(t, file, inProcess(t, options...), func(s *step) bool { return s.ours })
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
	known := map[string]string{"NS": fmt.Sprintf("story-%08x", rand.Uint32())}
	namespace := &step{request: "POST /api/v1/namespaces", body: `{"metadata":{"name":"$NS"}}`}
	if got := namespace.send(t, known, by); !strings.HasPrefix(got, "201") {
		t.Fatalf("making the namespace: %s", got)
	}
	for _, s := range steps {
		told(s, s.await(t, known, by))
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
	until    string // what the answer has to contain in the end
	want     string
}

var (
	headerLine   = regexp.MustCompile(`^([A-Z][A-Za-z-]+): (.*)$`)
	rememberLine = regexp.MustCompile(`^@(\w+) = (.*)$`)
	manyTimes    = regexp.MustCompile(`\$\{(\d+)\*(.*?)\*\}`)
	// quotedVersion is a version in an error that quotes the object.
	quotedVersion = regexp.MustCompile(`(resourceVersion(?::|\\+":\\+"|: "))\d+`)
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
	case strings.HasPrefix(line, "until "):
		s.until = strings.TrimPrefix(line, "until ")
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

// await sends the request, again and again if the story waits for something, and returns the last answer.
func (s *step) await(t *testing.T, known map[string]string, by sender) string {
	longest := 15 * time.Second
	if *recordFrom != "" {
		longest = 90 * time.Second // upstream looks every few seconds whether the objects of a definition are gone
	}
	for end := time.Now().Add(longest); ; time.Sleep(5 * time.Millisecond) {
		got := s.send(t, known, by)
		if strings.Contains(got, s.until) {
			return got
		}
		if time.Now().After(end) {
			t.Errorf("line %d: %s: not answered with %s in %v", s.line, s.request, s.until, longest)
			return got
		}
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
		fmt.Fprintf(&out, "Warning: %s\n", named(w, known))
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
	text = named(text, known)
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

// named puts the names of what was remembered for what it is.
func named(text string, known map[string]string) string {
	for _, name := range sortedKeys(known) {
		if value := known[name]; value != "" {
			before := `()\b`
			if _, err := strconv.Atoi(value); err == nil {
				before = `(["=(])` // a version, which may be equal to another number in the text
			}
			whole := regexp.MustCompile(before + regexp.QuoteMeta(value) + `\b`)
			text = whole.ReplaceAllString(text, "${1}$$"+name)
		}
	}
	return text
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
				if value == "" { // as good as none
					delete(in, key)
				} else {
					in[key] = "…"
				}
				continue
			case "storageVersionHash":
				if strings.Contains(s.request, "$NS.example.com") { // the group is hashed, too
					in[key] = "…"
				}
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

package images

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

func newStore(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "images"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func name(t *testing.T, s string) Name {
	t.Helper()
	n, err := ParseName(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func sum(data string) Digest {
	s := sha256.Sum256([]byte(data))
	return digestOf(s[:])
}

// write makes a directory with files; a name that ends in a slash is a directory, content that begins with -> a link.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		var err error
		if to, ok := strings.CutPrefix(content, "-> "); ok {
			err = os.Symlink(to, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, []byte(content), 0o644)
			os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func (s *Store) mustBuild(t *testing.T, image string, files map[string]string) Descriptor {
	t.Helper()
	d, err := s.Build(t.Context(), write(t, files), "", name(t, image))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (s *Store) blobs(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(s.blobDir())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func (s *Store) names(t *testing.T) string {
	t.Helper()
	list, err := s.List()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range list {
		out = append(out, i.Name.Short())
	}
	return strings.Join(out, " ")
}

func TestNames(t *testing.T) {
	for _, c := range []struct{ in, full, short string }{
		{"nginx", "docker.io/library/nginx:latest", "nginx:latest"},
		{"docker.io/nginx:1", "docker.io/library/nginx:1", "nginx:1"},
		{"team/app", "docker.io/team/app:latest", "team/app:latest"},
		{"registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10", "registry.k8s.io/pause:3.10"},
		{"localhost:5000/a/b:x", "localhost:5000/a/b:x", "localhost:5000/a/b:x"},
		{"nginx@" + string(sum("x")), "docker.io/library/nginx@" + string(sum("x")), "nginx@" + string(sum("x"))},
	} {
		n, err := ParseName(c.in)
		if err != nil || n.String() != c.full || n.Short() != c.short {
			t.Errorf("%s is %s, %s, %v", c.in, n, n.Short(), err)
		}
	}
	for _, bad := range []string{"", "Nginx", "a b", "nginx:", "nginx@sha256:12", "-x", "a/../b", "nginx@sha512:" + strings.Repeat("a", 128)} {
		if n, err := ParseName(bad); err == nil {
			t.Errorf("%q is %s", bad, n)
		}
	}
	for _, c := range []struct{ ns, repository, ref, want string }{
		{"docker.io", "library/nginx", "latest", "docker.io/library/nginx:latest"},
		{"", "nginx", "1", "docker.io/library/nginx:1"},
		{"", "library/nginx", "1", "docker.io/library/nginx:1"},
		{"registry-1.docker.io", "team/app", "1", "docker.io/team/app:1"},
		{"", "registry.k8s.io/pause", "3.10", "registry.k8s.io/pause:3.10"},
		{"registry.k8s.io", "pause", "3.10", "registry.k8s.io/pause:3.10"},
		{"127.0.0.1:5000", "a", "b", "127.0.0.1:5000/a:b"},
	} {
		if n, err := requested(c.ns, c.repository, c.ref); err != nil || n.String() != c.want {
			t.Errorf("%v: %s, %v", c, n, err)
		}
	}
	for _, c := range [][3]string{{"..", "a", "b"}, {"", "../a", "b"}, {"", "a//b", "c"}, {"", "_tags", "a"}, {"", "a", "../b"}, {"a/b", "c", "d"}, {"", "a", "sha256:x"}, {"", "", "a"}, {"", strings.Repeat("a/", 200) + "a", "b"}} {
		if n, err := requested(c[0], c[1], c[2]); err == nil {
			t.Errorf("%q is %s", c, n)
		}
	}
}

func TestBuild(t *testing.T) {
	s := newStore(t)
	s.mustBuild(t, "base", map[string]string{"Dockerfile": "FROM scratch\nCOPY . /base/\nENV A=1 B='two words'\n", "x": "base"})
	files := map[string]string{
		"Dockerfile": `# An image.
FROM base
COPY --chown=101:102 rootfs/ /
COPY a.txt b.txt /texts/
COPY a.txt /renamed
WORKDIR /srv
WORKDIR sub
COPY b.txt .
ENV A=3 \
    # of all lines
    C=4
ENV OLD the rest of it
EXPOSE 80 53/udp
USER 101
VOLUME ["/data"]
LABEL org.example.name="a name"
STOPSIGNAL SIGQUIT
ENTRYPOINT ["/bin/server", "-x"]
CMD run it
`,
		"a.txt": "a", "b.txt": "b",
		"rootfs/bin/server": "program", "rootfs/etc/link": "-> /bin/server", "rootfs/empty/": "",
	}
	dir := write(t, files)
	os.Chmod(filepath.Join(dir, "rootfs/bin/server"), 0o755|os.ModeSetuid)
	os.Chmod(filepath.Join(dir, "rootfs/empty"), 0o777|os.ModeSticky)
	d, err := s.Build(t.Context(), dir, "", name(t, "app:1"))
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.forPlatform(name(t, "app:1"), "linux", "any")
	if err != nil || len(m.Layers) != 5 {
		t.Fatalf("%v, %v", m, err)
	}
	var c imageConfig
	data, err := s.read(m.Config.Digest)
	if err != nil || json.Unmarshal(data, &c) != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%q %q %q %s %s %v %v %v %s", c.Config.Env, c.Config.Entrypoint, c.Config.Cmd, c.Config.User, c.Config.WorkingDir, c.Config.ExposedPorts, c.Config.Volumes, c.Config.Labels, c.Config.StopSignal)
	want := `["` + defaultPath + `" "B=two words" "A=3" "C=4" "OLD=the rest of it"] ["/bin/server" "-x"] ["/bin/sh" "-c" "run it"] 101 /srv/sub map[53/udp:{} 80/tcp:{}] map[/data:{}] map[org.example.name:a name] SIGQUIT`
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var all []string
	for i, l := range m.Layers {
		all = append(all, s.listing(t, l.Digest))
		if c.RootFS.DiffIDs[i] != l.Digest {
			t.Errorf("layer %d is %s in the configuration and %s in the manifest", i, c.RootFS.DiffIDs[i], l.Digest)
		}
	}
	wantFiles := []string{
		"base/ 755 0:0\nbase/Dockerfile 644 0:0\nbase/x 644 0:0",
		"bin/ 755 101:102\nbin/server 4755 101:102\nempty/ 1777 101:102\netc/ 755 101:102\netc/link -> /bin/server",
		"texts/ 755 0:0\ntexts/a.txt 644 0:0\ntexts/b.txt 644 0:0",
		"renamed 644 0:0",
		"srv/ 755 0:0\nsrv/sub/ 755 0:0\nsrv/sub/b.txt 644 0:0",
	}
	if !slices.Equal(all, wantFiles) {
		t.Errorf("layers are\n%s", strings.Join(all, "\n--\n"))
	}
	// The same files make the same image.
	if again, err := s.Build(t.Context(), dir, "", name(t, "app:2")); err != nil || again.Digest != d.Digest {
		t.Errorf("built again it is %v, not %v: %v", again, d, err)
	}
}

// listing is what is in a layer.
func (s *Store) listing(t *testing.T, d Digest) string {
	t.Helper()
	f, err := s.open(d)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []string
	for r := tar.NewReader(f); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(out, "\n")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			out = append(out, h.Name+" -> "+h.Linkname)
		} else {
			out = append(out, fmt.Sprintf("%s %o %d:%d", h.Name, h.Mode, h.Uid, h.Gid))
		}
	}
}

func TestBuildRefused(t *testing.T) {
	s := newStore(t)
	for recipe, why := range map[string]string{
		"":                                       "begins with FROM",
		"COPY a /a":                              "begins with FROM",
		"FROM scratch\nRUN make":                 "runs no programs",
		"FROM scratch\nHEALTHCHECK x":            "is not one of FROM",
		"FROM scratch\nFROM scratch":             "one FROM",
		"FROM scratch AS x":                      "takes the name of an image",
		"FROM nowhere":                           "is not here",
		"FROM scratch\nCOPY a":                   "a destination",
		"FROM scratch\nCOPY missing /x":          "missing is not in",
		"FROM scratch\nCOPY ../../etc/passwd /x": "is not in",
		"FROM scratch\nCOPY leak /x":             "leak is not in",
		"FROM scratch\nCOPY --from=x a /x":       "--from is not supported",
		"FROM scratch\nCOPY --chown=me a /":      "takes numbers",
		"FROM scratch\nENV A":                    "key=value",
		"FROM scratch\nUSER a b":                 "one argument",
		"FROM scratch\nENV A='x":                 "not closed",
		"FROM scratch\nUSER":                     "takes arguments",
	} {
		dir := write(t, map[string]string{"Dockerfile": recipe, "a": "a", "leak": "-> /etc/passwd"})
		if _, err := s.Build(t.Context(), dir, "", name(t, "x")); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: %v, want %q", recipe, err, why)
		}
	}
	if got := s.names(t); got != "" {
		t.Errorf("images: %s", got)
	}
	if parts, err := os.ReadDir(s.partDir()); err != nil || len(parts) > 0 {
		t.Errorf("parts are left: %v, %v", parts, err)
	}
}

func TestSaveAndLoad(t *testing.T) {
	s := newStore(t)
	s.mustBuild(t, "a:1", map[string]string{"Dockerfile": "FROM scratch\nCOPY x /\n", "x": "shared"})
	s.mustBuild(t, "registry.example/b:2", map[string]string{"Dockerfile": "FROM a:1\nCOPY y /\n", "y": "own"})
	var plain bytes.Buffer
	if err := s.Save(t.Context(), &plain, name(t, "a:1"), name(t, "registry.example/b:2")); err != nil {
		t.Fatal(err)
	}
	var zipped, zstandard bytes.Buffer
	z := gzip.NewWriter(&zipped)
	z.Write(plain.Bytes())
	z.Close()
	e, _ := zstd.NewWriter(&zstandard)
	e.Write(plain.Bytes())
	e.Close()
	for how, archive := range map[string][]byte{"plain": plain.Bytes(), "gzip": zipped.Bytes(), "zstd": zstandard.Bytes()} {
		other := newStore(t)
		for range 2 { // again is no change
			if names, err := other.Load(t.Context(), bytes.NewReader(archive), ""); err != nil || len(names) != 2 {
				t.Fatalf("%s: %v, %v", how, names, err)
			}
		}
		if got := other.names(t); got != "a:1 registry.example/b:2" {
			t.Errorf("%s: %s", how, got)
		}
		for _, n := range []string{"a:1", "registry.example/b:2"} {
			before, _ := s.Resolve(name(t, n))
			after, err := other.Resolve(name(t, n))
			if err != nil || after.Digest != before.Digest || !other.Whole(name(t, n)) {
				t.Errorf("%s: %s is %v, was %v: %v", how, n, after, before, err)
			}
		}
	}
	if _, err := newStore(t).Load(t.Context(), bytes.NewReader(plain.Bytes()), "one"); err == nil || !strings.Contains(err.Error(), "2 images") {
		t.Errorf("two images under one name: %v", err)
	}
	if err := s.Save(t.Context(), io.Discard, name(t, "never")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("saved what is not there: %v", err)
	}
}

// tarOf is an archive of files; content that begins with -> is a link.
func tarOf(files ...string) []byte {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o644, Size: int64(len(files[i+1]))}
		if to, ok := strings.CutPrefix(files[i+1], "-> "); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, to, 0
		}
		w.WriteHeader(h)
		if h.Size > 0 {
			io.WriteString(w, files[i+1])
		}
	}
	w.Close()
	return out.Bytes()
}

// What docker save wrote before it wrote OCI layouts.
func TestLoadDocker(t *testing.T) {
	s := newStore(t)
	config := `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":[]}}`
	archive := tarOf("abc.json", config, "one/layer.tar", "layer", "two/layer.tar", "-> ../one/layer.tar",
		"manifest.json", `[{"Config":"abc.json","RepoTags":["old:1","old:2"],"Layers":["one/layer.tar","two/layer.tar"]}]`)
	if _, err := s.Load(t.Context(), bytes.NewReader(archive), ""); err != nil {
		t.Fatal(err)
	}
	m, err := s.forPlatform(name(t, "old:2"), "linux", "amd64")
	if err != nil || len(m.Layers) != 2 || m.Layers[1].Digest != sum("layer") || m.Config.Digest != sum(config) {
		t.Errorf("%v, %v", m, err)
	}
	if got := s.names(t); got != "old:1 old:2" {
		t.Error(got)
	}
}

func TestLoadRefused(t *testing.T) {
	config := `{}`
	manifest := func(layer Digest) string {
		return fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s","config":{"digest":"%s","size":2},"layers":[{"mediaType":"x","digest":"%s","size":5}]}`, mediaManifest, sum(config), layer)
	}
	blob := func(content string) []string { return []string{"blobs/sha256/" + sum(content).hex(), content} }
	index := func(content, name string) []string {
		return []string{"index.json", fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"%s","digest":"%s","annotations":{"io.containerd.image.name":"%s"}}]}`, mediaManifest, sum(content), name)}
	}
	whole := manifest(sum("layer"))
	for why, files := range map[string][]string{
		"not an archive of images":  {"README", "hello"},
		"does not match its digest": slices.Concat(index(whole, "a"), []string{"blobs/sha256/" + sum("layer").hex(), "damaged"}, blob(config), blob(whole)),
		"is not here":               slices.Concat(index(whole, "a"), blob(config), blob(whole)),
		"its manifest":              slices.Concat(index(whole, "a"), blob(config), blob("layer")),
		"give it a name":            slices.Concat(index(whole, ""), blob(config), blob("layer"), blob(whole)),
		"not a digest":              {"blobs/sha256/xyz", "?"},
		"has no images":             {"index.json", `{"schemaVersion":2}`},
		"index.json":                {"index.json", `{`},
		"which is not in it":        {"manifest.json", `[{"Config":"x","Layers":["y"]}]`},
		"invalid reference format":  slices.Concat(index(whole, "A B"), blob(config), blob("layer"), blob(whole)),
	} {
		s := newStore(t)
		if names, err := s.Load(t.Context(), bytes.NewReader(tarOf(files...)), ""); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, %v, want %q", names, err, why)
		}
		if got := s.names(t); got != "" {
			t.Errorf("%s: images: %s", why, got)
		}
	}
	for _, junk := range []string{"", "x", strings.Repeat("junk", 1000)} {
		if _, err := newStore(t).Load(t.Context(), strings.NewReader(junk), ""); err == nil {
			t.Errorf("%.10q was loaded", junk)
		}
	}
}

// A list for several platforms of which only some are here.
func TestLoadList(t *testing.T) {
	config := `{}`
	image := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%s","config":{"digest":"%s","size":2},"layers":[]}`, mediaManifest, sum(config))
	list := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"%[1]s","manifests":[{"mediaType":"%[2]s","digest":"%[3]s","platform":{"os":"linux","architecture":"arm64"}},{"mediaType":"%[2]s","digest":"%[4]s","platform":{"os":"linux","architecture":"amd64"}}]}`,
		mediaIndex, mediaManifest, sum("elsewhere"), sum(image))
	index := fmt.Sprintf(`{"schemaVersion":2,"manifests":[{"mediaType":"%s","digest":"%s","annotations":{"org.opencontainers.image.ref.name":"multi:1"}}]}`, mediaIndex, sum(list))
	s := newStore(t)
	archive := tarOf("index.json", index, "blobs/sha256/"+sum(config).hex(), config, "blobs/sha256/"+sum(image).hex(), image, "blobs/sha256/"+sum(list).hex(), list)
	if _, err := s.Load(t.Context(), bytes.NewReader(archive), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.forPlatform(name(t, "multi:1"), "linux", "amd64"); err != nil {
		t.Error(err)
	}
	if _, err := s.forPlatform(name(t, "multi:1"), "linux", "s390x"); err == nil {
		t.Error("an image for a platform that the list does not have")
	}
}

func TestRemove(t *testing.T) {
	s := newStore(t)
	base := map[string]string{"Dockerfile": "FROM scratch\nCOPY x /\n", "x": "shared"}
	s.mustBuild(t, "a:1", base)
	s.mustBuild(t, "a:2", base)
	s.mustBuild(t, "b", map[string]string{"Dockerfile": "FROM a:1\nCOPY y /\n", "y": "own"})
	all := s.blobs(t)
	if len(all) != 6 { // two layers, two configurations, two manifests: the same image has many names
		t.Errorf("%d blobs", len(all))
	}
	remove := func(n string) {
		t.Helper()
		if err := s.Remove(t.Context(), name(t, n)); err != nil {
			t.Fatal(err)
		}
	}
	remove("a:1")
	if got := s.blobs(t); len(got) != 6 {
		t.Errorf("%d blobs while another name is there", len(got))
	}
	remove("a:2")
	if got := s.blobs(t); len(got) != 4 || !s.Whole(name(t, "b")) { // the layer is b's too
		t.Errorf("%d blobs while b is there", len(got))
	}
	remove("b")
	if got := s.blobs(t); len(got) != 0 {
		t.Errorf("%d blobs are left", len(got))
	}
	if entries, err := os.ReadDir(s.nameDir()); err != nil || len(entries) != 0 {
		t.Errorf("names are left: %v, %v", entries, err)
	}
	if err := s.Remove(t.Context(), name(t, "b")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("removed what is not there: %v", err)
	}
}

func TestCollect(t *testing.T) {
	s := newStore(t)
	s.mustBuild(t, "kept", map[string]string{"Dockerfile": "FROM scratch\nCOPY x /\n", "x": "kept"})
	kept := s.blobs(t)
	if _, err := s.put(strings.NewReader("nobody's"), ""); err != nil {
		t.Fatal(err)
	}
	if _, err := s.newPart(); err != nil { // an upload that never ended
		t.Fatal(err)
	}
	now := time.Now()
	if freed, err := s.Collect(t.Context(), now); err != nil || freed != 0 {
		t.Errorf("freed %d of what may still be on its way: %v", freed, err)
	}
	if freed, err := s.Collect(t.Context(), now.Add(2*grace)); err != nil || freed != int64(len("nobody's")) {
		t.Errorf("freed %d: %v", freed, err)
	}
	if got := s.blobs(t); !slices.Equal(got, kept) {
		t.Errorf("blobs are %v, want %v", got, kept)
	}
	if parts, _ := os.ReadDir(s.partDir()); len(parts) != 0 {
		t.Errorf("parts are left: %v", parts)
	}
}

// What was damaged on the disk is not handed out, and is mended by bringing it again.
func TestDamage(t *testing.T) {
	s := newStore(t)
	files := map[string]string{"Dockerfile": "FROM scratch\nCOPY x /\n", "x": "content"}
	s.mustBuild(t, "a", files)
	m, err := s.forPlatform(name(t, "a"), "linux", "")
	if err != nil {
		t.Fatal(err)
	}
	layer := m.Layers[0].Digest
	damage := func(s *Store) {
		t.Helper()
		data, err := os.ReadFile(s.blobPath(layer))
		if err != nil {
			t.Fatal(err)
		}
		data[len(data)/2] ^= 1
		if err := os.WriteFile(s.blobPath(layer), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	damage(s)
	other, err := Open(s.dir) // another process, which has not seen it whole
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Store{s, other} {
		if f, err := s.open(layer); !errors.Is(err, errUnknown) {
			t.Errorf("opened what is damaged: %v, %v", f, err)
		}
	}
	if s.Whole(name(t, "a")) {
		t.Error("an image without its layer is whole")
	}
	s.mustBuild(t, "a", files)
	if !other.Whole(name(t, "a")) {
		t.Error("not mended")
	}
	damage(s) // now while it is there: it is written over
	s.mustBuild(t, "a", files)
	if f, err := other.open(layer); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
}

// Many bring and remove images that share layers, in several processes; every image that is there is whole.
func TestTogether(t *testing.T) {
	s := newStore(t)
	archives := make([][]byte, 4)
	for i := range archives {
		s.mustBuild(t, fmt.Sprintf("i%d", i), map[string]string{"Dockerfile": "FROM scratch\nCOPY x /\nCOPY y /\n", "x": "shared", "y": fmt.Sprint(i)})
		var out bytes.Buffer
		if err := s.Save(t.Context(), &out, name(t, fmt.Sprintf("i%d", i))); err != nil {
			t.Fatal(err)
		}
		archives[i] = out.Bytes()
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			mine, err := Open(s.dir)
			if err != nil {
				t.Error(err)
				return
			}
			n := name(t, fmt.Sprintf("i%d", worker))
			for range 10 {
				if _, err := mine.Load(t.Context(), bytes.NewReader(archives[worker]), ""); err != nil {
					t.Error(err)
				}
				if !mine.Whole(n) {
					t.Errorf("%s is not whole", n)
				}
				if err := mine.Remove(t.Context(), n); err != nil {
					t.Error(err)
				}
				if _, err := mine.Collect(t.Context(), time.Now()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := s.names(t); got != "" {
		t.Errorf("images are left: %s", got)
	}
}

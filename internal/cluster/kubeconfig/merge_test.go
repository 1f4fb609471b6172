package kubeconfig

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

func config(name, server string) *api.Config {
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: server}
	c.AuthInfos[name] = &api.AuthInfo{Token: "t"}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return c
}

// data makes a data directory with the administrator's kubeconfig of a cluster.
func data(t *testing.T, name, server string) string {
	t.Helper()
	dir := t.TempDir()
	if err := clientcmd.WriteToFile(*config(name, server), AdminPath(dir)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func load(t *testing.T, file string) *api.Config {
	t.Helper()
	c, err := clientcmd.LoadFromFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestMergeAndRemove: a cluster is added to the user's kubeconfig beside what is there, and only it is removed again.
func TestMergeAndRemove(t *testing.T) {
	user := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", user)
	if err := clientcmd.WriteToFile(*config("work", "https://work"), user); err != nil {
		t.Fatal(err)
	}
	before := read(t, user)
	mine := data(t, "mine", "https://mine")
	if _, err := Merge(mine, "mine"); err != nil {
		t.Fatal(err)
	}
	if got := load(t, user); got.Clusters["work"] == nil || got.Clusters["mine"].Server != "https://mine" || got.CurrentContext != "work" || IsCurrentContext("mine") {
		t.Fatalf("after merging: %v", got.Clusters)
	}
	if err := Remove(data(t, "mine", "https://other"), "mine"); err != nil {
		t.Fatal(err)
	}
	if load(t, user).Clusters["mine"] == nil {
		t.Fatal("another cluster of the same name was removed")
	}
	if err := Remove(mine, "mine"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, user); got != before {
		t.Fatalf("after removing: %s", got)
	}
}

// TestMergeKeepsTheText: what is in the user's file stays as it was written.
func TestMergeKeepsTheText(t *testing.T) {
	const added = `clusters:
- cluster:
    server: https://mine
  name: mine
users:
- name: mine
  user:
    token: t
contexts:
- context:
    cluster: mine
    user: mine
  name: mine
`
	for _, test := range []struct{ what, before, after, removed string }{
		{"empty", "", "apiVersion: v1\nkind: Config\ncurrent-context: mine\n" + added, "nothing"},
		{"nothing but a comment", "# mine\n", "# mine\n\napiVersion: v1\nkind: Config\ncurrent-context: mine\n" + added,
			"# mine\n\napiVersion: v1\nkind: Config\ncurrent-context: \"\"\nclusters: []\nusers: []\ncontexts: []\n"},
		{"empty lists", "apiVersion: v1\nclusters: []\ncontexts: null\ncurrent-context: \"\"\nkind: Config\npreferences: {}\nusers:\n",
			"apiVersion: v1\nclusters:\n- cluster:\n    server: https://mine\n  name: mine\ncontexts:\n- context:\n    cluster: mine\n    user: mine\n  name: mine\n" +
				"current-context: mine\nkind: Config\npreferences: {}\nusers:\n- name: mine\n  user:\n    token: t\n", "nothing"},
		{"comments and what kubectl does not know", `# by hand
apiVersion: v1
kind: Config
current-context: work # of the day
x-tool: {keep: me}
clusters:
  # the office
  - name: work
    cluster:
      server: "https://work" # behind the VPN
      x-more: 1
contexts:
  - name: work
    context: {cluster: work, user: work, namespace: team}
users: []
`, `# by hand
apiVersion: v1
kind: Config
current-context: work # of the day
x-tool: {keep: me}
clusters:
  # the office
  - name: work
    cluster:
      server: "https://work" # behind the VPN
      x-more: 1
  - cluster:
      server: https://mine
    name: mine
contexts:
  - name: work
    context: {cluster: work, user: work, namespace: team}
  - context:
      cluster: mine
      user: mine
    name: mine
users:
  - name: mine
    user:
      token: t
`, ""},
		{"an entry of its own, brought up to date", `apiVersion: v1
kind: Config
current-context: mine
clusters:
- cluster:
    insecure-skip-tls-verify: true
    proxy-url: http://proxy
    server: https://mine
  name: mine
users:
- name: mine
  user:
    token: old
contexts:
- context:
    cluster: mine
    namespace: team # where I work
    user: mine
  name: mine
`, `apiVersion: v1
kind: Config
current-context: mine
clusters:
- cluster:
    proxy-url: http://proxy
    server: https://mine
  name: mine
users:
- name: mine
  user:
    token: t
contexts:
- context:
    cluster: mine
    namespace: team # where I work
    user: mine
  name: mine
`, "nothing"},
	} {
		t.Run(test.what, func(t *testing.T) {
			user := filepath.Join(t.TempDir(), "config")
			t.Setenv("KUBECONFIG", user)
			put(t, user, test.before)
			mine := data(t, "mine", "https://mine")
			for range 2 { // again changes nothing
				if file, err := Merge(mine, "mine"); err != nil || file != user {
					t.Fatal(file, err)
				}
				if got := read(t, user); got != test.after {
					t.Fatalf("merged:\n%s\nwant:\n%s", got, test.after)
				}
			}
			if err := Remove(mine, "mine"); err != nil {
				t.Fatal(err)
			}
			if test.removed == "" {
				test.removed = test.before
			}
			if got, err := os.ReadFile(user); err == nil && string(got) != test.removed || os.IsNotExist(err) && test.removed != "nothing" {
				t.Errorf("removed: %v\n%s\nwant:\n%s", err, got, test.removed)
			}
		})
	}
}

// TestMergeRefuses: a file that cannot be changed without damage is left as it is, with an error that says why.
func TestMergeRefuses(t *testing.T) {
	for _, test := range []struct{ before, why string }{
		{"clusters:\n- {name: mine, cluster: {server: https://other}}\n", "is another cluster's"},
		{"users:\n- {name: mine, user: {token: x}}\n", "is another cluster's"},
		{"contexts:\n- {name: mine, context: {cluster: work, user: work}}\n", "is another cluster's"},
		{"[]\n", "cannot unmarshal array"},
		{"clusters: {}\n", "cannot unmarshal object"},
		{"a: b: c\n", "mapping values are not allowed"},
		{"users: *none\n", "unknown anchor"},
	} {
		before := test.before
		user := filepath.Join(t.TempDir(), "config")
		t.Setenv("KUBECONFIG", user)
		put(t, user, before)
		_, err := Merge(data(t, "mine", "https://mine"), "mine")
		if read(t, user) != before {
			t.Errorf("%s: it is now %s", before, read(t, user))
		}
		if err == nil || !strings.Contains(err.Error(), test.why) {
			t.Errorf("%s: %v", before, err)
		}
		if left, _ := filepath.Glob(user + ".*"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
	const shared = "clusters:\n- {name: mine, cluster: &it {server: https://mine}}\n- {name: too, cluster: *it}\n"
	user := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", user)
	put(t, user, shared)
	if err := Remove(data(t, "mine", "https://mine"), "mine"); err == nil || !strings.Contains(err.Error(), "cannot be changed safely") || read(t, user) != shared {
		t.Errorf("%v: %s", err, read(t, user))
	}
	if _, err := Merge(data(t, "other", "https://x"), "mine"); err == nil {
		t.Error("a cluster of another name was added")
	}
	if _, err := Merge(t.TempDir(), "mine"); err == nil {
		t.Error("a cluster that never was up was added")
	}
}

// TestMergeIntoOneOfSeveral: with several files in KUBECONFIG, the cluster goes where kubectl would put it.
func TestMergeIntoOneOfSeveral(t *testing.T) {
	dir := t.TempDir()
	a, b, none := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "none")
	put(t, a, "current-context: work\n")
	put(t, b, "clusters:\n- {name: old, cluster: {server: https://old}}\n")
	for _, test := range []struct {
		list       []string
		name, want string
	}{
		{[]string{none, a, b}, "mine", a},
		{[]string{b, a}, "mine", b},
		{[]string{a, b}, "old", b}, // where it is already
		{[]string{none, none + "2"}, "mine", none + "2"},
	} {
		t.Setenv("KUBECONFIG", strings.Join(test.list, string(filepath.ListSeparator)))
		mine := data(t, test.name, "https://"+test.name)
		file, err := Merge(mine, test.name)
		if err != nil || file != test.want || load(t, file).Contexts[test.name] == nil {
			t.Errorf("%v: in %s, %v", test.list, file, err)
		}
		if current := load(t, file).CurrentContext; (current == test.name) != (test.want == none+"2") {
			t.Errorf("%v: the current context of %s is %q", test.list, file, current)
		}
		// It is found again though the variable has changed.
		t.Setenv("KUBECONFIG", filepath.Join(dir, "another"))
		if err := Remove(mine, test.name); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(file); err == nil && load(t, file).Contexts[test.name] != nil {
			t.Errorf("%v: it is still in %s", test.list, file)
		}
	}
}

// TestMergeKeepsTheFile: a link to a kubeconfig stays a link, and a file keeps its owner; nobody else may read it from then on.
func TestMergeKeepsTheFile(t *testing.T) {
	dir := t.TempDir()
	real, link, dangling := filepath.Join(dir, "real"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	put(t, real, "current-context: work\n")
	if err := os.Chmod(real, 0o640); err != nil {
		t.Fatal(err)
	}
	const owner = 12345
	if os.Geteuid() == 0 {
		if err := os.Chown(real, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{link: "real", dangling: filepath.Join(dir, "new")} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
		t.Setenv("KUBECONFIG", name)
		mine := data(t, "mine", "https://mine")
		if _, err := Merge(mine, "mine"); err != nil {
			t.Fatal(err)
		}
		if got, err := os.Readlink(name); err != nil || got != to || load(t, name).Contexts["mine"] == nil {
			t.Errorf("%s leads to %s, %v", name, got, err)
		}
		if err := Remove(mine, "mine"); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Readlink(name); err != nil || load(t, name).Contexts["mine"] != nil {
			t.Errorf("%s after it was removed: %v", name, err)
		}
	}
	info, err := os.Stat(real)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; os.Geteuid() == 0 && uid != owner {
		t.Errorf("it belongs to %d now", uid)
	}
	if info, err := os.Stat(filepath.Join(dir, "new")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("a new file: %v, %v", info, err)
	}
}

// TestMergeMakesPrivate: only its owner may read a kubeconfig that holds the administrator's key, also if it held it before.
func TestMergeMakesPrivate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", file)
	mine := data(t, "mine", "https://mine")
	put(t, file, "current-context: work\n")
	for range 2 { // the second changes nothing but the mode
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Merge(mine, "mine"); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
	}
}

// TestMergeFollowsNoLinkOfAnother: root, who adds a cluster to a user's kubeconfig, writes nowhere that the user could not.
func TestMergeFollowsNoLinkOfAnother(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a link of another user")
	}
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim") // in a directory of root's, does not exist
	file := filepath.Join(dir, "config")
	if err := errors.Join(os.Symlink(victim, file), os.Lchown(file, 1, 1)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	if _, err := Merge(data(t, "mine", "https://mine"), "mine"); err == nil || !strings.Contains(err.Error(), "is a link of the user with uid 1") {
		t.Errorf("merging gave %v", err)
	}
	if _, err := os.Lstat(victim); err == nil {
		t.Error("a file was written where the link leads")
	}
}

// TestMergeTogether: processes that change a file at once lock it, also against kubectl.
func TestMergeTogether(t *testing.T) {
	user := filepath.Join(t.TempDir(), "sub", "config")
	t.Setenv("KUBECONFIG", user)
	var wg sync.WaitGroup
	var want []string
	for i := range 8 {
		name := fmt.Sprintf("c%d", i)
		want = append(want, name)
		dir := data(t, name, "https://"+name)
		wg.Go(func() {
			if _, err := Merge(dir, name); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	var got []string
	for name := range load(t, user).Contexts {
		got = append(got, name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("there are %v", got)
	}
	put(t, user+".lock", "")
	dir := data(t, "late", "https://late")
	synctest.Test(t, func(t *testing.T) {
		if _, err := Merge(dir, "late"); err == nil || !strings.Contains(err.Error(), "remove it") {
			t.Errorf("changed while another program does: %v", err)
		}
	})
	if load(t, user).Contexts["late"] != nil {
		t.Error("changed while another program does")
	}
}

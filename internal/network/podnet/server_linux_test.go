package podnet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// newServer returns a Server in a node's namespace, and the configuration with which CNI calls its plugin.
func newServer(t *testing.T, node *namespace) (*Server, string) {
	t.Helper()
	dir := t.TempDir()
	c := Config{Dir: filepath.Join(dir, "net.d"), State: filepath.Join(dir, "addresses"), Socket: filepath.Join(dir, "run", "network", "cni.sock"), PodCIDRs: dual, MTU: 1400}
	var s *Server
	node.Must(t, func() (err error) { s, err = Serve(c, slog.Default()); return err })
	t.Cleanup(s.Close)
	if err := c.Write(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(c.Dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		CNIVersion string
		Name       string
		Plugins    []map[string]any
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	plugin := list.Plugins[0] // as libcni derives it from the list
	plugin["cniVersion"], plugin["name"] = list.CNIVersion, list.Name
	text, err := json.Marshal(plugin)
	if err != nil {
		t.Fatal(err)
	}
	return s, string(text)
}

// ask sends a message to a server, as the plugin does, and returns the answer.
func ask(t *testing.T, s *Server, what string) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, s.listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	_, err = io.WriteString(conn, what)
	if err := errors.Join(err, conn.CloseWrite()); err != nil {
		return err.Error()
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return err.Error()
	}
	return string(answer)
}

func message(parts ...string) string { return strings.Join(parts, "\x00") }

// TestServerRefuses: malformed calls are refused with CNI's error codes, and the server goes on.
func TestServerRefuses(t *testing.T) {
	s, config := newServer(t, newNamespace(t, "node"))
	at := func(version string) string {
		return fmt.Sprintf(`{"cniVersion":%q,"name":"x","ranges":["10.42.0.0/24"]}`, version)
	}
	for what, c := range map[string]struct{ said, code, msg string }{
		"nothing":                   {"", `"code":6`, "1 parts instead of 5"},
		"too little":                {message("ADD", "a", "/ns", "eth0"), `"code":6`, "4 parts instead of 5"},
		"no JSON":                   {message("ADD", "a", "/ns", "eth0", "{"), `"code":6`, "configuration"},
		"a range that is none":      {message("ADD", "a", "/ns", "eth0", `{"cniVersion":"1.0.0","ranges":["x"]}`), `"code":6`, "configuration"},
		"zero bytes after it":       {message("ADD", "a", "/ns", "eth0", config, ""), `"code":6`, "configuration"},
		"an old version":            {message("ADD", "a", "/ns", "eth0", at("0.3.1")), `"code":1`, "cniVersion"},
		"no version":                {message("ADD", "a", "/ns", "eth0", at("")), `"code":1`, "cniVersion"},
		"no command":                {message("", "a", "/ns", "eth0", config), `"code":4`, "CNI_COMMAND"},
		"an unknown command":        {message("BURN", "a", "/ns", "eth0", config), `"code":4`, "BURN"},
		"no container":              {message("ADD", "", "/ns", "eth0", config), `"code":4`, "CNI_CONTAINERID"},
		"a path as a container":     {message("ADD", "../a", "/ns", "eth0", config), `"code":4`, "CNI_CONTAINERID"},
		"no link":                   {message("DEL", "a", "/ns", "", config), `"code":4`, "CNI_IFNAME"},
		"a link's name too long":    {message("ADD", "a", "/ns", "eth0123456789012", config), `"code":4`, "CNI_IFNAME"},
		"a path as a link":          {message("ADD", "a", "/ns", "eth0/..", config), `"code":4`, "CNI_IFNAME"},
		"no namespace":              {message("ADD", "a", "", "eth0", config), `"code":4`, "CNI_NETNS"},
		"a namespace that is gone":  {message("ADD", "a", "/ns", "eth0", config), `"code":999`, "/ns"},
		"STATUS before there was":   {message("STATUS", "", "", "", at("1.0.0")), `"code":1`, "STATUS"},
		"too much":                  {strings.Repeat("x", maxCallBytes+1), `"code":6`, "more than"},
		"CHECK without what it was": {message("CHECK", "a", "/ns", "eth0", config), `"code":7`, "prevResult"},
	} {
		got := ask(t, s, c.said)
		if !strings.HasPrefix(got, "1{") || !strings.Contains(got, c.code) || !strings.Contains(got, c.msg) || !json.Valid([]byte(got[1:])) {
			t.Errorf("%s: %s", what, got)
		}
	}
	if got := ask(t, s, message("STATUS", "", "", "", at("1.1.0"))); got != "0" {
		t.Errorf("STATUS: %s", got)
	}
	if info, err := os.Stat(s.config.Socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may ask: %v, %v", info, err)
	}
	if info, err := os.Stat(filepath.Dir(s.config.Socket)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("who may come near: %v, %v", info, err)
	}
}

// TestServerIsBusy: calls beyond the limit wait; one that sends nothing blocks neither others nor Close.
func TestServerIsBusy(t *testing.T) {
	s, config := newServer(t, newNamespace(t, "node"))
	for range maxConcurrentCalls - 1 {
		silent, err := net.DialUnix("unix", nil, s.listener.Addr().(*net.UnixAddr))
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
	}
	var wg sync.WaitGroup
	for i := range 3 * maxConcurrentCalls {
		wg.Go(func() {
			if got := ask(t, s, message("DEL", fmt.Sprint("a", i), "", "eth0", config)); got != "0" {
				t.Errorf("DEL of what never was: %s", got)
			}
		})
	}
	wg.Wait()
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > callTimeout/2 {
		t.Errorf("the server ends after %v", took)
	}
}

// TestServerNobodyWaits: the link of a plugin that was killed while it waited is removed.
func TestServerNobodyWaits(t *testing.T) {
	node, pod := newNamespace(t, "node"), newNamespace(t, "pod")
	s, config := newServer(t, node)
	o := owner{"a", "eth0"}
	done := s.lockOwner(o) // makes the call wait
	conn, err := net.DialUnix("unix", nil, s.listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.WriteString(conn, message("ADD", "a", pod.path(), "eth0", config))
	if err := errors.Join(err, conn.CloseWrite(), conn.Close()); err != nil {
		t.Fatal(err)
	}
	done()
	a := &testServer{s, node}
	await(t, "the call to be heard", func() bool {
		_, err := os.Stat(filepath.Join(s.addresses.dir, lastReserved+"0"))
		return err == nil
	})
	await(t, "it to be undone", func() bool { return len(a.files(t)) == 0 })
	a.expectNothing(t)
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain for ", what)
		}
	}
}

// TestPlugin runs the plugin itself, as containerd does.
func TestPlugin(t *testing.T) {
	plugin := filepath.Join(t.TempDir(), "skiff")
	out, err := exec.Command("gcc", "-Os", "-Wall", "-Wextra", "-Werror", "-o", plugin, "../../bundle/build/skiff-cni.c").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(config string, variables ...string) (string, bool) {
		cmd := exec.Command(plugin)
		cmd.Env, cmd.Stdin = variables, strings.NewReader(config)
		var out bytes.Buffer
		cmd.Stdout = &out
		err := cmd.Run()
		var exit *exec.ExitError
		if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
			t.Errorf("the plugin: %v", err)
		}
		return out.String(), err == nil
	}
	node, pod := newNamespace(t, "node"), newNamespace(t, "pod")
	s, config := newServer(t, node)
	as := func(command string) []string {
		return []string{"CNI_COMMAND=" + command, "CNI_CONTAINERID=a", "CNI_NETNS=" + fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), pod.FD), "CNI_IFNAME=eth0"}
	}
	said, ok := run(config, as("ADD")...)
	var made result
	if err := json.Unmarshal([]byte(said), &made); !ok || err != nil || len(made.IPs) != 2 || made.CNIVersion != "1.0.0" {
		t.Fatalf("ADD: %s, %v", said, err)
	}
	node.settle(t)
	pod.serve(t, "tcp", ":80")
	node.expects(t, "tcp", made.IPs[0].Address.Addr().String()+":80", "pod 10.42.0.1")
	check := strings.TrimSuffix(config, "}") + `,"prevResult":` + said + "}"
	if said, ok := run(check, as("CHECK")...); !ok || said != "" {
		t.Errorf("CHECK: %s", said)
	}
	if said, ok := run(check, as("DEL")...); !ok || said != "" {
		t.Errorf("DEL: %s", said)
	}
	(&testServer{s, node}).expectNothing(t)
	if said, ok := run("", "CNI_COMMAND=VERSION"); !ok || said != `{"cniVersion":"1.1.0","supportedVersions":["1.0.0","1.1.0"]}`+"\n" {
		t.Errorf("VERSION: %s", said)
	}

	fails := func(what, config, code, msg string, variables ...string) {
		t.Helper()
		if said, ok := run(config, variables...); ok || !json.Valid([]byte(said)) || !strings.Contains(said, `"code":`+code+",") || !strings.Contains(said, msg) {
			t.Errorf("%s: %s", what, said)
		}
	}
	fails("an unknown command", config, "4", "BURN", as("BURN")...)
	fails("no variables", config, "4", "CNI_COMMAND")
	fails("no configuration", "", "7", "socket", as("ADD")...)
	fails("no socket", `{"type":"skiff","x":"socket","y":"\"socket\":\"/x\""}`, "7", "socket", as("ADD")...)
	fails("a socket that is no text", `{"socket":7}`, "7", "socket", as("ADD")...)
	fails("a socket that never ends", `{"socket":"/x`, "7", "socket", as("ADD")...)
	fails("a socket with too long a name", `{"socket":"/`+strings.Repeat("x", 200)+`"}`, "7", "socket", as("ADD")...)
	fails("too much", strings.Repeat(" ", 1<<20)+config, "7", "larger than", as("ADD")...)
	if said, ok := run(strings.Repeat(" ", 1<<20-len(config))+config, as("DEL")...); !ok {
		t.Errorf("just not too much: %s", said)
	}
	if said, ok := run(strings.Replace(config, `"socket":`, "\"socket\" :\n ", 1), as("DEL")...); !ok {
		t.Errorf("written otherwise: %s", said)
	}

	// Another server listens there, which closes without an answer or sends a malformed one.
	s.Close()
	fails("skiff is away", config, "11", "is not there", as("ADD")...)
	l, err := listen(s.config.Socket)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for _, answer := range []string{"", "2{}"} {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			io.Copy(io.Discard, conn)
			io.WriteString(conn, answer)
			conn.Close()
		}
	})
	fails("an end without a word", config, "11", "before it answered", as("ADD")...)
	fails("what is no answer", config, "11", "before it answered", as("ADD")...)
	l.Close()
	wg.Wait()
}

// TestServerSweep: a new server finds the links of the one before, and the addresses released meanwhile.
func TestServerSweep(t *testing.T) {
	node, pod := newNamespace(t, "node"), newNamespace(t, "pod")
	s, config := newServer(t, node)
	if got := ask(t, s, message("ADD", "a", pod.path(), "eth0", config)); got[0] != '0' {
		t.Fatal(got)
	}
	if err := s.Sweep(map[string]bool{"a": true}, time.Now().Add(time.Hour), "/nowhere"); err != nil || len((&testServer{s, node}).files(t)) != 2 {
		t.Errorf("what is used is swept away: %v", err)
	}
	if err := s.Sweep(map[string]bool{}, time.Now().Add(time.Hour), "/nowhere"); err != nil || len((&testServer{s, node}).files(t)) != 0 || len(s.addresses.all()) != 0 {
		t.Errorf("what nobody uses stays: %v", err)
	}
	if got := ask(t, s, message("DEL", "a", pod.path(), "eth0", config)); got != "0" {
		t.Error(got)
	}
	(&testServer{s, node}).expectNothing(t)
}

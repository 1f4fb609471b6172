package kubectl

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"skiff/internal/apiserver"
	"skiff/skifftest"
)

// TestPasswordLogin: --username and --password log in to a server with --basic-auth-file, and replace the credentials of the kubeconfig.
func TestPasswordLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(file, []byte("open sesame,anna,7,\"system:masters,people\"\nhush,bert,8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := skifftest.Start(t, skifftest.WithServer(func(o *apiserver.Options) { o.Authentication.BasicAuthFile = file }))
	term := newTerminal(t, "--kubeconfig="+s.Kubeconfig())
	out := term.must("auth", "whoami", "-o", "jsonpath={.status.userInfo}", "--username=anna", "--password=open sesame")
	if want := `{"groups":["system:masters","people","system:authenticated"],"uid":"7","username":"anna"}`; out != want {
		t.Errorf("anna is %s, want %s", out, want)
	}
	term.must("create", "namespace", "shop", "--username=anna", "--password=open sesame")
	for _, c := range []struct{ user, password, want string }{
		{"bert", "hush", `namespaces "shop" is forbidden: User "bert" cannot get resource "namespaces" in API group "" in the namespace "shop"`},
		{"anna", "hush", "You must be logged in to the server (Unauthorized)"},
		{"carl", "open sesame", "You must be logged in to the server (Unauthorized)"},
	} {
		if out, failure := term.kubectl("get", "namespace", "shop", "--username="+c.user, "--password="+c.password); out != "" || !strings.Contains(failure, c.want) {
			t.Errorf("%s with %q: got %q and %q, want %q", c.user, c.password, out, failure, c.want)
		}
	}
}

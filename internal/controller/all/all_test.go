package all

import (
	"log/slog"
	"testing"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/skifftest"
)

var nothing controller.Deps

func TestChoosing(t *testing.T) {
	for _, c := range []struct {
		chosen []string
		want   bool
	}{
		{[]string{"*"}, true}, {nil, false}, {[]string{"a"}, true}, {[]string{"b"}, false}, {[]string{"*", "-a"}, false}, {[]string{"-a", "*"}, false}, {[]string{"-a", "a"}, true}, {[]string{"*", "-b"}, true},
	} {
		if got := On("a", c.chosen); got != c.want {
			t.Errorf("%v: %v", c.chosen, got)
		}
	}
	if _, err := New([]string{"*", "-nonsense"}, nothing); err == nil || err.Error() != `"nonsense" is not in the list of known controllers` {
		t.Error(err)
	}
}

// A loop calls itself as it is listed.
func TestNames(t *testing.T) {
	server := skifftest.Start(t)
	c := server.InProcess("test", "system:kube-controller-manager")
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{}), Client: c, Log: slog.Default(), Config: controller.Config{ClusterCIDRs: []string{"10.42.0.0/16"}, AllocateNodeCIDRs: true}}
	for _, l := range loops {
		if l.new != nil {
			if loop := l.new(deps); loop.Name != l.name {
				t.Errorf("%s calls itself %s", l.name, loop.Name)
			}
		}
	}
}

package cli

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skiff/internal/cluster"
)

// Components that run alone have flags of the names that Kubernetes' own have, and few others. testdata/flags.txt has those names.
func TestFlagNames(t *testing.T) {
	recorded, err := os.ReadFile("testdata/flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	theirs := map[string][]string{}
	for line := range strings.Lines(string(recorded)) {
		if name, flags, ok := strings.Cut(line, ": "); ok {
			theirs[name] = strings.Fields(flags)
		}
	}
	for program, test := range map[string]struct {
		command *cobra.Command
		ours    []string // that Kubernetes' own has none for, or no longer
	}{
		"kube-apiserver":          {apiserverCommand(), []string{"basic-auth-file", "data-dir", "etcd-listen", "etcd-quota-backend-bytes", "ir-namespace-only", "ir-percentile", "max-connections", "max-connections-per-address", "name", "tls-san"}},
		"kube-controller-manager": {controllerManagerCommand(), nil},
		"kube-scheduler":          {schedulerCommand(), []string{"policy-config-file", "scheduler-name"}},
	} {
		if len(theirs[program]) < 50 {
			t.Fatalf("%s: %d flags are recorded", program, len(theirs[program]))
		}
		var ours []string
		test.command.Flags().VisitAll(func(f *pflag.Flag) {
			if !slices.Contains(theirs[program], f.Name) {
				ours = append(ours, f.Name)
			}
		})
		if !slices.Equal(ours, test.ours) {
			t.Errorf("%s has no flags %s; known to be ours are %s", program, ours, test.ours)
		}
	}
}

// What /flagz shows are all flags, by their values.
func TestValuesOf(t *testing.T) {
	cmd := apiserverCommand()
	if err := cmd.ParseFlags([]string{"--secure-port", "7443", "--tls-sni-cert-key", "a.crt,a.key", "--tls-sni-cert-key", "b.crt,b.key:b.com,*.b.com", "--profiling=false", "--default-not-ready-toleration-seconds", "30"}); err != nil {
		t.Fatal(err)
	}
	values := valuesOf(cmd.Flags())
	for name, want := range map[string]string{"secure-port": "7443", "tls-sni-cert-key": "[a.crt,a.key;b.crt,b.key:b.com,*.b.com]", "profiling": "false", "min-request-timeout": "1800",
		"default-not-ready-toleration-seconds": "30", "default-unreachable-toleration-seconds": "300", "api-audiences": "[]"} {
		if values[name] != want {
			t.Errorf("--%s is %q, not %q", name, values[name], want)
		}
	}
	if _, ok := values["help"]; ok {
		t.Error("asking for help is no setting")
	}
}

// Components say which version they are, whatever else they would want to be told.
func TestVersionOfComponents(t *testing.T) {
	for _, cmd := range []*cobra.Command{apiserverCommand(), controllerManagerCommand(), schedulerCommand(), proxyCommand()} {
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs([]string{"--version"})
		if err := cmd.Execute(); err != nil || out.String() != "Kubernetes v1.37.1+skiff\n" {
			t.Errorf("%s: %q, %v", cmd.Name(), out.String(), err)
		}
	}
}

// TestGiven: flags that exclude others are known to have been given, and `skiff up` passes them on in a form that the server parses to the same values.
func TestGiven(t *testing.T) {
	args := []string{"--oidc-signing-algs=RS256,ES256", "--oidc-required-claim=a=1,2", "--oidc-required-claim=b==", "--anonymous-auth=false"}
	parse := func(args []string) (cluster.Config, *pflag.FlagSet) {
		t.Helper()
		config := cluster.Config{}
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		addIdentityFlags(f, &config)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return config, f
	}
	none, _ := parse(nil)
	config, flags := parse(args)
	again, _ := parse(passOn(flags))
	if a := none.Authentication; a.OIDC.Given || a.AnonymousAuthGiven || !a.AnonymousAuth {
		t.Errorf("without flags: %+v", a)
	}
	for _, c := range []cluster.Config{config, again} {
		a := c.Authentication
		if !a.OIDC.Given || !a.AnonymousAuthGiven || a.AnonymousAuth || !slices.Equal(a.OIDC.SigningAlgs, []string{"RS256", "ES256"}) ||
			!maps.Equal(a.OIDC.RequiredClaims, map[string]string{"a": "1,2", "b": "="}) {
			t.Errorf("got %+v", a)
		}
	}
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	addIdentityFlags(f, &config)
	if err := f.Parse([]string{"--oidc-required-claim=a"}); err == nil || !strings.Contains(err.Error(), "malformed pair, expect string=string") {
		t.Errorf("got %v", err)
	}
	if err := f.Parse([]string{"--anonymous-auth"}); err != nil || !config.Authentication.AnonymousAuth {
		t.Errorf("got %v", err)
	}
}

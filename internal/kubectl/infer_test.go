package kubectl

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"sigs.k8s.io/yaml"
)

// TestInference types the command lines of testdata/infer.txt and says what each is taken for: the kind, the name and who makes it.
func TestInference(t *testing.T) {
	stories(t, "testdata/infer.txt", func(input string) string {
		var out strings.Builder
		for line := range strings.Lines(input) {
			line = strings.TrimSpace(line)
			r, err := readLine(t, words(line)[1:])
			switch {
			case err != nil:
				fmt.Fprintf(&out, "%s\n  error: %v\n", line, err)
			case r.plan.upstream:
				fmt.Fprintf(&out, "%s\n  Pod %s, as upstream\n", line, r.plan.name)
			default:
				more := ""
				if r.plan.kind == deployment || r.plan.kind == replicationController {
					more = fmt.Sprintf(" of %d", r.what.replicas)
				}
				fmt.Fprintf(&out, "%s\n  %s %s%s, restart %s\n", line, r.plan.kind, r.plan.name, more, r.plan.restart)
			}
		}
		return out.String()
	})
}

// TestGenerate prints what command lines make, as YAML.
func TestGenerate(t *testing.T) {
	stories(t, "testdata/generate.txt", func(input string) string {
		r, err := readLine(t, words(strings.TrimSpace(input))[1:])
		if err != nil {
			return "error: " + err.Error() + "\n"
		}
		objects := []runtime.Object{r.what.generate(r.plan)}
		if r.expose {
			objects = append(objects, r.what.service(r.plan.name))
		}
		var out strings.Builder
		for _, obj := range objects {
			b, err := yaml.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%T\n%s", obj, b)
		}
		return out.String()
	})
}

// readLine takes a command line as far as it goes without asking anybody.
func readLine(t *testing.T, args []string) (r *run, err error) {
	t.Helper()
	newTerminal(t)
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := New(append([]string{"kubectl"}, args...), streams)
	cmd, rest, err := root.Find(args)
	if err != nil {
		return nil, err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return nil, err
	}
	if err := cmd.ValidateRequiredFlags(); err != nil {
		return nil, err
	}
	defer cmdutil.DefaultBehaviorOnFatal()
	r = &run{}
	return r, r.read(cmd, cmd.Flags().Args())
}

package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"skiff/internal/cluster"
	"skiff/internal/cluster/local"
	"skiff/internal/cluster/process"
)

func demoCommand() *cobra.Command {
	d := demo{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Start a cluster, run three web servers in it, and show how they came to be",
		Long: `Start a cluster, run three web servers in it, and show how they came to be.

Each step is a command that you could type yourself; it is printed before it runs. The cluster is left running: skiff down --purge removes it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx, cancel := context.WithTimeout(cmd.Context(), d.timeout)
			defer cancel()
			if d.self, err = os.Executable(); err != nil {
				return err
			}
			d.out, d.flags = cmd.OutOrStdout(), clusterFlags(cmd.Flags())
			return d.run(ctx)
		},
	}
	addClusterFlags(cmd.Flags(), &d.config)
	cmd.Flags().IntVar(&d.config.Port, "port", cluster.DefaultPort, "port to serve the API on")
	cmd.Flags().IntVar(&d.nodes, "nodes", 0, "how many nodes to make on this machine; one that is the machine itself if 0")
	cmd.Flags().StringVar(&d.images, "images", "", "directory with archives of the images that are used")
	cmd.Flags().IntVar(&d.replicas, "replicas", 3, "how many web servers to run")
	cmd.Flags().DurationVar(&d.timeout, "timeout", 5*time.Minute, "how long all of it may take")
	return cmd
}

// clusterFlags returns the flags that were given and that say which cluster it is.
func clusterFlags(f *pflag.FlagSet) (given []string) {
	f.Visit(func(flag *pflag.Flag) {
		if flag.Name == "name" || flag.Name == "data-dir" || flag.Name == "port" {
			given = append(given, "--"+flag.Name+"="+flag.Value.String())
		}
	})
	return given
}

// demo is one run of the demonstration.
type demo struct {
	config   cluster.Config
	nodes    int
	images   string
	replicas int
	timeout  time.Duration

	self  string
	flags []string
	out   io.Writer
	times []part
}

// part is how long a step took.
type part struct {
	what string
	took time.Duration
}

func (d *demo) run(ctx context.Context) error {
	which := without(d.flags, "--port=")
	steps := []struct {
		what string
		do   func(context.Context) error
	}{
		{"looking at the machine", d.typed("check", d.upFlags()...)},
		{"starting the cluster", d.typed("up", d.upFlags()...)},
		{"loading images", func(ctx context.Context) error { return d.load(ctx, which) }},
		{"running nginx", d.kubectl("run", "--image=nginx", fmt.Sprintf("--replicas=%d", d.replicas))},
		{"until all are Running and Ready", d.kubectl("rollout", "status", "deployment/nginx", "--timeout=120s")},
		{"showing them", d.kubectl("get", "pods", "-l", "run=nginx", "-o", "wide")},
		{"asking each at its own address", d.ask},
		{"how they came to be", d.typed("journey", append(without(which, "--name="), "deployment/nginx")...)},
		{"making a Service", d.kubectl("expose", "deployment/nginx", "--port=80", "--type=NodePort")},
		{"asking the Service at each node", d.askAtNodes},
		{"asking the Service by name, from a pod", d.visit},
		{"how the Service came to be", d.typed("journey", append(without(which, "--name="), "service/nginx")...)},
	}
	for _, s := range steps {
		began := time.Now()
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w\nThe log is %s; skiff status and kubectl get events --sort-by=.lastTimestamp say more", s.what, err, process.LogPath(d.config.DataDir))
		}
		d.times = append(d.times, part{s.what, time.Since(began)})
	}
	fmt.Fprintln(d.out, "\nHow long each part took:")
	var all time.Duration
	for _, p := range d.times {
		fmt.Fprintf(d.out, "  %8.2f s  %s\n", p.took.Seconds(), p.what)
		all += p.took
	}
	fmt.Fprintf(d.out, "  %8.2f s  all\n", all.Seconds())
	return nil
}

// upFlags returns the flags of skiff up.
func (d *demo) upFlags() []string {
	if d.nodes == 0 {
		return d.flags
	}
	return append([]string{fmt.Sprintf("--nodes=%d", d.nodes)}, d.flags...)
}

func without(flags []string, prefix string) (out []string) {
	for _, f := range flags {
		if !strings.HasPrefix(f, prefix) {
			out = append(out, f)
		}
	}
	return out
}

// typed returns a step that runs a command of skiff.
func (d *demo) typed(command string, args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		return d.show(ctx, "skiff "+strings.Join(append([]string{command}, args...), " "), append([]string{command}, args...)...)
	}
}

// kubectl returns a step that runs kubectl on the cluster.
func (d *demo) kubectl(args ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		return d.show(ctx, "kubectl "+strings.Join(quoted(args), " "), append([]string{"kubectl", "--kubeconfig", cluster.KubeconfigPath(d.config.DataDir)}, args...)...)
	}
}

// quoted returns arguments as a person types them for a shell.
func quoted(args []string) (out []string) {
	for _, a := range args {
		if strings.ContainsAny(a, " {}\"|$<>;&") {
			a = "'" + a + "'"
		}
		out = append(out, a)
	}
	return out
}

// show prints a command as a person would type it, and runs it.
func (d *demo) show(ctx context.Context, typed string, args ...string) error {
	fmt.Fprintf(d.out, "\n$ %s\n", typed)
	cmd := exec.CommandContext(ctx, d.self, args...)
	cmd.Stdout, cmd.Stderr = d.out, d.out
	return cmd.Run()
}

func (d *demo) load(ctx context.Context, which []string) error {
	archives, err := filepath.Glob(filepath.Join(d.images, "*.tar"))
	if err != nil || d.images == "" {
		return err
	}
	if len(archives) == 0 {
		return fmt.Errorf("%s has no archives of images; \"make images\" builds them", d.images)
	}
	return d.typed("image", append(append([]string{"load"}, which...), archives...)...)(ctx)
}

// ask gets the page of each web server at its pod's address.
func (d *demo) ask(ctx context.Context) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, d.self, "kubectl", "--kubeconfig", cluster.KubeconfigPath(d.config.DataDir), "get", "pods", "-l", "run=nginx",
		"-o", `jsonpath={range .items[*]}{.metadata.name} {.status.podIP}{"\n"}{end}`)
	cmd.Stdout, cmd.Stderr = &out, d.out
	if err := cmd.Run(); err != nil {
		return err
	}
	fmt.Fprintln(d.out)
	answers := 0
	for line := range strings.Lines(out.String()) {
		name, ip, _ := strings.Cut(strings.TrimSpace(line), " ")
		title, err := pageTitle(ctx, d.client(), net.JoinHostPort(ip, "80"))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		fmt.Fprintf(d.out, "%s at %s answers: %s\n", name, ip, title)
		answers++
	}
	if answers != d.replicas {
		return fmt.Errorf("%d of %d answered", answers, d.replicas)
	}
	return nil
}

// client returns a client that reaches pods: from this machine if it is the node, and from node 1 if there are local nodes.
func (d *demo) client() *http.Client {
	l, err := local.Load(d.config.DataDir)
	if err != nil {
		return http.DefaultClient
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		return local.Dial(ctx, d.config.DataDir, l.Nodes[0].Name, network, address)
	}
	return &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
}

// pageTitle returns the title of the page at a URL.
func pageTitle(ctx context.Context, client *http.Client, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/", nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	page, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("the web server answered %s", response.Status)
	}
	_, rest, found := strings.Cut(string(page), "<title>")
	title, _, ended := strings.Cut(rest, "</title>")
	if !found || !ended {
		return "", errors.New("the page has no title")
	}
	return response.Status + ", " + title, nil
}

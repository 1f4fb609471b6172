package deployment_test

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/kubectl/pkg/cmd"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"

	"skiff/internal/controller/controllertest"
)

// kubectl runs upstream's kubectl in this process and returns its output.
func (c cluster) kubectl(args ...string) string {
	c.Helper()
	var out bytes.Buffer
	failed := ""
	cmdutil.BehaviorOnFatal(func(message string, _ int) {
		failed = message
		panic(&failed) // it must not go on
	})
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(&failed) {
				panic(p)
			}
		}()
		command := cmd.NewKubectlCommand(cmd.KubectlOptions{ConfigFlags: genericclioptions.NewConfigFlags(true),
			IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &out, ErrOut: &out}})
		command.SetArgs(append([]string{"--kubeconfig", c.server.Kubeconfig()}, args...))
		command.SetOut(&out)
		command.SetErr(&out)
		if err := command.Execute(); err != nil {
			failed = err.Error()
		}
	}()
	return strings.TrimSpace(out.String() + failed)
}

// node makes all pods ready until the test ends, each a moment after it was created.
func (c cluster) node() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := c.tryBringUp(ctx, all); err != nil && ctx.Err() == nil {
				c.Error(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	})
	c.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// Deployments work with kubectl.
func TestKubectl(t *testing.T) {
	c := start(t)
	c.node()
	expect := func(want string, args ...string) {
		t.Helper()
		got := c.kubectl(args...)
		if !regexp.MustCompile("^(?s:" + want + ")$").MatchString(got) {
			t.Errorf("kubectl %s:\n%s\nwant:\n%s", strings.Join(args, " "), got, want)
		}
	}
	rolledOut := func() {
		t.Helper()
		expect(`.*deployment "web" successfully rolled out`, "rollout", "status", "deployment/web", "--timeout=20s")
	}
	expect("deployment.apps/web created", "create", "deployment", "web", "--image=nginx:1", "--replicas=4")
	rolledOut()
	expect("deployment.apps/web image updated", "set", "image", "deployment/web", "nginx=nginx:2")
	rolledOut()
	expect("deployment.apps/web annotated", "annotate", "deployment/web", "kubernetes.io/change-cause=to version 2")
	controllertest.Eventually(t, func() string {
		got := c.kubectl("rollout", "history", "deployment/web")
		if want := "deployment.apps/web \nREVISION  CHANGE-CAUSE\n1         <none>\n2         to version 2"; got != want {
			return got
		}
		return ""
	})
	expect(`(?s).*with revision #1\nPod Template:\n.*Image:\s+nginx:1\n.*`, "rollout", "history", "deployment/web", "--revision=1")

	expect("deployment.apps/web rolled back", "rollout", "undo", "deployment/web")
	rolledOut()
	expect("nginx:1", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	expect("deployment.apps/web rolled back", "rollout", "undo", "deployment/web", "--to-revision=2")
	rolledOut()
	expect("nginx:2", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")
	expect(`deployment.apps/web \nREVISION  CHANGE-CAUSE\n3         <none>\n4         to version 2`, "rollout", "history", "deployment/web")
	expect(`.*unable to find specified revision 9 in history`, "rollout", "undo", "deployment/web", "--to-revision=9")

	expect("deployment.apps/web paused", "rollout", "pause", "deployment/web")
	expect("deployment.apps/web image updated", "set", "image", "deployment/web", "nginx=nginx:3")
	expect("deployment.apps/web resource requirements updated", "set", "resources", "deployment/web", "--limits=cpu=200m")
	controllertest.Eventually(t, func() string {
		d := c.get()
		if d.Status.ObservedGeneration != d.Generation || !strings.HasPrefix(condition(d, appsv1.DeploymentProgressing), "Unknown DeploymentPaused") {
			return fmt.Sprintf("%+v", d.Status)
		}
		return ""
	})
	if n := c.sizes(); n["nginx:3"] != 0 || n["nginx:2"] != 4 {
		t.Errorf("while it is paused: %v", n)
	}
	expect(`.*cannot rollback a paused deployment.*`, "rollout", "undo", "deployment/web")
	expect("deployment.apps/web resumed", "rollout", "resume", "deployment/web")
	rolledOut()
	expect("nginx:3", "get", "deployment", "web", "-o", "jsonpath={.spec.template.spec.containers[0].image}")

	before := len(c.sets())
	expect("deployment.apps/web restarted", "rollout", "restart", "deployment/web")
	rolledOut()
	if after := len(c.sets()); after != before+1 {
		t.Errorf("a restart made %d ReplicaSets of %d", after, before)
	}
	expect("deployment.apps/web scaled", "scale", "deployment/web", "--replicas=7")
	rolledOut()
	expect(`web\s+7/7\s+7\s+7\s+.*`, "get", "deployment", "web", "--no-headers")
}

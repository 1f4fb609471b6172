package probe

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"

	"skiff/internal/kubelet/environment"
)

// Exec runs a command in a container and returns its exit code, and what it wrote to stdout and stderr. containerID is the runtime's, without a scheme. If the command takes longer than timeout the error is, or wraps, context.DeadlineExceeded or the gRPC status of that name.
type Exec func(ctx context.Context, containerID string, command []string, timeout time.Duration) (exitCode int, output []byte, err error)

// probeExec runs an exec probe: it succeeds if the command does.
func probeExec(ctx context.Context, run Exec, action *corev1.ExecAction, container *corev1.Container, containerID string, timeout time.Duration) result {
	command := expand(action.Command, container.Env)
	code, output, err := run(ctx, containerID, command, timeout)
	output = output[:min(len(output), maxOutput)]
	switch {
	case errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded:
		return result{outcome: failure, output: fmt.Sprintf("command timed out: %q timed out after %s", strings.Join(command, " "), timeout)}
	case err != nil:
		return result{outcome: unknown, err: err}
	case code != 0:
		return result{outcome: failure, output: string(output)}
	}
	return result{outcome: success, output: string(output)}
}

// expand puts variables into a command. Only values that the pod itself spells out are known here; those from elsewhere are empty, as upstream.
func expand(command []string, env []corev1.EnvVar) []string {
	values := map[string]string{}
	for _, e := range env {
		values[e.Name] = e.Value
	}
	out := make([]string, len(command))
	for i, word := range command {
		out[i] = environment.Expand(word, func(name string) string {
			if v, ok := values[name]; ok {
				return v
			}
			return "$(" + name + ")"
		})
	}
	return out
}

package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"skiff/internal/kubelet/cri"
	"skiff/internal/upgrade"
)

// streams are the streams of a process that a client requests.
type streams struct{ stdin, stdout, stderr, tty bool }

func parseStreams(q url.Values) (streams, error) {
	s := streams{stdin: q.Get("input") == "1", stdout: q.Get("output") == "1", stderr: q.Get("error") == "1", tty: q.Get("tty") == "1"}
	if s.tty {
		s.stderr = false // a terminal has one output
	}
	if !s.stdin && !s.stdout && !s.stderr {
		return s, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return s, nil
}

// exec runs a command in a container: /exec/NAMESPACE/POD/CONTAINER?command=…
func (s *Server) exec(w http.ResponseWriter, rq *http.Request) {
	q := rq.URL.Query()
	st, err := parseStreams(q)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.podOf(w, rq)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(rq.Context(), pod, rq.PathValue("container"))
	if err != nil {
		refuse(w, err)
		return
	}
	address, err := s.opts.Runtime.Exec(rq.Context(), &runtimeapi.ExecRequest{ContainerId: id, Cmd: q["command"], Stdin: st.stdin, Stdout: st.stdout, Stderr: st.stderr, Tty: st.tty})
	s.proxyStream(w, rq, address, err, st)
}

// attach joins the streams of a container's own process: /attach/NAMESPACE/POD/CONTAINER.
func (s *Server) attach(w http.ResponseWriter, rq *http.Request) {
	st, err := parseStreams(rq.URL.Query())
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	pod := s.podOf(w, rq)
	if pod == nil {
		return
	}
	name := rq.PathValue("container")
	id, err := s.runningContainer(rq.Context(), pod, name)
	if err != nil {
		refuse(w, err)
		return
	}
	// Whether the process has a terminal was decided when it was started.
	if c, ok := containerOf(pod, name); ok {
		st.tty = c.TTY
		st.stderr = st.stderr && !c.TTY
	}
	address, err := s.opts.Runtime.Attach(rq.Context(), &runtimeapi.AttachRequest{ContainerId: id, Stdin: st.stdin, Stdout: st.stdout, Stderr: st.stderr, Tty: st.tty})
	s.proxyStream(w, rq, address, err, st)
}

// proxyStream carries streams of a process to where the runtime serves them, and back.
func (s *Server) proxyStream(w http.ResponseWriter, rq *http.Request, address string, err error, st streams) {
	location, err := parseAddress(address, err)
	if err != nil {
		refuse(w, err)
		return
	}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(rq) {
		s.translate(w, rq, location, st)
		return
	}
	s.forward(w, rq, location)
}

// portForward carries connections to ports of a pod: /portForward/NAMESPACE/POD.
func (s *Server) portForward(w http.ResponseWriter, rq *http.Request) {
	tunnelled := wsstream.IsWebSocketRequestWithTunnelingProtocol(rq)
	var ports []int32
	if !tunnelled && wsstream.IsWebSocketRequest(rq) {
		var err error
		if ports, err = parsePorts(rq.URL.Query()["port"]); err != nil {
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	pod := s.podOf(w, rq)
	if pod == nil {
		return
	}
	sandbox, err := s.sandbox(rq.Context(), pod)
	if err != nil {
		refuse(w, err)
		return
	}
	address, err := s.opts.Runtime.PortForward(rq.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	location, err := parseAddress(address, err)
	if err != nil {
		refuse(w, err)
		return
	}
	if tunnelled {
		s.tunnel(w, rq, location)
		return
	}
	s.forward(w, rq, location)
}

// parsePorts reads the ports that a client of the old WebSocket protocol names. With SPDY each stream does.
func parsePorts(values []string) (ports []int32, err error) {
	if len(values) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	for _, value := range values {
		for text := range strings.SplitSeq(value, ",") {
			port, err := strconv.ParseUint(text, 10, 16)
			if err != nil || port < 1 {
				return nil, fmt.Errorf("port %q must be between 1 and 65535", text)
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}

// podOf returns the pod of a request, or responds with 404.
func (s *Server) podOf(w http.ResponseWriter, rq *http.Request) *corev1.Pod {
	pod := s.opts.Pods.Pod(rq.PathValue("namespace"), rq.PathValue("pod"))
	if uid := rq.PathValue("uid"); pod == nil || uid != "" && uid != string(pod.UID) {
		fail(w, http.StatusNotFound, "pod does not exist")
		return nil
	}
	return pod
}

// runningContainer asks the runtime, which knows of a new container first.
func (s *Server) runningContainer(ctx context.Context, pod *corev1.Pod, name string) (id string, err error) {
	labels := cri.OfPod(pod.UID)
	labels[cri.LabelContainer] = name
	list, err := s.opts.Runtime.ListContainers(ctx, &runtimeapi.ContainerFilter{LabelSelector: labels,
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}})
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("container not found (%q)", name)
	}
	newest := slices.MaxFunc(list, func(a, b *runtimeapi.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return newest.GetId(), nil
}

// sandbox finds where a pod's containers run.
func (s *Server) sandbox(ctx context.Context, pod *corev1.Pod) (id string, err error) {
	list, err := s.opts.Runtime.ListPodSandboxes(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: cri.OfPod(pod.UID),
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}})
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", fmt.Errorf("pod not found (%q)", pod.Name+"_"+pod.Namespace)
	}
	newest := slices.MaxFunc(list, func(a, b *runtimeapi.PodSandbox) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	return newest.GetId(), nil
}

func parseAddress(address string, err error) (*url.URL, error) {
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("the container runtime gave %q as an address for streams", address)
	}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	return u, nil
}

// refuse responds with the error of the runtime.
func refuse(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch status.Code(err) {
	case codes.NotFound:
		code = http.StatusNotFound
	case codes.ResourceExhausted:
		w.Header().Set("Retry-After", "60") // as long as the runtime keeps unused addresses
		code = http.StatusTooManyRequests
	}
	fail(w, code, err.Error())
}

// forward joins the client's connection with one to the runtime, in whatever protocol the two agree on.
func (s *Server) forward(w http.ResponseWriter, rq *http.Request, location *url.URL) {
	ctx, cancel := s.withStop(rq)
	defer cancel()
	h := proxy.NewUpgradeAwareHandler(location, runtimeTransport, false, true, responder{s})
	h.RejectForwardingRedirects = true // a client has no business there
	h.ServeHTTP(upgrade.Hijackable(w), rq.WithContext(ctx))
}

// responder responds with errors of the connection to the runtime.
type responder struct{ s *Server }

func (r responder) Error(w http.ResponseWriter, rq *http.Request, err error) {
	r.s.opts.Log.Debug("failed to proxy streams to the container runtime", "path", rq.URL.Path, "error", err)
	fail(w, http.StatusInternalServerError, err.Error())
}

// run runs a command and answers with what it wrote: POST /run/NAMESPACE/POD/CONTAINER?cmd=…
func (s *Server) run(w http.ResponseWriter, rq *http.Request) {
	pod := s.podOf(w, rq)
	if pod == nil {
		return
	}
	id, err := s.runningContainer(rq.Context(), pod, rq.PathValue("container"))
	if err != nil {
		fail(w, http.StatusInternalServerError, err.Error())
		return
	}
	out, err := s.opts.Runtime.ExecSync(rq.Context(), id, strings.Split(rq.FormValue("cmd"), " "), 0)
	switch {
	case err != nil:
		fail(w, http.StatusInternalServerError, err.Error())
	case out.GetExitCode() != 0:
		fail(w, http.StatusInternalServerError, fmt.Sprintf("command '%s' exited with %d: %s", rq.FormValue("cmd"), out.GetExitCode(), out.GetStderr()))
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(append(out.GetStdout(), out.GetStderr()...))
	}
}

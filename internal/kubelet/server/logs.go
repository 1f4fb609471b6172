package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerLogs serves the log of a container: GET /containerLogs/NAMESPACE/POD/CONTAINER.
func (s *Server) containerLogs(w http.ResponseWriter, rq *http.Request) {
	o, err := parseLogQuery(rq.URL.Query(), time.Now())
	if err != nil {
		fail(w, http.StatusBadRequest, `{"message": "Unable to decode query."}`)
		return
	}
	if !o.valid() {
		fail(w, http.StatusUnprocessableEntity, `{"message": "Invalid request."}`)
		return
	}
	name, container := rq.PathValue("pod"), rq.PathValue("container")
	pod := s.opts.Pods.Pod(rq.PathValue("namespace"), name)
	if pod == nil {
		fail(w, http.StatusNotFound, fmt.Sprintf("pod %q does not exist", name))
		return
	}
	if _, known := containerOf(pod, container); !known {
		fail(w, http.StatusNotFound, fmt.Sprintf("container %q not found in pod %q", container, name))
		return
	}
	ctx, cancel := s.withStop(rq)
	defer cancel()
	id, err := loggedContainer(pod, container, o.previous)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	_, bare, _ := strings.Cut(id, "://")
	found, err := s.opts.Runtime.ContainerStatus(ctx, bare)
	if err != nil {
		s.opts.Log.Debug("failed to find a container's log", "container", id, "error", err)
		fail(w, http.StatusBadRequest, "unable to retrieve container logs for "+id)
		return
	}
	l, err := openLog(found.GetLogPath(), o)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	defer l.Close()
	w.Header().Set("Content-Type", "text/plain")
	out := &flushed{w: w, control: http.NewResponseController(w)}
	if o.follow {
		_ = out.Flush() // what is there to follow may be long in coming
	}
	// The response has begun: errors cannot be reported to the client from here on.
	if err := l.copyTo(ctx, out, func() bool { return s.running(ctx, pod, container, id, bare) }); err != nil && ctx.Err() == nil {
		s.opts.Log.Debug("failed to read a container's log", "path", found.GetLogPath(), "error", err)
	}
}

// flushed is a response that is sent on when asked to.
type flushed struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

func (f *flushed) Write(b []byte) (int, error) { return f.w.Write(b) }
func (f *flushed) Flush() error                { return f.control.Flush() }

// running reports whether a container whose log is followed may write more. What the kubelet knows costs nothing; the runtime is asked before
// the end is believed.
func (s *Server) running(ctx context.Context, pod *corev1.Pod, container, id, bare string) bool {
	if now := s.opts.Pods.Pod(pod.Namespace, pod.Name); now != nil && now.UID == pod.UID {
		if c, ok := statusOf(now, container); ok && c.ContainerID == id && c.State.Running != nil {
			return true
		}
	}
	c, err := s.opts.Runtime.ContainerStatus(ctx, bare)
	if err != nil {
		return status.Code(err) == codes.Unavailable // containers go on without their runtime
	}
	return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// containerOf returns a container of any kind of a pod.
func containerOf(pod *corev1.Pod, name string) (*corev1.Container, bool) {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return (*corev1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon), true
		}
	}
	return nil, false
}

func statusOf(pod *corev1.Pod, name string) (*corev1.ContainerStatus, bool) {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i], true
			}
		}
	}
	return nil, false
}

// loggedContainer returns the id of the run of a container whose log is requested: the current one, the last one, or the one before.
func loggedContainer(pod *corev1.Pod, name string, previous bool) (id string, err error) {
	c, ok := statusOf(pod, name)
	if !ok {
		return "", fmt.Errorf("container %q in pod %q is not available", name, pod.Name)
	}
	last := ""
	if t := c.LastTerminationState.Terminated; t != nil {
		last = t.ContainerID
	}
	switch {
	case previous:
		if last == "" {
			return "", fmt.Errorf("previous terminated container %q in pod %q not found", name, pod.Name)
		}
		return last, nil
	case c.State.Running != nil:
		return c.ContainerID, nil
	case c.State.Terminated != nil && c.State.Terminated.ContainerID != "":
		return c.State.Terminated.ContainerID, nil
	case last != "":
		return last, nil
	case c.State.Terminated != nil || c.LastTerminationState.Terminated != nil:
		return "", fmt.Errorf("container %q in pod %q is terminated", name, pod.Name)
	case c.State.Waiting != nil:
		why := c.State.Waiting.Reason
		switch why {
		case "ErrImagePull":
			why = "image can't be pulled"
		case "ImagePullBackOff":
			why = "trying and failing to pull image"
		}
		return "", fmt.Errorf("container %q in pod %q is waiting to start: %s", name, pod.Name, why)
	}
	return "", fmt.Errorf("container %q in pod %q is waiting to start - no logs yet", name, pod.Name)
}

// logQuery is the query of a log request.
type logQuery struct {
	follow, previous, timestamps bool
	since                        time.Time // nothing that is older
	tail, limit                  int64     // lines and bytes; all if negative
	stdout, stderr               bool
	sinceTwice                   bool
	sinceSeconds                 *int64
}

func parseLogQuery(q url.Values, now time.Time) (*logQuery, error) {
	o := &logQuery{tail: -1, limit: -1, follow: isSet(q.Get("follow")), previous: isSet(q.Get("previous")), timestamps: isSet(q.Get("timestamps"))}
	if tail := q.Get("tail"); tail == "all" {
		q.Del("tailLines")
	} else if tail != "" {
		q.Set("tailLines", tail) // its old name
	}
	for name, to := range map[string]*int64{"tailLines": &o.tail, "limitBytes": &o.limit} {
		if text := q.Get(name); text != "" {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return nil, err
			}
			if *to = n; n < 0 {
				*to = invalidNumber
			}
		}
	}
	if text := q.Get("sinceTime"); text != "" {
		var t metav1.Time
		if err := t.UnmarshalQueryParameter(text); err != nil {
			return nil, err
		}
		o.since = t.Time
	}
	if text := q.Get("sinceSeconds"); text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}
		o.sinceTwice, o.sinceSeconds = !o.since.IsZero(), &n
		o.since = now.Add(-time.Duration(n) * time.Second)
	}
	switch stream := q.Get("stream"); stream {
	case "", corev1.LogStreamAll:
		o.stdout, o.stderr = true, true
	case corev1.LogStreamStdout:
		o.stdout = true
	case corev1.LogStreamStderr:
		o.stderr = true
	default:
		return nil, errors.New("no such stream: " + stream)
	}
	return o, nil
}

// invalidNumber stands for one that makes no sense.
const invalidNumber = -2

func (o *logQuery) valid() bool {
	switch {
	case o.tail == invalidNumber, o.limit == invalidNumber, o.limit == 0, o.sinceTwice:
		return false
	case o.sinceSeconds != nil && *o.sinceSeconds < 1:
		return false
	}
	// Both are fine alone; upstream wants tail only of both streams.
	return o.tail < 0 || o.stdout && o.stderr
}

// isSet reports whether a flag in a query is set, as the API reads it.
func isSet(text string) bool { return text != "" && text != "false" && text != "0" }

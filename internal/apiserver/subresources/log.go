package subresources

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"skiff/internal/apiserver/request"

	"skiff/internal/apiserver/response"
	"skiff/internal/apiserver/verbs"
)

// log answers with the log of a container, which the kubelet has: GET pods/NAME/log.
func (c *Connector) log(rq *verbs.Request) error {
	if rq.Route.Rest != "" {
		return response.ErrNotFound
	}
	if rq.Route.Verb != "get" {
		return response.ErrMethodNotAllowed
	}
	opts, err := parseLogOptions(rq.Query)
	if err != nil {
		return err
	}
	if errs := validateLogOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("PodLogOptions").GroupKind(), rq.Route.Name, errs)
	}
	p, err := c.pod(rq, rq.Route.Name)
	if err != nil {
		return err
	}
	container, err := containerOf(p, opts.Container)
	if err != nil {
		return err
	}
	if p.Spec.NodeName == "" {
		rq.W.WriteHeader(http.StatusNoContent) // a pod that is not scheduled has no log
		return nil
	}
	k, err := c.kubelet(rq, p.Spec.NodeName)
	if err != nil {
		return err
	}
	kubelets, err := c.currentKubeletTransports()
	if err != nil {
		return err
	}
	transport := kubelets.verified
	if opts.InsecureSkipTLSVerifyBackend {
		transport = kubelets.unverified
	}
	location := k.url(fmt.Sprintf("/containerLogs/%s/%s/%s", p.Namespace, p.Name, container), logParameters(opts))
	return sendLog(rq, location, transport, opts.Follow)
}

func parseLogOptions(query url.Values) (*corev1.PodLogOptions, error) {
	o := &corev1.PodLogOptions{Container: query.Get("container"), Follow: request.ParseFlag(query.Get("follow")), Previous: request.ParseFlag(query.Get("previous")),
		Timestamps: request.ParseFlag(query.Get("timestamps")), InsecureSkipTLSVerifyBackend: request.ParseFlag(query.Get("insecureSkipTLSVerifyBackend"))}
	for name, to := range map[string]**int64{"sinceSeconds": &o.SinceSeconds, "tailLines": &o.TailLines, "limitBytes": &o.LimitBytes} {
		if query.Get(name) == "" {
			continue
		}
		n, err := request.ParseInt(query, name)
		if err != nil {
			return nil, err
		}
		*to = &n
	}
	if s := query.Get("sinceTime"); s != "" {
		o.SinceTime = &metav1.Time{}
		if err := o.SinceTime.UnmarshalQueryParameter(s); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
	}
	if s := query.Get("stream"); s != "" {
		o.Stream = &s
	}
	return o, nil
}

func validateLogOptions(o *corev1.PodLogOptions) field.ErrorList {
	var errs field.ErrorList
	if o.TailLines != nil && *o.TailLines < 0 {
		errs = append(errs, field.Invalid(field.NewPath("tailLines"), *o.TailLines, "must be greater than or equal to 0"))
	}
	if o.LimitBytes != nil && *o.LimitBytes < 1 {
		errs = append(errs, field.Invalid(field.NewPath("limitBytes"), *o.LimitBytes, "must be greater than 0"))
	}
	switch {
	case o.SinceSeconds != nil && o.SinceTime != nil:
		errs = append(errs, field.Forbidden(field.NewPath(""), "at most one of `sinceTime` or `sinceSeconds` may be specified"))
	case o.SinceSeconds != nil && *o.SinceSeconds < 1:
		errs = append(errs, field.Invalid(field.NewPath("sinceSeconds"), *o.SinceSeconds, "must be greater than 0"))
	}
	if o.Stream != nil {
		errs = append(errs, field.Forbidden(field.NewPath("stream"), "may not be specified")) // the feature is off by default
	}
	return errs
}

// logParameters returns the parameters of the kubelet for log options.
func logParameters(o *corev1.PodLogOptions) url.Values {
	out := url.Values{}
	for name, set := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if set {
			out.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{"sinceSeconds": o.SinceSeconds, "tailLines": o.TailLines, "limitBytes": o.LimitBytes} {
		if n != nil {
			out.Set(name, strconv.FormatInt(*n, 10))
		}
	}
	if o.SinceTime != nil {
		out.Set("sinceTime", o.SinceTime.Format(time.RFC3339))
	}
	return out
}

// sendLog answers with the log that the kubelet sends. follow flushes each piece of it at once.
func sendLog(rq *verbs.Request, location *url.URL, transport http.RoundTripper, follow bool) error {
	ask, err := http.NewRequestWithContext(rq.Ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirects forbidden") }}
	answer, err := client.Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := kubeletError(answer, rq.Route.Name); err != nil {
		return err
	}
	if rq.WantsWebSocket() {
		return rq.WebSocket(rq.Ctx, response.BinaryProtocol, func(ctx context.Context, ws *websocket.Conn) {
			defer context.AfterFunc(ctx, func() { answer.Body.Close() })() // a read may wait long for the next line
			response.CopyToWebSocket(ws, answer.Body)
		})
	}
	h := rq.W.Header()
	h.Set("Content-Type", "text/plain")
	rq.W.WriteHeader(http.StatusOK)
	var out io.Writer = rq.W
	if follow {
		flusher := http.NewResponseController(rq.W)
		out = flushWriter{rq.W, flusher}
		_ = flusher.Flush() // the first line may come late
	}
	_, _ = io.Copy(out, answer.Body) // an error cannot be reported in the middle of a response
	return nil
}

// flushWriter flushes after every write.
type flushWriter struct {
	io.Writer
	flusher *http.ResponseController
}

func (f flushWriter) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err != nil {
		return n, err
	}
	return n, f.flusher.Flush()
}

// kubeletError returns the API error for a response of a kubelet; nil if it succeeded.
func kubeletError(answer *http.Response, pod string) error {
	if answer.StatusCode >= http.StatusOK && answer.StatusCode <= http.StatusPartialContent {
		return nil
	}
	const longest = 50000
	body, err := io.ReadAll(io.LimitReader(answer.Body, longest))
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	switch answer.StatusCode {
	case http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(string(body)))
	case http.StatusBadRequest:
		return apierrors.NewBadRequest(string(body))
	}
	return apierrors.NewGenericServerResponse(answer.StatusCode, "", corev1.Resource("pods/log"), pod, string(body), 0, false)
}

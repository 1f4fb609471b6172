package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// maxBody bounds the body of an answer, unless the caller has another bound.
	maxBody = 3 << 20
	// maxErrorText bounds what an error shows of the body of an answer.
	maxErrorText = 2048
	// maxTries bounds how often a webhook is called that answers that it should be called again later.
	maxTries = 11
	// maxTransportTries bounds how often a call is tried, to find an address of a service at which somebody listens, and a connection that is open.
	maxTransportTries = 4
)

// Post sends a body in parts to a path of the endpoint, and returns the body of the answer. The context must have a deadline, which the server is told.
func (e *Endpoint) Post(ctx context.Context, urlPath string, body [2][]byte) ([]byte, error) {
	return e.PostUpTo(ctx, urlPath, body, maxBody)
}

// PostUpTo is Post for an answer of at most the given size.
func (e *Endpoint) PostUpTo(ctx context.Context, urlPath string, body [2][]byte, maxAnswer int) ([]byte, error) {
	connections, err := e.connect()
	if err != nil {
		return nil, err
	}
	defer e.done()
	u := &url.URL{Scheme: "https", Host: e.host, Path: urlPath, RawQuery: timeoutParameter(ctx)}
	for try := 1; ; try++ {
		answer, wait, err := e.post(ctx, connections, u, body, maxAnswer)
		if err == nil || wait < 0 || try == maxTries || sleep(ctx, wait) != nil {
			return answer, err
		}
	}
}

// timeoutParameter returns the parameter that tells the server how long its answer may take, in full seconds.
func timeoutParameter(ctx context.Context) string {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ""
	}
	left := time.Until(deadline)
	if left <= 0 {
		return ""
	}
	if whole := left.Truncate(time.Second); whole != left {
		left = whole + time.Second
	}
	return "timeout=" + left.String()
}

func sleep(ctx context.Context, wait time.Duration) error {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// post sends the body once. If the server wants it to be sent again later, wait is how long to wait, otherwise negative.
func (e *Endpoint) post(ctx context.Context, c *connections, u *url.URL, body [2][]byte, maxAnswer int) (answer []byte, wait time.Duration, err error) {
	response, err := e.send(ctx, c, u, body)
	if err != nil {
		return nil, -1, &url.Error{Op: "Post", URL: u.String(), Err: err}
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, int64(maxAnswer)+1))
	switch {
	case err != nil:
		return nil, -1, fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w", err)
	case len(answer) > maxAnswer:
		return nil, -1, fmt.Errorf("the response body is larger than %d bytes", maxAnswer)
	case response.StatusCode < http.StatusOK || response.StatusCode > http.StatusPartialContent:
		return nil, retryAfter(response), responseError(response, answer)
	case len(answer) == 0:
		return nil, -1, fmt.Errorf("0-length response with status code: %d and content type: %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	return answer, -1, nil
}

// send sends the body to an address of the endpoint. It does so again if a connection that was kept turns out to be closed, and resolves a service again
// if nobody listens at the address: its pod may just have ended.
func (e *Endpoint) send(ctx context.Context, c *connections, u *url.URL, body [2][]byte) (*http.Response, error) {
	for try := 1; ; try++ {
		to := *u
		if e.service != nil {
			var err error
			if to.Host, err = e.pool.resolve(ctx, e.service.Namespace, e.service.Name, e.port); err != nil {
				return nil, err
			}
		}
		response, kept, err := roundTrip(c, e.request(ctx, &to, body))
		switch {
		case err == nil, try == maxTransportTries, ctx.Err() != nil:
			return response, err
		case kept:
			c.http.CloseIdleConnections() // the others are closed, too, if the server has restarted
		case e.service == nil || !isDialError(err):
			return nil, err
		}
	}
}

// roundTrip sends a request. kept says that it was sent over a connection that was open before.
func roundTrip(c *connections, r *http.Request) (response *http.Response, kept bool, err error) {
	var reused atomic.Bool
	trace := &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { reused.Store(c.Reused) }}
	response, err = c.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	return response, reused.Load(), err
}

func (e *Endpoint) request(ctx context.Context, to *url.URL, body [2][]byte) *http.Request {
	content := func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(bytes.NewReader(body[0]), bytes.NewReader(body[1]))), nil
	}
	first, _ := content()
	r := &http.Request{Method: http.MethodPost, URL: to, Host: e.host, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: first, GetBody: content,
		ContentLength: int64(len(body[0]) + len(body[1])), Header: http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, */*"}, "User-Agent": {"kube-apiserver-admission"}}}
	return r.WithContext(ctx)
}

// isDialError reports whether no connection could be made, so that nothing was sent.
func isDialError(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// retryAfter returns how long the server asks to wait before the next try; negative if it does not.
func retryAfter(r *http.Response) time.Duration {
	if r.StatusCode != http.StatusTooManyRequests && r.StatusCode < http.StatusInternalServerError {
		return -1
	}
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return -1
	}
	return time.Duration(seconds) * time.Second
}

// responseError returns the error for an answer that is no success.
func responseError(r *http.Response, body []byte) error {
	text := "unknown"
	if isText(r.Header.Get("Content-Type")) {
		text = strings.TrimSpace(string(body[:min(len(body), maxErrorText)]))
	}
	return apierrors.NewGenericServerResponse(r.StatusCode, http.MethodPost, schema.GroupResource{}, "", text, 0, true)
}

func isText(contentType string) bool {
	if contentType == "" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && strings.HasPrefix(media, "text/")
}

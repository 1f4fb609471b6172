package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// userAgent is the User-Agent of probes over HTTP and gRPC.
const userAgent = "kube-probe/1.37"

// transport makes a new connection for each request, as a client of the container would, verifies no certificates and never uses the node's proxy.
var transport = &http.Transport{
	DialContext: dialer().DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, TLSHandshakeTimeout: 10 * time.Second,
	DisableKeepAlives: true, DisableCompression: true, ForceAttemptHTTP2: true,
}

// probeHTTP runs an httpGet probe. Any status from 200 to 399 is a success.
func probeHTTP(ctx context.Context, action *corev1.HTTPGetAction, container *corev1.Container, podIP string, timeout time.Duration) result {
	rq, err := httpRequest(ctx, action, container, podIP)
	if err != nil {
		return result{outcome: unknown, err: err}
	}
	client := &http.Client{Transport: transport, Timeout: timeout, CheckRedirect: sameHost}
	rs, err := client.Do(rq)
	if err != nil {
		return result{outcome: failure, output: err.Error()}
	}
	defer rs.Body.Close()
	body, err := io.ReadAll(io.LimitReader(rs.Body, maxOutput))
	switch {
	case err != nil:
		return result{outcome: failure, err: err}
	case rs.StatusCode < 200 || rs.StatusCode >= 400:
		// Without the body, which may hold what readers of events should not see.
		return result{outcome: failure, output: fmt.Sprintf("HTTP probe failed with statuscode: %d", rs.StatusCode)}
	case rs.StatusCode >= 300:
		return result{outcome: warning, output: "Probe terminated redirects, Response body: " + string(body)}
	}
	return result{outcome: success, output: string(body)}
}

// sameHost follows redirects within a host. A redirect to another host is the response.
func sameHost(rq *http.Request, via []*http.Request) error {
	const most = 10
	if rq.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= most {
		return fmt.Errorf("stopped after %d redirects", most)
	}
	return nil
}

func httpRequest(ctx context.Context, action *corev1.HTTPGetAction, container *corev1.Container, podIP string) (*http.Request, error) {
	port, err := portOf(action.Port, container)
	if err != nil {
		return nil, err
	}
	host := action.Host
	if host == "" {
		if host, err = address(podIP); err != nil {
			return nil, err
		}
	}
	u, err := url.Parse(action.Path)
	if err != nil {
		u = &url.URL{Path: action.Path} // the API has accepted it
	}
	u.Scheme = "http"
	if action.Scheme != "" {
		u.Scheme = strings.ToLower(string(action.Scheme))
	}
	u.Host = net.JoinHostPort(host, strconv.Itoa(port))
	rq, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for _, h := range action.HTTPHeaders {
		rq.Header.Add(h.Name, h.Value)
	}
	if _, set := rq.Header["User-Agent"]; !set {
		rq.Header.Set("User-Agent", userAgent)
	}
	switch accept, set := rq.Header["Accept"]; {
	case !set:
		rq.Header.Set("Accept", "*/*")
	case accept[0] == "":
		rq.Header.Del("Accept")
	}
	if name := rq.Header.Get("Host"); name != "" {
		rq.Host = name
	}
	return rq, nil
}

// address returns the address of a probe without a host: the pod's IP.
func address(podIP string) (string, error) {
	if podIP == "" {
		return "", errors.New("the pod has no IP address")
	}
	return podIP, nil
}

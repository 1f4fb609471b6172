package kubelet

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
	"k8s.io/apimachinery/pkg/util/intstr"
)

// runHook runs a postStart or preStop hook. message says what failed, for the container's state.
func (k *Kubelet) runHook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, id string, podIPs []string, hook *corev1.LifecycleHandler) (message string, err error) {
	of := fmt.Sprintf("for Container %q in Pod %q failed", c.Name, podName(pod))
	switch {
	case hook.Exec != nil:
		code, output, err := k.exec(ctx, id, hook.Exec.Command, 0)
		if err == nil && code != 0 {
			err = fmt.Errorf("command '%s' exited with %d: %s", strings.Join(hook.Exec.Command, " "), code, output)
		}
		if err != nil {
			return fmt.Sprintf("Exec lifecycle hook (%v) %s - error: %v, message: %q", hook.Exec.Command, of, err, output), err
		}
	case hook.HTTPGet != nil:
		if err := k.httpGetHook(ctx, pod, c, podIPs, hook.HTTPGet); err != nil {
			return fmt.Sprintf("HTTP lifecycle hook (%s) %s - error: %v", hook.HTTPGet.Path, of, err), err
		}
	case hook.Sleep != nil:
		select {
		case <-time.After(seconds(hook.Sleep.Seconds)):
		case <-ctx.Done():
			err := errors.New("container terminated before sleep hook finished")
			return fmt.Sprintf("Sleep lifecycle hook (%d) %s - error: %v", hook.Sleep.Seconds, of, err), err
		}
	default:
		err := fmt.Errorf("invalid handler: %v", hook)
		return fmt.Sprintf("Cannot run handler: %v", err), err
	}
	return "", nil
}

// exec runs a command in a container, and returns its exit code and output. limit is how long it may take; no limit if zero.
func (k *Kubelet) exec(ctx context.Context, id string, command []string, limit time.Duration) (code int, output []byte, err error) {
	r, err := k.options.Runtime.ExecSync(ctx, id, command, limit)
	if err != nil {
		return 0, nil, err
	}
	return int(r.ExitCode), append(r.Stdout, r.Stderr...), nil
}

// execForProbe is the probe.Exec of this node.
func (k *Kubelet) execForProbe(ctx context.Context, id string, command []string, limit time.Duration) (int, []byte, error) {
	return k.exec(ctx, id, command, limit)
}

const (
	maxHookResponse = 10 << 10         // how many bytes of a response are read
	hookTimeout     = 30 * time.Second // how long one request may take
)

// hookClient sends the requests of hooks. Certificates of containers prove nothing, so they are not verified.
var hookClient = &http.Client{
	Timeout: hookTimeout,
	Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		DialContext: (&net.Dialer{Timeout: hookTimeout}).DialContext},
}

// httpGetHook sends the request of an httpGet hook. Any response counts as success.
func (k *Kubelet) httpGetHook(ctx context.Context, pod *corev1.Pod, c *corev1.Container, podIPs []string, get *corev1.HTTPGetAction) error {
	host := get.Host
	if host == "" {
		if len(podIPs) == 0 {
			return errors.New("failed to find networking container: the pod has no address")
		}
		host = podIPs[0]
	}
	port, err := portOf(get.Port, c)
	if err != nil {
		return err
	}
	u := &url.URL{Scheme: strings.ToLower(string(get.Scheme)), Host: net.JoinHostPort(host, strconv.Itoa(port)), Path: "/"}
	if u.Scheme == "" {
		u.Scheme = "http"
	}
	if at, err := url.Parse(get.Path); err == nil {
		u.Path, u.RawPath, u.RawQuery = "/"+strings.TrimPrefix(at.Path, "/"), at.RawPath, at.RawQuery
	} else {
		u.Path = get.Path
	}
	err = sendHookRequest(ctx, u, get.HTTPHeaders)
	if err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
		plain := *u
		plain.Scheme = "http"
		if sendHookRequest(ctx, &plain, withoutAuthorization(get.HTTPHeaders)) == nil {
			k.recorder.Eventf(pod, corev1.EventTypeWarning, "LifecycleHTTPFallback",
				"request to HTTPS lifecycle hook %s got HTTP response, retry with HTTP succeeded", u.Host)
			return nil
		}
	}
	return err
}

func sendHookRequest(ctx context.Context, u *url.URL, headers []corev1.HTTPHeader) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "kube-lifecycle/1.37")
	req.Header.Set("Accept", "*/*")
	for _, h := range headers {
		if strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
		}
		if req.Header.Get(h.Name) != "" && (strings.EqualFold(h.Name, "User-Agent") || strings.EqualFold(h.Name, "Accept")) {
			req.Header.Del(h.Name)
		}
		if h.Value != "" || !strings.EqualFold(h.Name, "Accept") {
			req.Header.Add(h.Name, h.Value)
		}
	}
	resp, err := hookClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxHookResponse))
	return err
}

func withoutAuthorization(list []corev1.HTTPHeader) (out []corev1.HTTPHeader) {
	for _, h := range list {
		if !strings.EqualFold(h.Name, "Authorization") {
			out = append(out, h)
		}
	}
	return out
}

// portOf returns the number of a port that may be given by its name.
func portOf(p intstr.IntOrString, c *corev1.Container) (int, error) {
	port := p.IntValue()
	if p.Type == intstr.String {
		for _, named := range c.Ports {
			if named.Name == p.StrVal {
				return int(named.ContainerPort), nil
			}
		}
	}
	if port <= 0 || port > 65535 {
		return 0, fmt.Errorf("couldn't find port: %v", p.String())
	}
	return port, nil
}

package apiserver_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"skiff/internal/apitest"
)

var (
	slowStreams = flag.Int("slow.streams", 1000, "zero-window streams of TestSlowClients")
	slowBodies  = flag.Int("slow.bodies", 1000, "withheld bodies of TestSlowClients")
	slowTime    = flag.Duration("slow.time", 3*time.Second, "how long TestSlowClients measures, before and during the attack")
	slowFloor   = flag.Duration("slow.floor", 500*time.Millisecond, "99th percentile that is always good enough, as other load on the machine is not the attacker's")
)

// One user opens streams with a closed window and withholds bodies, as many as it can; another's steady requests do not notice, nor do the
// administrator's and probes. `go test ./internal/apiserver -run TestSlowClients -v -slow.time=30s -slow.floor=0` is the whole measurement.
func TestSlowClients(t *testing.T) {
	api := apitest.Start(t)
	accounts := "system:serviceaccounts"
	allow(t, api, "system:serviceaccount:default:steady")
	steady := httpClient(t, api.ConfigFor("system:serviceaccount:default:steady", accounts))
	slow := api.ConfigFor("system:serviceaccount:default:slow", accounts)
	eventually(t, "allowed", func() bool { // as soon as the authorizer knows
		status, err := steady.write(api.URL(), "first")
		return err == nil && status == http.StatusCreated
	})
	quiet := steadyRequests(t, steady, api.URL(), "quiet")

	var attack slowClients
	for left := *slowStreams; left > 0; left -= 100 {
		attack.open(t, api, slow, min(left, 100), func(c *slowConn, id uint32) { c.request(id, "GET", "/api/v1", true) })
	}
	for left := *slowBodies; left > 0; left -= 100 {
		attack.open(t, api, slow, min(left, 100), func(c *slowConn, id uint32) {
			c.request(id, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", false)
		})
	}
	// Those that execute block at once; those that find no seat wait.
	deadline := time.Now().Add(10 * time.Second)
	for attack.begun.Load() == 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)

	admin := httpClient(t, api.Config())
	began := time.Now()
	if status, err := admin.get(api.URL() + "/api/v1/namespaces"); err != nil || status != http.StatusOK {
		t.Errorf("the administrator's list: %d %v after %v", status, err, time.Since(began))
	}
	began = time.Now()
	if status, err := httpClient(t, &rest.Config{Host: api.URL(), TLSClientConfig: rest.TLSClientConfig{CAData: api.Config().CAData}}).get(api.URL() + "/livez"); err != nil || status != http.StatusOK {
		t.Errorf("/livez: %d %v after %v", status, err, time.Since(began))
	}
	attacked := steadyRequests(t, steady, api.URL(), "attacked")
	t.Logf("99th percentile of %d requests: quiet %v, beside %d zero-window streams and %d withheld bodies %v; %d of these ended meanwhile", len(attacked),
		p99(quiet), *slowStreams, *slowBodies, p99(attacked), attack.ended.Load())
	if limit := max(2*p99(quiet), *slowFloor); p99(attacked) > limit {
		t.Errorf("the 99th percentile is %v, more than %v", p99(attacked), limit)
	}
}

func p99(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)*99/100]
}

// allow makes somebody an administrator in the namespace default.
func allow(t *testing.T, api *apitest.Server, user string) {
	t.Helper()
	if _, err := api.Client().RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "steady"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", APIGroup: rbacv1.GroupName, Name: "cluster-admin"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// steadyClient sends requests of one user.
type steadyClient struct{ *http.Client }

func httpClient(t *testing.T, config *rest.Config) steadyClient {
	t.Helper()
	c, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	c.Timeout = 30 * time.Second
	return steadyClient{c}
}

func (c steadyClient) do(r *http.Request, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	answer, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

func (c steadyClient) get(url string) (int, error) {
	return c.do(http.NewRequest(http.MethodGet, url, nil))
}

func (c steadyClient) write(url, name string) (int, error) {
	r, err := http.NewRequest(http.MethodPost, url+"/api/v1/namespaces/default/configmaps", bytes.NewReader(fmt.Appendf(nil, `{"metadata":{"name":%q}}`, name)))
	if err == nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.do(r, err)
}

// steadyRequests sends 50 requests a second, four reads to a write, and returns how long each took.
func steadyRequests(t *testing.T, c steadyClient, url, name string) []time.Duration {
	t.Helper()
	const every = 20 * time.Millisecond
	var mu sync.Mutex
	var took []time.Duration
	var wg sync.WaitGroup
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for i := range int(*slowTime / every) {
		<-ticker.C
		wg.Go(func() {
			began := time.Now()
			var status int
			var err error
			if i%5 == 0 {
				status, err = c.write(url, fmt.Sprintf("%s-%d", name, i))
			} else {
				status, err = c.get(url + "/api/v1/namespaces/default/configmaps/first")
			}
			mu.Lock()
			defer mu.Unlock()
			took = append(took, time.Since(began))
			if err != nil || status/100 != 2 {
				t.Errorf("%s request %d: %d %v after %v", name, i, status, err, time.Since(began))
			}
		})
	}
	wg.Wait()
	return took
}

// slowClients are connections whose streams make no progress. A stream that ends is opened again.
type slowClients struct {
	begun, ended atomic.Int64
}

// slowConn is one of the connections of slowClients.
type slowConn struct {
	mu     sync.Mutex // of what is written
	frames *http2.Framer
	block  bytes.Buffer
	hpack  *hpack.Encoder
	token  string
}

// open opens a connection with so many streams. It is closed with the test.
func (a *slowClients) open(t *testing.T, api *apitest.Server, config *rest.Config, streams int, begin func(*slowConn, uint32)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}
	conn, err := dialer.DialContext(ctx, "tcp", api.URL()[len("https://"):])
	if err != nil {
		t.Fatal(err)
	}
	c := &slowConn{frames: http2.NewFramer(conn, conn), token: config.BearerToken}
	c.hpack = hpack.NewEncoder(&c.block)
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := c.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	next := uint32(1)
	for range streams {
		begin(c, next)
		next += 2
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for {
			f, err := c.frames.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.HeadersFrame:
				a.begun.Add(1)
				if !f.StreamEnded() {
					continue
				}
			case *http2.RSTStreamFrame:
			default:
				continue
			}
			a.ended.Add(1)
			begin(c, next)
			next += 2
		}
	})
	t.Cleanup(func() {
		conn.Close()
		reading.Wait()
	})
}

// request begins a request. One that does not end announces a body.
func (c *slowConn) request(id uint32, method, path string, end bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.block.Reset()
	fields := [][2]string{{":method", method}, {":scheme", "https"}, {":authority", "skiff"}, {":path", path}, {"authorization", "Bearer " + c.token}}
	if !end {
		fields = append(fields, [2]string{"content-type", "application/json"}, [2]string{"content-length", "1000"})
	}
	for _, f := range fields {
		_ = c.hpack.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}) // to memory
	}
	_ = c.frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.block.Bytes(), EndStream: end, EndHeaders: true}) // the reader sees if it fails
}

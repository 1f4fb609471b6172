package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"skiff/internal/client"
	"skiff/internal/cluster/components"
	"skiff/internal/controller"
	"skiff/internal/controller/all"
	"skiff/internal/controller/node/nodeipam"
	"skiff/internal/scheduler"
)

// Remote configures a component in a process of its own.
type Remote struct {
	Kubeconfig string
	// Election sets the fields of leader election that flags give, over the defaults or those of a configuration file.
	Election func(*client.Election)
	Config
}

// RunControllers runs control loops against a server elsewhere, until ctx ends or leadership is lost.
func RunControllers(ctx context.Context, r Remote) error {
	const component = "kube-controller-manager"
	var lease client.Lease
	c, err := r.client(component, &lease)
	if err != nil {
		return err
	}
	r.completePodCIDRs()
	config := r.Loops
	if all.On(nodeipam.Name, r.Controllers) {
		if err := nodeipam.Check(config); err != nil {
			return err
		}
	}
	if file := c.Config().CAFile; file != "" {
		if config.RootCA, err = os.ReadFile(file); err != nil {
			return err
		}
	} else {
		config.RootCA = c.Config().CAData
	}
	election := client.DefaultElection(component)
	r.Election(&election)
	var failed error
	err = lease.Lead(ctx, c, election, r.Log, func(ctx context.Context) { failed = r.runControllers(ctx, c, config) })
	return errors.Join(failed, err)
}

func (r *Remote) runControllers(ctx context.Context, c *client.Client, config controller.Config) error {
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{Resync: components.Resync}), Client: c, Log: r.Log, Config: config}
	loops, err := all.New(r.Controllers, deps)
	if err != nil {
		return fmt.Errorf("--controllers: %w", err)
	}
	accounts, err := newAccounts(c)
	if err != nil {
		return err
	}
	m, err := controller.New(controller.Options{Informers: deps.Informers, Loops: loops, Log: r.Log,
		Client: func(account string) (*client.Client, error) { return accounts.client(ctx, account) }})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	m.Run(ctx)
	return nil
}

// RunScheduler runs a scheduler against a server elsewhere, until ctx ends or leadership is lost.
func RunScheduler(ctx context.Context, r Remote) error {
	config, err := r.Config.Scheduler.load()
	if err != nil {
		return err
	}
	if r.Config.Scheduler.File == "" {
		config.LeaderElection.Elect = true
	}
	r.Election(&config.LeaderElection)
	c, err := client.ForKubeconfig(r.Kubeconfig, "kube-scheduler")
	if err != nil {
		return err
	}
	s, err := scheduler.New(scheduler.Options{Client: c, Config: config, Log: r.Log})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// client returns a client that sends nothing after the lease was lost.
func (r *Remote) client(component string, lease *client.Lease) (*client.Client, error) {
	c, err := client.ForKubeconfig(r.Kubeconfig, component)
	if err != nil {
		return nil, err
	}
	return c.Under(lease)
}

// accounts makes clients for the service accounts of kube-system that control loops act as. Their tokens are requested and renewed by one client, whose
// settings they have; they share connections.
type accounts struct {
	requester *client.Client    // requests tokens
	transport http.RoundTripper // without credentials
}

func newAccounts(requester *client.Client) (*accounts, error) {
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(requester.Config()))
	if err != nil {
		return nil, err
	}
	return &accounts{requester, transport}, nil
}

// client returns a client that acts as a service account, which it creates if there is none.
func (a *accounts) client(ctx context.Context, account string) (*client.Client, error) {
	api := a.requester.Kubernetes()
	if err := ensureAccount(ctx, api, account); err != nil {
		return nil, err
	}
	config := a.requester.Config()
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, err
	}
	config.Host, config.Transport, config.Dial, config.TLSClientConfig = url.String(), a.transport, nil, rest.TLSClientConfig{}
	config.BearerToken, config.BearerTokenFile, config.Username, config.Password = "", "", "", ""
	config.AuthProvider, config.ExecProvider = nil, nil
	config.UserAgent += "/system:serviceaccount:kube-system:" + account
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &accountToken{next: next, account: account, kubernetes: api}
	})
	return client.ForConfig(config, account)
}

// ensureAccount creates a service account if there is none. It retries for a while if the server does not answer or fails.
func ensureAccount(ctx context.Context, api kubernetes.Interface, account string) error {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8}
	for {
		_, err := api.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		var status apierrors.APIStatus
		switch {
		case err == nil || apierrors.IsAlreadyExists(err):
			return nil
		case ctx.Err() != nil || backoff.Steps < 1 || errors.As(err, &status) && status.Status().Code < http.StatusInternalServerError && status.Status().Code != http.StatusTooManyRequests:
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff.Step()):
		}
	}
}

// accountToken adds the token of a service account to requests, and renews it.
type accountToken struct {
	next       http.RoundTripper
	account    string
	kubernetes kubernetes.Interface

	mu      sync.Mutex
	token   string
	renewAt time.Time
}

// tokenLife is the lifetime of a token, which is renewed after four fifths of it.
const tokenLife = time.Hour

// RoundTrip sends a request with a token that is valid for a while.
func (a *accountToken) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.current(r.Context())
	if err != nil {
		return nil, fmt.Errorf("failed to request a token for service account kube-system/%s: %w", a.account, err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return a.next.RoundTrip(r)
}

// current returns the token, or a new one if it is to be renewed.
func (a *accountToken) current(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.renewAt) {
		return a.token, nil
	}
	seconds := int64(tokenLife / time.Second)
	answer, err := a.kubernetes.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, a.account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	a.token, a.renewAt = answer.Status.Token, time.Now().Add(tokenLife*4/5)
	return a.token, nil
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (a *accountToken) WrappedRoundTripper() http.RoundTripper { return a.next }

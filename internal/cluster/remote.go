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

// Remote is a component in a process of its own.
type Remote struct {
	Kubeconfig string
	// Election says what is to be otherwise than its default, or than a configuration file has it, in how a leader is elected.
	Election func(*client.Election)
	Config
}

// RunControllers runs control loops against a server elsewhere, until ctx ends or another instance leads.
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

// RunScheduler runs a scheduler against a server elsewhere, until ctx ends or another instance leads.
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

// client reaches the server while the lease lasts.
func (r *Remote) client(component string, lease *client.Lease) (*client.Client, error) {
	c, err := client.ForKubeconfig(r.Kubeconfig, component)
	if err != nil {
		return nil, err
	}
	return c.Under(lease)
}

// accounts are service accounts of kube-system that loops act as, with tokens that are asked for and renewed in the name of one client. Their
// clients share its connections' settings and one another's connections.
type accounts struct {
	by        *client.Client
	transport http.RoundTripper // without credentials
}

func newAccounts(by *client.Client) (*accounts, error) {
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(by.Config()))
	if err != nil {
		return nil, err
	}
	return &accounts{by, transport}, nil
}

// client acts as one of them.
func (a *accounts) client(ctx context.Context, account string) (*client.Client, error) {
	api := a.by.Kubernetes()
	if err := ensureAccount(ctx, api, account); err != nil {
		return nil, err
	}
	config := a.by.Config()
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

// ensureAccount makes a service account if there is none. A server that does not answer, or a connection that ends, is no reason to give up at once.
func ensureAccount(ctx context.Context, api kubernetes.Interface, account string) error {
	patience := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8}
	for {
		_, err := api.CoreV1().ServiceAccounts(metav1.NamespaceSystem).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
		var refused apierrors.APIStatus
		switch {
		case err == nil || apierrors.IsAlreadyExists(err):
			return nil
		case ctx.Err() != nil || patience.Steps < 1 || errors.As(err, &refused) && refused.Status().Code < http.StatusInternalServerError && refused.Status().Code != http.StatusTooManyRequests:
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(patience.Step()):
		}
	}
}

// accountToken puts a token into requests.
type accountToken struct {
	next       http.RoundTripper
	account    string
	kubernetes kubernetes.Interface

	mu    sync.Mutex
	token string
	renew time.Time
}

const tokenLife = time.Hour

// RoundTrip sends a request with a token that is good for a while.
func (a *accountToken) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := a.current(r.Context())
	if err != nil {
		return nil, fmt.Errorf("a token for %s: %w", a.account, err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	return a.next.RoundTrip(r)
}

func (a *accountToken) current(ctx context.Context) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.renew) {
		return a.token, nil
	}
	seconds := int64(tokenLife / time.Second)
	answer, err := a.kubernetes.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, a.account,
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	a.token, a.renew = answer.Status.Token, time.Now().Add(tokenLife*4/5)
	return a.token, nil
}

// WrappedRoundTripper lets client-go find the transport underneath.
func (a *accountToken) WrappedRoundTripper() http.RoundTripper { return a.next }

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
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"skiff/internal/client"
	"skiff/internal/controller"
	"skiff/internal/controller/all"
	"skiff/internal/scheduler"
)

// Remote is a component in a process of its own.
type Remote struct {
	Kubeconfig  string
	LeaderElect bool
	Config
}

// RunControllers runs control loops against a server elsewhere, until ctx ends or another instance leads.
func RunControllers(ctx context.Context, r Remote) error {
	const component = "kube-controller-manager"
	c, err := client.ForKubeconfig(r.Kubeconfig, component)
	if err != nil {
		return err
	}
	config := r.Loops
	if file := c.Config().CAFile; file != "" {
		if config.RootCA, err = os.ReadFile(file); err != nil {
			return err
		}
	} else {
		config.RootCA = c.Config().CAData
	}
	return r.lead(ctx, c, component, func(ctx context.Context) error {
		deps := controller.Deps{Informers: c.Informers(client.InformerOptions{Resync: resync}), Client: c, Log: r.Log, Config: config}
		loops, err := all.New(r.Controllers, deps)
		if err != nil {
			return fmt.Errorf("--controllers: %w", err)
		}
		m, err := controller.New(controller.Options{Informers: deps.Informers, Loops: loops, Log: r.Log,
			Client: func(account string) (*client.Client, error) { return accountClient(ctx, c, account) }})
		if err != nil {
			return err
		}
		m.Run(ctx)
		return nil
	})
}

// RunScheduler runs a scheduler against a server elsewhere, until ctx ends or another instance leads.
func RunScheduler(ctx context.Context, r Remote) error {
	const component = "kube-scheduler"
	c, err := client.ForKubeconfig(r.Kubeconfig, component)
	if err != nil {
		return err
	}
	config, err := r.Config.Scheduler.load()
	if err != nil {
		return err
	}
	config.LeaderElection.Elect = r.LeaderElect
	s, err := scheduler.New(scheduler.Options{Client: c, Config: config, Log: r.Log})
	if err != nil {
		return err
	}
	return s.Run(ctx)
}

// How leaders are elected, as upstream does by default.
const (
	leaseDuration = 15 * time.Second
	renewDeadline = 10 * time.Second
	retryPeriod   = 2 * time.Second
)

var errLost = errors.New("leaderelection lost")

// lead runs something while this process leads all others of its kind.
func (r *Remote) lead(ctx context.Context, c *client.Client, name string, run func(context.Context) error) error {
	if !r.LeaderElect {
		return run(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}, Client: c.Kubernetes().CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: c.Recorder(ctx)}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	result := errLost
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{Lock: lock, Name: name, ReleaseOnCancel: true,
		LeaseDuration: leaseDuration, RenewDeadline: renewDeadline, RetryPeriod: retryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				result = run(ctx)
				cancel()
			},
			OnStoppedLeading: func() {},
		}})
	if err != nil {
		return err
	}
	elector.Run(ctx)
	return result
}

// accountClient acts as a service account of kube-system, with a token that is asked for and renewed in the name of c.
func accountClient(ctx context.Context, c *client.Client, account string) (*client.Client, error) {
	accounts := c.Kubernetes().CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	_, err := accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	config := c.Config()
	config.CertFile, config.KeyFile, config.CertData, config.KeyData, config.BearerToken, config.BearerTokenFile = "", "", nil, nil, "", ""
	config.UserAgent = ""
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &accountToken{next: next, account: account, kubernetes: c.Kubernetes()}
	})
	return client.ForConfig(config, account)
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

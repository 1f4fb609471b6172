package cluster

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/client"
	"skiff/internal/cluster/datadir"
	"skiff/internal/cluster/join"
	"skiff/internal/cluster/kubeconfig"
	"skiff/internal/cluster/pki"
	"skiff/internal/controller/bootstrap"
)

// AgentConfig configures a node that joins a cluster elsewhere.
type AgentConfig struct {
	DataDir string
	Server  string // URL of the API; the one that the node has joined before, if empty
	Token   string // bootstrap token to join with; not needed once the node has joined
	Node    NodeConfig
	Disable []string // NodeParts not to run
	Log     *slog.Logger
}

// Agent is a node that runs in a process of its own, for a server elsewhere.
type Agent struct {
	config   AgentConfig
	state    agentState
	identity *join.Identity
	node     *node

	cancel context.CancelFunc
	wg     sync.WaitGroup
	failed chan error
}

// agentState is kept in the data directory, so that an agent can start again while the server cannot be reached.
type agentState struct {
	Server, Node string
	Cluster      *clusterConfig
}

const (
	agentStateFile = "agent.json"
	// AgentTokenFile is the file in the data directory from which a service reads the token to join with.
	AgentTokenFile = "token"
)

// Complete fills in what an earlier start has recorded and defaults, and returns an error for what is invalid.
func (c *AgentConfig) Complete() error {
	orDefault(&c.DataDir, DefaultDataDir)
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	recorded, err := readAgentState(c.DataDir)
	if err != nil {
		return err
	}
	orDefault(&c.Server, recorded.Server)
	orDefault(&c.Node.Name, recorded.Node)
	url, err := join.ServerURL(c.Server)
	if err != nil {
		return err
	}
	c.Server = url.String()
	if err := checkParts(c.Disable, NodeParts); err != nil {
		return err
	}
	if c.Token != "" {
		if _, err := join.ParseToken(c.Token); err != nil {
			return fmt.Errorf("--token: %w", err)
		}
	}
	c.Node.Run = true
	return c.Node.complete()
}

// WriteAgentToken writes the token to join with to AgentTokenFile, for a service to read.
func WriteAgentToken(dataDir, token string) (file string, err error) {
	if err := datadir.Prepare(dataDir); err != nil {
		return "", err
	}
	file = filepath.Join(dataDir, AgentTokenFile)
	return file, datadir.WriteFile(file, []byte(token+"\n"))
}

// IsAgent reports whether a data directory is that of an agent, and the name of its node.
func IsAgent(dataDir string) (node string, ok bool) {
	s, err := readAgentState(dataDir)
	return s.Node, err == nil && s.Node != ""
}

func readAgentState(dataDir string) (s agentState, err error) {
	file := filepath.Join(dataDir, agentStateFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	if json.Unmarshal(data, &s) != nil {
		return agentState{}, nil // the file was cut short: flags must say what it held
	}
	return s, nil
}

// writeState writes the agent's state to its data directory.
func (a *Agent) writeState() error {
	data, err := json.MarshalIndent(a.state, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(a.config.DataDir, agentStateFile)
	return datadir.WriteFile(file, append(data, '\n'))
}

// StartAgent joins the cluster, if the machine has not joined before, and starts its node.
func StartAgent(ctx context.Context, config AgentConfig) (_ *Agent, err error) {
	if err := config.Complete(); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(config.DataDir, "etcd")); err == nil {
		return nil, fmt.Errorf("%s is the data directory of a server, which has a node already: use another --data-dir", config.DataDir)
	}
	if err := datadir.Prepare(config.DataDir); err != nil {
		return nil, err
	}
	a := &Agent{config: config, failed: make(chan error, 1)}
	running, cancel := context.WithCancel(context.Background())
	a.cancel = cancel
	defer func() {
		if err != nil {
			a.Stop()
		}
	}()
	if err := a.join(ctx); err != nil {
		return nil, err
	}
	if a.node, err = startRuntime(running, nodeOptions{DataDir: config.DataDir, Config: config.Node, Log: config.Log, Go: a.wg.Go, Fail: a.fail}); err != nil {
		return nil, err
	}
	as := func(component string) (*client.Client, error) {
		return client.ForConfig(a.identity.Config(), component)
	}
	c, err := as("kubelet")
	if err != nil {
		return nil, err
	}
	if err := a.readClusterConfig(ctx, c); err != nil {
		return nil, err
	}
	if err := a.state.Cluster.checkNode(config.Node.IP); err != nil {
		return nil, err
	}
	clients := a.clientCAs()
	access := nodeAccess{Client: c, As: as, Remote: true, ClientCAs: clients, Serving: kubeletServingConfig(a.identity, clients),
		ClusterCIDRs: a.state.Cluster.PodCIDRs, ServiceCIDRs: a.state.Cluster.ServiceCIDRs, Domain: a.state.Cluster.Domain,
		Network: a.state.Cluster.Network.withDisabled(config.Disable)}
	a.wg.Go(func() { a.identity.Run(running) })
	if err := a.node.start(running, access); err != nil {
		return nil, err
	}
	if err := a.keepTunnel(running, c); err != nil {
		return nil, err
	}
	return a, nil
}

// join gets the node's identity, from the data directory or by joining, and records it.
func (a *Agent) join(ctx context.Context) error {
	o := join.Options{Dir: filepath.Join(a.config.DataDir, "pki"), Node: a.config.Node.Name, Hosts: []string{a.config.Node.Name, a.config.Node.IP}, Log: a.config.Log}
	var err error
	if o.Server, err = join.ServerURL(a.config.Server); err != nil {
		return err
	}
	if a.config.Token != "" {
		token, err := join.ParseToken(a.config.Token)
		if err != nil {
			return err
		}
		o.Token = &token
	}
	if a.identity, err = join.Open(ctx, o); err != nil {
		return err
	}
	if a.state, err = readAgentState(a.config.DataDir); err != nil {
		return err
	}
	a.state.Server, a.state.Node = a.config.Server, a.config.Node.Name
	if err := a.writeState(); err != nil {
		return err
	}
	certificate, key := filepath.Join("pki", pki.KubeletClient+".crt"), filepath.Join("pki", pki.KubeletClient+".key")
	return kubeconfig.Write(filepath.Join(a.config.DataDir, agentKubeconfig), DefaultName, &api.Cluster{Server: a.config.Server, CertificateAuthority: filepath.Join("pki", "ca.crt")},
		&api.AuthInfo{ClientCertificate: certificate, ClientKey: key})
}

// agentKubeconfig is the kubeconfig in an agent's data directory, with the node's certificate.
const agentKubeconfig = "kubelet.kubeconfig"

// configTimeout is how long an agent that has recorded the cluster's configuration waits for the current one when it starts.
const configTimeout = 3 * time.Second

// readClusterConfig reads the cluster's configuration from the API. If the server cannot be reached, the recorded one is used.
func (a *Agent) readClusterConfig(ctx context.Context, c *client.Client) error {
	recorded := a.state.Cluster != nil
	if recorded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, configTimeout)
		defer cancel()
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		object, err := c.Kubernetes().CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, bootstrap.ClusterConfigName, metav1.GetOptions{})
		if err == nil {
			if a.state.Cluster, err = parseClusterConfig(object); err == nil {
				return a.writeState()
			}
		}
		if ctx.Err() == nil && pause >= time.Second {
			a.config.Log.Warn("failed to read the cluster's configuration", "server", a.config.Server, "error", err)
		}
		select {
		case <-ctx.Done():
			if recorded {
				return nil
			}
			return err
		case <-time.After(pause):
		}
	}
}

// clientCAs returns the authorities of the client certificates that the kubelet accepts.
func (a *Agent) clientCAs() func() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(a.state.Cluster.ClientCA))
	return func() *x509.CertPool { return pool }
}

// fail has Wait return the error. Only the first error counts.
func (a *Agent) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// Node returns the name of the node.
func (a *Agent) Node() string { return a.config.Node.Name }

// Wait returns nil when ctx ends, or the error that made the agent fail.
func (a *Agent) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.failed:
		return err
	}
}

// Stop stops the agent. Its pods keep running.
func (a *Agent) Stop() {
	a.cancel()
	a.wg.Wait()
	a.node.stop()
}

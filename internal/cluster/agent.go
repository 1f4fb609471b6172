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

// AgentConfig is a node that joins a cluster elsewhere.
type AgentConfig struct {
	DataDir string
	Server  string // the URL of the API; where it was before if empty
	Token   string // what to join with; not needed once it has
	Node    NodeConfig
	Disable []string // parts of the network not to run
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

// agentState is what an agent knows when it starts again, also when the server cannot be reached.
type agentState struct {
	Server, Node string
	Cluster      *clusterConfig
}

const (
	agentStateFile = "agent.json"
	// AgentTokenFile is where a service finds what to join with.
	AgentTokenFile = "token"
)

// Complete fills in defaults, and what an earlier start left, and says what is wrong with the rest.
func (c *AgentConfig) Complete() error {
	orDefault(&c.DataDir, DefaultDataDir)
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return err
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	before, err := readAgentState(c.DataDir)
	if err != nil {
		return err
	}
	orDefault(&c.Server, before.Server)
	orDefault(&c.Node.Name, before.Node)
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

// WriteAgentToken keeps what to join with in a data directory, for a service to find.
func WriteAgentToken(dataDir, token string) (file string, err error) {
	if err := datadir.Prepare(dataDir); err != nil {
		return "", err
	}
	file = filepath.Join(dataDir, AgentTokenFile)
	return file, datadir.WriteFile(file, []byte(token+"\n"))
}

// IsAgent reports whether a data directory is that of an agent, and of which node.
func IsAgent(dataDir string) (node string, ok bool) {
	m, err := readAgentState(dataDir)
	return m.Node, err == nil && m.Node != ""
}

func readAgentState(dataDir string) (m agentState, err error) {
	file := filepath.Join(dataDir, agentStateFile)
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return m, nil
	}
	if err != nil {
		return m, err
	}
	if json.Unmarshal(data, &m) != nil {
		return agentState{}, nil // it was cut short: flags say it all
	}
	return m, nil
}

func (a *Agent) write() error {
	data, err := json.MarshalIndent(a.state, "", "  ")
	if err != nil {
		return err
	}
	file := filepath.Join(a.config.DataDir, agentStateFile)
	return datadir.WriteFile(file, append(data, '\n'))
}

// StartAgent joins the cluster, if the machine has not before, and starts its node.
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
	if a.node, err = beginNode(running, nodeOptions{DataDir: config.DataDir, Config: config.Node, Log: config.Log, Go: a.wg.Go, Fail: a.fail}); err != nil {
		return nil, err
	}
	as := func(component string) (*client.Client, error) {
		return client.ForConfig(a.identity.Config(), component)
	}
	c, err := as("kubelet")
	if err != nil {
		return nil, err
	}
	if err := a.learn(ctx, c); err != nil {
		return nil, err
	}
	if err := a.state.Cluster.checkNode(config.Node.IP); err != nil {
		return nil, err
	}
	clients := a.clientCAs()
	access := nodeAccess{Client: c, As: as, Remote: true, ClientCAs: clients, Serving: servingWith(a.identity, clients),
		ClusterCIDRs: a.state.Cluster.PodCIDRs, ServiceCIDRs: a.state.Cluster.ServiceCIDRs, Domain: a.state.Cluster.Domain,
		Network: a.state.Cluster.Network.and(config.Disable)}
	a.wg.Go(func() { a.identity.Run(running) })
	if err := a.node.start(running, access); err != nil {
		return nil, err
	}
	if err := a.keepTunnel(running, c); err != nil {
		return nil, err
	}
	return a, nil
}

// join finds out who this machine is, and writes it down.
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
	if err := a.write(); err != nil {
		return err
	}
	certificate, key := filepath.Join("pki", pki.KubeletClient+".crt"), filepath.Join("pki", pki.KubeletClient+".key")
	return kubeconfig.Write(filepath.Join(a.config.DataDir, agentKubeconfig), DefaultName, &api.Cluster{Server: a.config.Server, CertificateAuthority: filepath.Join("pki", "ca.crt")},
		&api.AuthInfo{ClientCertificate: certificate, ClientKey: key})
}

// agentKubeconfig is how programs on an agent's machine reach the API as the node.
const agentKubeconfig = "kubelet.kubeconfig"

// learnTime is how long an agent that knows its cluster from before waits for news at its start.
const learnTime = 3 * time.Second

// learn finds out how the cluster is laid out; what it was before is good enough if the server cannot be reached.
func (a *Agent) learn(ctx context.Context, c *client.Client) error {
	known := a.state.Cluster != nil
	if known {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, learnTime)
		defer cancel()
	}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		object, err := c.Kubernetes().CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, bootstrap.ClusterConfigName, metav1.GetOptions{})
		if err == nil {
			if a.state.Cluster, err = parseClusterConfig(object); err == nil {
				return a.write()
			}
		}
		if ctx.Err() == nil && pause >= time.Second {
			a.config.Log.Warn("cannot find out how the cluster is laid out", "server", a.config.Server, "error", err)
		}
		select {
		case <-ctx.Done():
			if known {
				return nil
			}
			return err
		case <-time.After(pause):
		}
	}
}

// clientCAs are who vouches for those that come to the kubelet.
func (a *Agent) clientCAs() func() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(a.state.Cluster.ClientCA))
	return func() *x509.CertPool { return pool }
}

// fail ends Wait, with the first of what went wrong.
func (a *Agent) fail(err error) {
	select {
	case a.failed <- err:
	default:
	}
}

// Node is the name of the node.
func (a *Agent) Node() string { return a.config.Node.Name }

// Wait returns when ctx ends, or with what made the agent fail.
func (a *Agent) Wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-a.failed:
		return err
	}
}

// Stop ends the agent and leaves its pods running.
func (a *Agent) Stop() {
	a.cancel()
	a.wg.Wait()
	a.node.end()
}

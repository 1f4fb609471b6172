package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/cluster/join"
	"skiff/internal/cluster/pki"
	"skiff/internal/controller/bootstrap"
)

// clusterInfoName is the ConfigMap in kube-public that says where the cluster is, and clusterInfoKey its key, as kubeadm has them.
const (
	clusterInfoName = "cluster-info"
	clusterInfoKey  = "kubeconfig"
)

// clusterConfig is the configuration of a cluster that nodes need, in a ConfigMap of kube-system.
type clusterConfig struct {
	PodCIDRs     []string      `json:"podCIDRs"`
	ServiceCIDRs []string      `json:"serviceCIDRs"`
	Domain       string        `json:"domain"`
	Network      NetworkConfig `json:"network"`
	ClientCA     string        `json:"clientCA"` // authorities of the client certificates that kubelets accept, in PEM
}

func parseClusterConfig(configMap *corev1.ConfigMap) (*clusterConfig, error) {
	c := &clusterConfig{}
	if err := json.Unmarshal([]byte(configMap.Data[bootstrap.ClusterConfigKey]), c); err != nil {
		return nil, fmt.Errorf("failed to parse ConfigMap %s/%s: %w", configMap.Namespace, configMap.Name, err)
	}
	if len(c.PodCIDRs) == 0 || len(c.ServiceCIDRs) == 0 || c.Domain == "" || c.ClientCA == "" {
		return nil, fmt.Errorf("ConfigMap %s/%s lacks podCIDRs, serviceCIDRs, domain or clientCA; the server's control loops write it", configMap.Namespace, configMap.Name)
	}
	return c, nil
}

// checkNode fails if the address of a node that joins is one that a pod or a Service could get.
func (c *clusterConfig) checkNode(ip string) error {
	pods, err := parsePrefixes(c.PodCIDRs)
	if err != nil {
		return err
	}
	services, err := parsePrefixes(c.ServiceCIDRs)
	if err != nil {
		return err
	}
	if err := checkNodeAddress(ip, flagRanges{"cluster-cidr", pods}, flagRanges{"service-cluster-ip-range", services}); err != nil {
		return fmt.Errorf("%w, which the server was started with; --node-ip gives another address", err)
	}
	return nil
}

// bootstrapConfig returns what the bootstrap controller publishes for machines that join: the clusterConfig, for nodes, and a kubeconfig with the API's address
// and authority, for everybody.
func (s *Server) bootstrapConfig() (config, info string, err error) {
	data, err := json.Marshal(clusterConfig{PodCIDRs: s.config.Loops.ClusterCIDRs, ServiceCIDRs: s.config.ServiceCIDRs, Domain: clusterDomain, Network: s.config.Network,
		ClientCA: string(s.certs.Bundle(pki.CA))})
	if err != nil {
		return "", "", err
	}
	kubeconfig := api.NewConfig()
	kubeconfig.Clusters[""] = &api.Cluster{Server: "https://" + net.JoinHostPort(s.config.AdvertiseAddress, strconv.Itoa(s.config.Port)), CertificateAuthorityData: s.authorities()}
	text, err := clientcmd.Write(*kubeconfig)
	return string(data), string(text), err
}

// authorities returns the authorities that the API's certificate is verified with, in PEM.
func (s *Server) authorities() []byte {
	if s.ca != nil {
		return s.ca
	}
	return s.certs.Bundle(pki.CA)
}

// serveAuthorities serves the authorities of the API to anybody, before authentication: they are no secret, and machines that join check them against the hash
// in their token.
func (s *Server) serveAuthorities(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != join.AuthoritiesPath {
			next.ServeHTTP(w, r)
			return
		}
		// The client is not authenticated: a body that it announces and does not send must not hold the connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(writeTimeout))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTimeout))
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(s.authorities())
	})
}

// kubeletServingConfig returns a function that adds the certificate of an agent's kubelet to a TLS configuration.
func kubeletServingConfig(id *join.Identity, clients func() *x509.CertPool) func(*tls.Config) *tls.Config {
	return func(base *tls.Config) *tls.Config { return id.Serving(base, clients) }
}

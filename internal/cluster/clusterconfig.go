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

// Where it is found what is told to everybody.
const (
	clusterInfoName = "cluster-info"
	clusterInfoKey  = "kubeconfig"
)

// clusterConfig is how a cluster is laid out.
type clusterConfig struct {
	PodCIDRs     []string      `json:"podCIDRs"`
	ServiceCIDRs []string      `json:"serviceCIDRs"`
	Domain       string        `json:"domain"`
	Network      NetworkConfig `json:"network"`
	ClientCA     string        `json:"clientCA"` // who vouches for those that come to kubelets, in PEM
}

func parseClusterConfig(object *corev1.ConfigMap) (*clusterConfig, error) {
	c := &clusterConfig{}
	if err := json.Unmarshal([]byte(object.Data[bootstrap.ClusterConfigKey]), c); err != nil {
		return nil, fmt.Errorf("the config map %s/%s: %w", object.Namespace, object.Name, err)
	}
	if len(c.PodCIDRs) == 0 || len(c.ServiceCIDRs) == 0 || c.Domain == "" || c.ClientCA == "" {
		return nil, fmt.Errorf("the config map %s/%s does not say all there is to know", object.Namespace, object.Name)
	}
	return c, nil
}

// checkNode says whether a node that joins has an address that a pod or a service could get.
func (c *clusterConfig) checkNode(ip string) error {
	pods, err := parsePrefixes(c.PodCIDRs)
	if err != nil {
		return err
	}
	services, err := parsePrefixes(c.ServiceCIDRs)
	if err != nil {
		return err
	}
	if err := checkNodeAddress(ip, ranges{"cluster-cidr", pods}, ranges{"service-cluster-ip-range", services}); err != nil {
		return fmt.Errorf("%w, which the server was started with; --node-ip gives another address", err)
	}
	return nil
}

// announcement is what a loop tells machines that join: how the cluster is laid out, for nodes, and where it is and whom to trust, for everybody.
func (s *Server) announcement() (layout, info string, err error) {
	data, err := json.Marshal(clusterConfig{PodCIDRs: s.config.Loops.ClusterCIDRs, ServiceCIDRs: s.config.ServiceCIDRs, Domain: clusterDomain, Network: s.config.Network,
		ClientCA: string(s.certs.Bundle(pki.CA))})
	if err != nil {
		return "", "", err
	}
	config := api.NewConfig()
	config.Clusters[""] = &api.Cluster{Server: "https://" + net.JoinHostPort(s.config.AdvertiseAddress, strconv.Itoa(s.config.Port)), CertificateAuthorityData: s.authorities()}
	kubeconfig, err := clientcmd.Write(*config)
	return string(data), string(kubeconfig), err
}

// authorities are what the API's certificate is verified with, in PEM.
func (s *Server) authorities() []byte {
	if s.ca != nil {
		return s.ca
	}
	return s.certs.Bundle(pki.CA)
}

// showAuthorities answers, before anything else, who asks whom to trust: it is no secret, and machines that join check it against what their token says.
func (s *Server) showAuthorities(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet || r.URL.Path != join.AuthoritiesPath {
			next.ServeHTTP(w, r)
			return
		}
		// Whoever asks is unknown: a body that is announced and not sent must not hold the connection.
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(slowestWrite))
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(slowestWrite))
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(s.authorities())
	})
}

// servingWith is how an agent's kubelet shows its certificate.
func servingWith(id *join.Identity, clients func() *x509.CertPool) func(*tls.Config) *tls.Config {
	return func(base *tls.Config) *tls.Config { return id.Serving(base, clients) }
}

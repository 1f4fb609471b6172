package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"

	"skiff/internal/client"
	"skiff/internal/cluster/join"
	"skiff/internal/cluster/pki"
)

// clusterConfigName is the config map of kube-system in which nodes find how the cluster is laid out.
const (
	clusterConfigName = "skiff-config"
	clusterConfigKey  = "cluster.json"
	clusterInfoName   = "cluster-info"
	clusterInfoKey    = "kubeconfig"
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
	if err := json.Unmarshal([]byte(object.Data[clusterConfigKey]), c); err != nil {
		return nil, fmt.Errorf("the config map %s/%s: %w", object.Namespace, object.Name, err)
	}
	if len(c.PodCIDRs) == 0 || len(c.ServiceCIDRs) == 0 || c.Domain == "" || c.ClientCA == "" {
		return nil, fmt.Errorf("the config map %s/%s does not say all there is to know", object.Namespace, object.Name)
	}
	return c, nil
}

// startAnnouncing writes down, for machines that join, how the cluster is laid out and whom to trust. Nobody waits for it.
func (s *Server) startAnnouncing(ctx context.Context) error {
	c, err := client.ForServer(s.api, client.Identity{Component: "skiff", User: "system:apiserver", Groups: []string{"system:masters"}})
	if err != nil {
		return err
	}
	layout, err := json.Marshal(clusterConfig{PodCIDRs: s.config.Loops.ClusterCIDRs, ServiceCIDRs: s.config.ServiceCIDRs, Domain: clusterDomain, Network: s.config.Network,
		ClientCA: string(s.certs.Bundle(pki.CA))})
	if err != nil {
		return err
	}
	info := api.NewConfig()
	info.Clusters[""] = &api.Cluster{Server: "https://" + net.JoinHostPort(s.config.AdvertiseAddress, strconv.Itoa(s.config.Port)), CertificateAuthorityData: s.authorities()}
	kubeconfig, err := clientcmd.Write(*info)
	if err != nil {
		return err
	}
	s.wg.Go(func() {
		announce(ctx, s, c, metav1.NamespaceSystem, clusterConfigName, clusterConfigKey, string(layout))
		announce(ctx, s, c, metav1.NamespacePublic, clusterInfoName, clusterInfoKey, string(kubeconfig))
	})
	return nil
}

// announce has a config map say something, beside what others write into it.
func announce(ctx context.Context, s *Server, c *client.Client, namespace, name, key, value string) {
	maps := c.Kubernetes().CoreV1().ConfigMaps(namespace)
	for pause := 20 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		object, err := maps.Get(ctx, name, metav1.GetOptions{})
		switch {
		case err == nil && object.Data[key] == value:
			return
		case err == nil:
			object.Data = with(object.Data, key, value)
			_, err = maps.Update(ctx, object, metav1.UpdateOptions{})
		case apierrors.IsNotFound(err):
			_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string]string{key: value}}, metav1.CreateOptions{})
		}
		if err == nil {
			return
		}
		if pause >= time.Second {
			s.config.Log.Warn("machines that join cannot be told of the cluster yet", "configmap", name, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func with(data map[string]string, key, value string) map[string]string {
	out := maps.Clone(data)
	if out == nil {
		out = map[string]string{}
	}
	out[key] = value
	return out
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
		w.Header().Set("Content-Type", "application/x-pem-file")
		_, _ = w.Write(s.authorities())
	})
}

// servingWith is how an agent's kubelet shows its certificate.
func servingWith(id *join.Identity, clients func() *x509.CertPool) func(*tls.Config) *tls.Config {
	return func(base *tls.Config) *tls.Config { return id.Serving(base, clients) }
}

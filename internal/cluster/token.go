package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"skiff/internal/cluster/join"
)

// Tokens are what machines join a cluster with.
type Tokens struct {
	core   corev1client.CoreV1Interface
	bundle []byte
}

// OpenTokens reaches a cluster by its administrator's kubeconfig, or by another one.
func OpenTokens(dataDir, kubeconfig string) (*Tokens, error) {
	if kubeconfig == "" {
		kubeconfig = KubeconfigPath(dataDir)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no cluster with data in %s; tokens are made where the server runs, or anywhere with --kubeconfig", dataDir)
	}
	if err != nil {
		return nil, err
	}
	config.Timeout = 30 * time.Second
	t := &Tokens{}
	if t.core, err = corev1client.NewForConfig(config); err != nil {
		return nil, err
	}
	t.bundle, err = trustedBy(config)
	return t, err
}

func trustedBy(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 {
		return config.CAData, nil
	}
	if config.CAFile == "" {
		return nil, errors.New("the kubeconfig does not say whom to trust, so a token cannot either")
	}
	return os.ReadFile(config.CAFile)
}

// Create makes a token for so many machines, or for any number if uses is 0. server is where machines reach the cluster, as far as it knows.
func (t *Tokens) Create(ctx context.Context, life time.Duration, uses int, description string) (token join.Token, server string, err error) {
	if token, err = join.NewToken(t.bundle); err != nil {
		return token, "", fmt.Errorf("the authority of the cluster: %w", err)
	}
	if err := join.CreateToken(ctx, t.core, token, life, uses, description); err != nil {
		return token, "", err
	}
	info, err := t.core.ConfigMaps(metav1.NamespacePublic).Get(ctx, clusterInfoName, metav1.GetOptions{})
	if err != nil {
		return token, "", nil // it is said by others too
	}
	if config, err := clientcmd.Load([]byte(info.Data[clusterInfoKey])); err == nil {
		for _, cluster := range config.Clusters {
			server = cluster.Server
		}
	}
	return token, server, nil
}

// List returns all tokens.
func (t *Tokens) List(ctx context.Context) ([]join.TokenInfo, error) {
	return join.ListTokens(ctx, t.core)
}

// Delete forgets a token, which is named by its id or given whole.
func (t *Tokens) Delete(ctx context.Context, name string) (id string, err error) {
	return join.DeleteToken(ctx, t.core, name)
}

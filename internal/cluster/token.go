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

// Tokens manages the bootstrap tokens that machines join a cluster with.
type Tokens struct {
	core corev1client.CoreV1Interface
	ca   []byte // the authorities of the API, whose hash is in tokens
}

// OpenTokens connects to a cluster by its administrator's kubeconfig, or by another one.
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
	t.ca, err = readCA(config)
	return t, err
}

// readCA returns the authorities that a client configuration trusts, in PEM.
func readCA(config *rest.Config) ([]byte, error) {
	if len(config.CAData) > 0 {
		return config.CAData, nil
	}
	if config.CAFile == "" {
		return nil, errors.New("the kubeconfig has no certificate-authority, whose hash is part of a token: use one that has")
	}
	return os.ReadFile(config.CAFile)
}

// Create makes a token that uses machines can join with, or any number of them if uses is 0. server is the URL of the API that the cluster publishes; empty if it
// publishes none.
func (t *Tokens) Create(ctx context.Context, life time.Duration, uses int, description string) (token join.Token, server string, err error) {
	if token, err = join.NewToken(t.ca); err != nil {
		return token, "", fmt.Errorf("failed to hash the authority of the cluster: %w", err)
	}
	if err := join.CreateToken(ctx, t.core, token, life, uses, description); err != nil {
		return token, "", err
	}
	info, err := t.core.ConfigMaps(metav1.NamespacePublic).Get(ctx, clusterInfoName, metav1.GetOptions{})
	if err != nil {
		return token, "", nil // the token is valid without it
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

// Delete deletes a token, which is given whole or by its id.
func (t *Tokens) Delete(ctx context.Context, name string) (id string, err error) {
	return join.DeleteToken(ctx, t.core, name)
}

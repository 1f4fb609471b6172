package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"skiff/internal/cluster"
)

// startAgent starts the agent of a node, unless it runs. One that has not joined yet gets a token, for which the API must be ready; it waits
// for that once the server was started.
func (m *machine) startAgent(ctx context.Context, serverStarted <-chan struct{}) (bool, error) {
	if m.runsSkiff() {
		return false, nil
	}
	l, n := m.layout, m.node
	server := "https://" + net.JoinHostPort(l.Nodes[0].Address.String(), strconv.Itoa(l.Port))
	args := append([]string{"agent"}, l.Agent...)
	args = append(args, "--data-dir="+inside, "--node-name="+n.Name, "--node-ip="+n.Address.String(), "--server="+server)
	if !l.joined(n) {
		<-serverStarted
		if err := l.awaitAPI(ctx); err != nil {
			return false, err
		}
		if err := l.writeToken(ctx, n); err != nil {
			return false, fmt.Errorf("failed to create a token for node %s: %w", n.Name, err)
		}
		args = append(args, "--token-file="+filepath.Join(inside, tokenFile))
	}
	return true, m.startSkiff(args, nil)
}

// tokenFile is the file in a node's data directory with the token that it joins with. Other users of this machine cannot read it.
const tokenFile = "join-token"

// tokenLife is the lifetime of a token: a node joins when it starts.
const tokenLife = 10 * time.Minute

// joined reports whether a node has a client certificate.
func (l *Layout) joined(n Node) bool {
	return fileExists(filepath.Join(l.data(n), "pki", "kubelet-client.crt"))
}

func (l *Layout) writeToken(ctx context.Context, n Node) error {
	tokens, err := cluster.OpenTokens(l.dataDir, "")
	if err != nil {
		return err
	}
	token, _, err := tokens.Create(ctx, tokenLife, 1, "for local node "+n.Name)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(l.root(n)) // symbolic links that were made inside the node cannot lead outside
	if err != nil {
		return err
	}
	defer root.Close()
	file := strings.TrimPrefix(filepath.Join(inside, tokenFile), "/")
	if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(token.String() + "\n")
	return errors.Join(err, f.Close())
}

// removeTokens removes the tokens of nodes that have joined.
func (l *Layout) removeTokens(nodes ...Node) (failed error) {
	for _, n := range nodes {
		if err := os.Remove(filepath.Join(l.data(n), tokenFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			failed = errors.Join(failed, err)
		}
	}
	return failed
}

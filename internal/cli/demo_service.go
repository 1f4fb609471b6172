package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"skiff/internal/client"
	"skiff/internal/cluster"
	"skiff/internal/journey"
)

// askAtNodes gets the page at the Service's node port of each node, from this machine.
func (d *demo) askAtNodes(ctx context.Context) error {
	c, err := client.ForKubeconfig(cluster.KubeconfigPath(d.config.DataDir), "demo")
	if err != nil {
		return err
	}
	service, err := c.Kubernetes().CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "nginx", metav1.GetOptions{})
	if err != nil {
		return err
	}
	nodes, err := c.Kubernetes().CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	fmt.Fprintln(d.out)
	for i := range nodes.Items {
		node := &nodes.Items[i]
		began := time.Now()
		address := fmt.Sprintf("%s:%d", internalIP(node), service.Spec.Ports[0].NodePort)
		title, err := firstAnswer(ctx, address)
		if err != nil {
			return fmt.Errorf("%s: %w", node.Name, err)
		}
		fmt.Fprintf(d.out, "the Service at %s of %s answers: %s\n", address, node.Name, title)
		if i == 0 {
			c.Record(service, journey.Answer, began, time.Now(), nil, journey.Attribute{Key: "from", Value: address})
		}
	}
	return nil
}

// firstAnswer gets the page, and tries again until it succeeds: nodes observe a Service a moment after its creation.
func firstAnswer(ctx context.Context, address string) (title string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if title, err = pageTitle(ctx, http.DefaultClient, address); err == nil {
			return title, nil
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(err, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func internalIP(node *corev1.Node) string {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return a.Address
		}
	}
	return ""
}

// visit gets the page by the Service's name, from a pod on the last node.
func (d *demo) visit(ctx context.Context) error {
	args := []string{"run", "visitor", "--image=busybox", "--restart=Never", "--rm", "-i", "--quiet"}
	if d.nodes > 1 {
		args = append(args, fmt.Sprintf(`--overrides={"spec":{"nodeName":"%s-%d"}}`, d.config.Name, d.nodes))
	}
	return d.kubectl(append(args, "--", "sh", "-c", "wget -qO- http://nginx | grep title")...)(ctx)
}

package identity_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNode: with a node's certificate one may write the node's own objects, and read what its pods use.
func TestNode(t *testing.T) {
	t.Parallel()
	dir := startCluster(t, nil)
	config := configOf(t, dir, "admin")
	admin := clientOf(t, config)
	nodeConfig := withCertificate(t, config, clusterCA(t, dir, "ca").certify("system:node:one", time.Hour, "system:nodes"))
	node := component{user: "system:node:one", groups: []string{"system:nodes"},
		mayDo: []string{"GET /api/v1/nodes/one", "GET /api/v1/services", "GET /api/v1/pods?fieldSelector=spec.nodeName%3Done",
			"POST /apis/authentication.k8s.io/v1/tokenreviews"},
		mayNot: []string{"GET /api/v1/secrets", "GET /api/v1/namespaces/default/secrets/other", "GET /api/v1/configmaps", "DELETE /api/v1/nodes/two",
			"POST /api/v1/namespaces/default/services", "GET /apis/coordination.k8s.io/v1/namespaces/default/leases"}}
	node.check(t, nodeConfig)
	ctx, own := t.Context(), clientOf(t, nodeConfig)
	object := func(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	if _, err := own.CoreV1().Nodes().Create(ctx, object("one"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := own.CoreV1().Nodes().Create(ctx, object("two"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("made another node: %v", err)
	}
	for _, name := range []string{"used", "other"} {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"key": "value"}}
		if _, err := admin.CoreV1().Secrets("default").Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	defaultAccount(t, admin, "default")
	pod := newPod("user")
	pod.Spec.NodeName = "one"
	pod.Spec.Volumes = []corev1.Volume{{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "used"}}}}
	if _, err := admin.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the node may read its pod's secret", func() error {
		_, err := own.CoreV1().Secrets("default").Get(ctx, "used", metav1.GetOptions{})
		return err
	})
	if _, err := own.CoreV1().Secrets("default").Get(ctx, "other", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the node read another secret: %v", err)
	}
	if err := admin.CoreV1().Pods("default").Delete(ctx, "user", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		t.Fatal(err)
	}
	wait(t, "the node may no longer read it", func() error {
		if _, err := own.CoreV1().Secrets("default").Get(ctx, "used", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got it: %w", err)
		}
		return nil
	})
}

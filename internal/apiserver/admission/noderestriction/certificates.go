package noderestriction

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/apiserver/admission"
)

// admitSigningRequest lets a node request kubelet certificates only in its own name. The signer checks everything else about them.
func admitSigningRequest(node string, a *admission.Attributes) error {
	if a.Operation != admission.Create {
		return nil
	}
	csr, ok := a.Object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return unexpected(a, a.Object)
	}
	if csr.Spec.SignerName != certificatesv1.KubeletServingSignerName && csr.Spec.SignerName != certificatesv1.KubeAPIServerClientKubeletSignerName {
		return nil
	}
	name, err := commonName(csr.Spec.Request)
	if err != nil {
		return a.Forbidden(fmt.Errorf("unable to parse csr: %w", err))
	}
	if name != nodePrefix+node {
		return a.Forbidden(fmt.Errorf("can only create a node CSR with CN=%s%s", nodePrefix, node))
	}
	return nil
}

func commonName(request []byte) (string, error) {
	block, _ := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" {
		return "", errors.New("PEM block type must be CERTIFICATE REQUEST")
	}
	parsed, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return "", err
	}
	return parsed.Subject.CommonName, nil
}

// admitPodCertificate lets a node request a certificate for a pod it runs, from a signer that the pod names. A mismatch of UIDs may be due to
// an outdated cache: then the answer is an error other than Forbidden, and the kubelet retries.
func (p *plugin) admitPodCertificate(ctx context.Context, node string, a *admission.Attributes) error {
	if a.Operation != admission.Create {
		return a.Forbidden(fmt.Errorf("unexpected operation %v", a.Operation))
	}
	if a.Subresource != "" {
		return a.Forbidden(fmt.Errorf("unexpected subresource %v", a.Subresource))
	}
	request, ok := a.Object.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return unexpected(a, a.Object)
	}
	spec, podName := &request.Spec, a.Namespace+"/"+request.Spec.PodName
	if string(spec.NodeName) != node {
		return a.Forbidden(fmt.Errorf("PodCertificateRequest.Spec.NodeName=%q, which is not the requesting node %q", spec.NodeName, node))
	}
	err := checkStored(ctx, p.objects, nodes, "", node, func(n *corev1.Node) error {
		if n.UID != spec.NodeUID {
			return fmt.Errorf("PodCertificateRequest for pod %q names node UID %q, inconsistent with the running node (%q)", podName, spec.NodeUID, n.UID)
		}
		return nil
	})
	if err != nil {
		return notFoundWhile(err, "node", string(spec.NodeName))
	}
	var pod *corev1.Pod
	err = checkStored(ctx, p.objects, pods, a.Namespace, spec.PodName, func(found *corev1.Pod) error {
		pod = found
		return checkCertifiedPod(a, spec, found)
	})
	if err != nil {
		return notFoundWhile(err, "pod", podName)
	}
	err = checkStored(ctx, p.objects, accounts, a.Namespace, spec.ServiceAccountName, func(account *corev1.ServiceAccount) error {
		if spec.ServiceAccountUID != account.UID {
			return fmt.Errorf("PodCertificateRequest for pod %q names service account UID %q, which differs from the running service account (%q)",
				podName, spec.ServiceAccountUID, account.UID)
		}
		return nil
	})
	if err != nil {
		return notFoundWhile(err, "service account", a.Namespace+"/"+spec.ServiceAccountName)
	}
	if err := p.checkSigner(ctx, a, spec, pod); err != nil {
		return a.Forbidden(err)
	}
	return nil
}

// notFoundWhile adds to a NotFound error which object of the request it is about.
func notFoundWhile(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("while retrieving %s %q named in the PodCertificateRequest: %v", kind, name, err)
	}
	return err
}

func checkCertifiedPod(a *admission.Attributes, spec *certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	name := a.Namespace + "/" + spec.PodName
	if spec.PodUID != pod.UID {
		return fmt.Errorf("PodCertificateRequest for pod %q contains pod UID (%q) which differs from running pod %q", name, spec.PodUID, pod.UID)
	}
	if pod.Spec.NodeName != string(spec.NodeName) {
		return a.Forbidden(fmt.Errorf("pod %q is not running on node %q named in the PodCertificateRequest", name, spec.NodeName))
	}
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return a.Forbidden(fmt.Errorf("pod %q is a mirror pod", name))
	}
	if spec.ServiceAccountName != pod.Spec.ServiceAccountName {
		return a.Forbidden(fmt.Errorf("PodCertificateRequest for pod %q contains serviceAccountName (%q) that differs from running pod (%q)",
			name, spec.ServiceAccountName, pod.Spec.ServiceAccountName))
	}
	return nil
}

// checkSigner requires that the pod mounts a certificate of the signer, or that the authorizer allows the node to request one anyway.
func (p *plugin) checkSigner(ctx context.Context, a *admission.Attributes, spec *certificatesv1.PodCertificateRequestSpec, pod *corev1.Pod) error {
	signer := spec.SignerName
	for i := range pod.Spec.Volumes {
		projected := pod.Spec.Volumes[i].Projected
		for j := 0; projected != nil && j < len(projected.Sources); j++ {
			if c := projected.Sources[j].PodCertificate; c != nil && c.SignerName == signer {
				return nil
			}
		}
	}
	// RBAC resources cannot contain slashes.
	resource := strings.ReplaceAll(signer, "/", ":")
	allowed, err := p.allowed(ctx, a, "request-serviceaccounts-podcertificate-signer", resource, spec.ServiceAccountName)
	switch {
	case allowed:
		return nil
	case err != nil:
		return fmt.Errorf("error authorizing %s to request podcertificaterequests for signer %q: %w", a.User.Username, signer, err)
	default:
		return fmt.Errorf("pod %q does not mount a podCertificate projected volume for signer %q", a.Namespace+"/"+spec.PodName, signer)
	}
}

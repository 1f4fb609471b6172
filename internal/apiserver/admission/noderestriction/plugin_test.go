package noderestriction_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/noderestriction"
	"skiff/internal/apiserver/authn"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog"
)

// allows is an authorizer that allows the listed permissions, written "verb resource name".
type allows map[string]bool

func (a allows) Authorize(_ context.Context, q *authz.Attributes) (authz.Decision, string, error) {
	switch permission := q.Verb + " " + q.Plural + " " + q.Name; {
	case a[permission]:
		return authz.Allow, "", errors.New("a role is missing")
	case q.Plural == "broken":
		return authz.NoOpinion, "", errors.New("no roles")
	default:
		return authz.NoOpinion, "", nil
	}
}

func parse[O any](t testing.TB, obj O, text string) O {
	t.Helper()
	return admissiontest.Parse(t, obj, text)
}

func asNode(a *admission.Attributes) *admission.Attributes {
	a.User = &authn.User{Username: "system:node:node1", Groups: []string{"system:nodes", "system:authenticated"}}
	return a
}

func sub(a *admission.Attributes, of catalog.Object, name string) *admission.Attributes {
	return asNode(admissiontest.Subresource(a, of, name))
}

// expect runs a node's write through the plugin. want is the refusal without its beginning, "X is forbidden: ".
func expect(t *testing.T, name string, s *objectstest.Store, a *admission.Attributes, want string) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Helper()
		got := ""
		plugin := noderestriction.New(s, allows{"request-serviceaccounts-token-audience granted sa": true, "request-serviceaccounts-podcertificate-signer example.com:granted sa": true})
		if err := admissiontest.Through(t, plugin, a); err != nil {
			got = err.Error()
			if _, reason, ok := strings.Cut(got, " is forbidden: "); ok {
				got = reason
			}
		}
		if got != want {
			t.Errorf("refused with %q\nwant         %q", got, want)
		}
	})
}

func store(t testing.TB) *objectstest.Store {
	s := objectstest.New()
	for _, node := range []string{`{metadata: {name: node1, uid: n1}}`, `{metadata: {name: other, uid: n2}}`} {
		s.Put(corev1.Resource("nodes"), parse(t, &corev1.Node{}, node))
	}
	for _, pod := range []string{
		`{metadata: {namespace: ns, name: here, uid: p1}, spec: {nodeName: node1, serviceAccountName: sa, volumes: [
			{name: a, projected: {sources: [{serviceAccountToken: {audience: vault, path: p}}, {podCertificate: {signerName: example.com/mounted, keyType: RSA3072, credentialBundlePath: p}}]}},
			{name: b, csi: {driver: inline}}, {name: c, persistentVolumeClaim: {claimName: claim}}]}}`,
		`{metadata: {namespace: ns, name: there, uid: p2}, spec: {nodeName: other, serviceAccountName: sa}}`,
		`{metadata: {namespace: ns, name: mirror, uid: p3, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: node1, serviceAccountName: sa}}`,
		`{metadata: {namespace: ns, name: lost, uid: p4}, spec: {nodeName: node1, volumes: [{name: e, ephemeral: {volumeClaimTemplate: {spec: {}}}}]}}`,
	} {
		s.Put(corev1.Resource("pods"), parse(t, &corev1.Pod{}, pod))
	}
	s.Put(corev1.Resource("serviceaccounts"), parse(t, &corev1.ServiceAccount{}, `{metadata: {namespace: ns, name: sa, uid: s1}}`))
	s.Put(corev1.Resource("persistentvolumeclaims"), parse(t, &corev1.PersistentVolumeClaim{}, `{metadata: {namespace: ns, name: claim}, spec: {volumeName: disk}}`))
	s.Put(corev1.Resource("persistentvolumes"), parse(t, &corev1.PersistentVolume{}, `{metadata: {name: disk}, spec: {awsElasticBlockStore: {volumeID: x}}}`))
	for _, driver := range []string{`{metadata: {name: inline}, spec: {tokenRequests: [{audience: from-inline}]}}`, `{metadata: {name: ebs.csi.aws.com}, spec: {tokenRequests: [{audience: from-disk}]}}`} {
		s.Put(storagev1.Resource("csidrivers"), parse(t, &storagev1.CSIDriver{}, driver))
	}
	return s
}

func TestNodeUsers(t *testing.T) {
	pod := func() *admission.Attributes {
		return admissiontest.Create(parse(t, &corev1.Pod{}, `{metadata: {namespace: ns, name: p}}`))
	}
	as := func(name string, groups ...string) *admission.Attributes {
		a := pod()
		a.User = &authn.User{Username: name, Groups: groups}
		return a
	}
	expect(t, "anybody else", store(t), pod(), "")
	expect(t, "no user", store(t), &admission.Attributes{Info: pod().Info, Operation: admission.Create}, "")
	expect(t, "a node without the group", store(t), as("system:node:node1", "system:authenticated"), "")
	expect(t, "the group without a node", store(t), as("alice", "system:nodes"), "")
	expect(t, "a node without a name", store(t), as("system:node:", "system:nodes"), `could not determine node from user "system:node:"`)
	expect(t, "a node", store(t), as("system:node:node1", "system:nodes"),
		`pod does not have "kubernetes.io/config.mirror" annotation, node "node1" can only create mirror pods`)
}

func TestMirrorPods(t *testing.T) {
	const owner = `{apiVersion: v1, kind: Node, name: node1, uid: n1, controller: true}`
	create := func(nodeName, owners, spec string) *admission.Attributes {
		p := &corev1.Pod{Spec: *parse(t, &corev1.PodSpec{}, spec)}
		p.OwnerReferences = parse(t, &corev1.Pod{}, `{metadata: {ownerReferences: [`+owners+`]}}`).OwnerReferences
		p.Namespace, p.Name, p.Spec.NodeName, p.Annotations = "ns", "p", nodeName, map[string]string{corev1.MirrorPodAnnotationKey: "x"}
		return asNode(admissiontest.Create(p))
	}
	for _, c := range []struct{ name, node, owners, spec, want string }{
		{"good", "node1", owner, `{volumes: [{name: v, hostPath: {path: /}}, {name: d, projected: {sources: [{downwardAPI: {}}]}}]}`, ""},
		{"another node's", "other", owner, `{}`, `node "node1" can only create pods with spec.nodeName set to itself`},
		{"no owner", "node1", ``, `{}`, `node "node1" can only create pods with an owner reference set to itself`},
		{"two owners", "node1", owner + "," + owner, `{}`, `node "node1" can only create pods with a single owner reference set to itself`},
		{"another owner", "node1", `{apiVersion: v1, kind: Node, name: other, uid: n1, controller: true}`, `{}`, `node "node1" can only create pods with an owner reference set to itself`},
		{"no controller", "node1", `{apiVersion: v1, kind: Node, name: node1, uid: n1}`, `{}`, `node "node1" can only create pods with a controller owner reference set to itself`},
		{"blocking", "node1", `{apiVersion: v1, kind: Node, name: node1, uid: n1, controller: true, blockOwnerDeletion: true}`, `{}`, `node "node1" must not set blockOwnerDeletion on an owner reference`},
		{"an earlier node", "node1", `{apiVersion: v1, kind: Node, name: node1, uid: n0, controller: true}`, `{}`, `node node1 UID mismatch: expected n0 got n1`},
		{"service account", "node1", owner, `{serviceAccountName: default}`, `node "node1" can not create pods that reference serviceaccounts`},
		{"secret", "node1", owner, `{imagePullSecrets: [{name: s}]}`, `node "node1" can not create pods that reference secrets`},
		{"config map", "node1", owner, `{containers: [{name: c, envFrom: [{configMapRef: {name: s}}]}]}`, `node "node1" can not create pods that reference configmaps`},
		{"resource claim", "node1", owner, `{resourceClaims: [{name: r}]}`, `node "node1" can not create pods that reference resourceclaims`},
		{"claim", "node1", owner, `{volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]}`, `node "node1" can not create pods that reference persistentvolumeclaims`},
		{"ephemeral claim", "node1", owner, `{volumes: [{name: v, ephemeral: {}}]}`, `node "node1" can not create pods that reference persistentvolumeclaims (via ephemeral volumes)`},
		{"CSI", "node1", owner, `{volumes: [{name: v, csi: {driver: d}}]}`, `node "node1" can not create pods that reference csidrivers (via CSI volumes)`},
		{"endpoints", "node1", owner, `{volumes: [{name: v, glusterfs: {endpoints: e, path: p}}]}`, `node "node1" can not create pods that reference endpoints (via glusterFS volumes)`},
		{"token", "node1", owner, `{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: p}}]}}]}`, `node "node1" can not create pods that reference serviceaccounts (via projected volumes)`},
		{"trust bundle", "node1", owner, `{volumes: [{name: v, projected: {sources: [{clusterTrustBundle: {name: b, path: p}}]}}]}`, `node "node1" can not create pods that reference clustertrustbundles`},
		{"something new", "node1", owner, `{volumes: [{name: v}]}`, `error checking mirror pod for API references: unknown volume type for volume  "v"`},
	} {
		expect(t, c.name, store(t), create(c.node, c.owners, c.spec), c.want)
	}
	s := store(t)
	s.Remove(corev1.Resource("nodes"), "", "node1")
	expect(t, "no node", s, create("node1", owner, `{}`), `node "node1" not found`)
}

func TestPods(t *testing.T) {
	s := store(t)
	here, there := s.Get(corev1.Resource("pods"), "ns", "here").(*corev1.Pod), s.Get(corev1.Resource("pods"), "ns", "there").(*corev1.Pod)
	expect(t, "delete", s, asNode(admissiontest.Delete(here)), "")
	expect(t, "delete elsewhere", s, asNode(admissiontest.Delete(there)), `node "node1" can only delete pods with spec.nodeName set to itself`)
	expect(t, "update", s, asNode(admissiontest.Update(here, here)), `unexpected operation "UPDATE", node "node1" can only create and delete mirror pods`)
	expect(t, "other subresources", s, sub(admissiontest.Update(here, here), here, "resize"), `unexpected pod subresource "resize", only 'status' and 'eviction' are allowed`)

	status := func(change func(*corev1.Pod)) *admission.Attributes {
		pod := here.DeepCopy()
		change(pod)
		return sub(admissiontest.Update(pod, here), here, "status")
	}
	name := "claim"
	expect(t, "status", s, status(func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning }), "")
	expect(t, "status elsewhere", s, sub(admissiontest.Update(there, there), there, "status"), `node "node1" can only update pod status for pods with spec.nodeName set to itself`)
	expect(t, "status of nothing", s, sub(admissiontest.Create(here), here, "status"), `unexpected operation "CREATE"`)
	expect(t, "labels", s, status(func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }), `node "node1" cannot update labels through pod status`)
	expect(t, "claims", s, status(func(p *corev1.Pod) {
		p.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: &name}}
	}), `node "node1" cannot update resource claim statues`)
	expect(t, "extended claims", s, status(func(p *corev1.Pod) { p.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{} }),
		`node "node1" cannot update extended resource claim status`)
	expect(t, "allocations", s, status(func(p *corev1.Pod) {
		p.Status.NodeAllocatableResourceClaimStatuses = []corev1.NodeAllocatableResourceClaimStatus{{ResourceClaimName: "c"}}
	}), `node "node1" cannot update node allocatable resource claim statuses`)
	same := here.DeepCopy()
	same.Status.ResourceClaimStatuses = []corev1.PodResourceClaimStatus{{Name: "r", ResourceClaimName: &name}, {Name: "s"}}
	expect(t, "claims as they were", s, sub(admissiontest.Update(same.DeepCopy(), same), here, "status"), "")

	evict := func(pod, in string) *admission.Attributes {
		a := &admission.Attributes{Operation: admission.Create, Namespace: "ns", Name: pod, Object: parse(t, &policyv1.Eviction{}, `{metadata: {name: "`+in+`"}}`)}
		return sub(a, here, "eviction")
	}
	expect(t, "evict", s, evict("here", "here"), "")
	expect(t, "evict elsewhere", s, evict("there", "here"), `node node1 can only evict pods with spec.nodeName set to itself`)
	expect(t, "evict by the eviction's name", s, evict("", "there"), `node node1 can only evict pods with spec.nodeName set to itself`)
	expect(t, "evict nothing", s, evict("", ""), `could not determine pod from request data`)
	expect(t, "evict a pod that does not exist", s, evict("gone", "gone"), `pod "gone" not found`)
}

func TestNodes(t *testing.T) {
	node := func(text string) *corev1.Node { return parse(t, &corev1.Node{}, text) }
	create := func(text string) *admission.Attributes { return asNode(admissiontest.Create(node(text))) }
	update := func(text, old string) *admission.Attributes {
		return asNode(admissiontest.Update(node(text), node(old)))
	}
	s := store(t)
	expect(t, "itself", s, create(`{metadata: {name: node1, labels: {a: b, kubernetes.io/hostname: h, beta.kubernetes.io/os: linux, x.node.kubernetes.io/y: z, kubelet.kubernetes.io/a: b, topology.kubernetes.io/zone: z}}}`), "")
	expect(t, "another", s, create(`{metadata: {name: other}}`), `node "node1" is not allowed to modify node "other"`)
	expect(t, "delete another", s, asNode(admissiontest.Delete(node(`{metadata: {name: other}}`))), `node "node1" is not allowed to modify node "other"`)
	expect(t, "delete itself", s, asNode(admissiontest.Delete(node(`{metadata: {name: node1}}`))), "")
	expect(t, "another's status", s, sub(admissiontest.Update(node(`{metadata: {name: other}}`), node(`{metadata: {name: other}}`)), &corev1.Node{}, "status"), `node "node1" is not allowed to modify node "other"`)
	expect(t, "labels that are not for nodes", s, create(`{metadata: {name: node1, labels: {node-restriction.kubernetes.io/a: b, x.k8s.io/c: d, node-role.kubernetes.io/control-plane: "", kubernetes.io: ok}}}`),
		`node "node1" is not allowed to set the following labels: node-restriction.kubernetes.io/a, node-role.kubernetes.io/control-plane, x.k8s.io/c`)
	expect(t, "config source", s, create(`{metadata: {name: node1}, spec: {configSource: {}}}`), `node "node1" is not allowed to create pods with a non-nil configSource`)
	expect(t, "a custom label", s, update(`{metadata: {name: node1, labels: {example.com/a: "2"}}}`, `{metadata: {name: node1, labels: {example.com/a: "1"}}}`), "")
	expect(t, "a removed label", s, update(`{metadata: {name: node1}}`, `{metadata: {name: node1, labels: {x.kubernetes.io/a: "1"}}}`), `is not allowed to modify labels: x.kubernetes.io/a`)
	expect(t, "an unchanged label", s, update(`{metadata: {name: node1, labels: {x.kubernetes.io/a: "1"}}}`, `{metadata: {name: node1, labels: {x.kubernetes.io/a: "1"}}}`), "")
	expect(t, "taints", s, update(`{metadata: {name: node1}}`, `{metadata: {name: node1}, spec: {taints: [{key: k, effect: NoSchedule}]}}`), `node "node1" is not allowed to modify taints`)
	expect(t, "owners", s, update(`{metadata: {name: node1, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: u}]}}`, `{metadata: {name: node1}}`), `node "node1" is not allowed to modify ownerReferences`)
	expect(t, "podCIDRs changed", s, update(`{metadata: {name: node1}, spec: {podCIDR: 10.42.3.0/24, podCIDRs: [10.42.3.0/24]}}`, `{metadata: {name: node1}}`), `node "node1" is not allowed to modify its podCIDRs`)
	expect(t, "podCIDRs extended", s, update(`{metadata: {name: node1}, spec: {podCIDRs: [10.42.3.0/24, "fd42::/64"]}}`, `{metadata: {name: node1}, spec: {podCIDRs: [10.42.3.0/24]}}`), `node "node1" is not allowed to modify its podCIDRs`)
	expect(t, "a new config source", s, update(`{metadata: {name: node1}, spec: {configSource: {}}}`, `{metadata: {name: node1}}`), `node "node1" is not allowed to update configSource to a new non-nil configSource`)
	expect(t, "a config source left out", s, update(`{metadata: {name: node1}}`, `{metadata: {name: node1}, spec: {configSource: {}}}`), "")
}

func TestOtherResourcesOfNodes(t *testing.T) {
	s := store(t)
	lease := func(namespace, name string) *coordinationv1.Lease {
		return parse(t, &coordinationv1.Lease{}, `{metadata: {namespace: `+namespace+`, name: `+name+`}}`)
	}
	expect(t, "its lease", s, asNode(admissiontest.Create(lease("kube-node-lease", "node1"))), "")
	expect(t, "another lease", s, asNode(admissiontest.Create(lease("kube-node-lease", "other"))), `can only access node lease with the same name as the requesting node`)
	expect(t, "an update of another lease", s, asNode(admissiontest.Update(lease("kube-node-lease", "other"), lease("kube-node-lease", "other"))), `can only access node lease with the same name as the requesting node`)
	expect(t, "a lease elsewhere", s, asNode(admissiontest.Create(lease("ns", "node1"))), `can only access leases in the "kube-node-lease" system namespace`)

	csi := func(name string) *storagev1.CSINode {
		return parse(t, &storagev1.CSINode{}, `{metadata: {name: `+name+`}}`)
	}
	expect(t, "its CSI node", s, asNode(admissiontest.Create(csi("node1"))), "")
	expect(t, "another CSI node", s, asNode(admissiontest.Delete(csi("other"))), `can only access CSINode with the same name as the requesting node`)

	slice := func(node string) *resourcev1.ResourceSlice {
		return parse(t, &resourcev1.ResourceSlice{}, `{metadata: {name: x}, spec: {driver: d, nodeName: `+node+`, pool: {name: p, generation: 1, resourceSliceCount: 1}}}`)
	}
	expect(t, "its slice", s, asNode(admissiontest.Create(slice("node1"))), "")
	expect(t, "another slice", s, asNode(admissiontest.Create(slice("other"))), `can only create ResourceSlice with the same NodeName as the requesting node`)
	expect(t, "delete another slice", s, asNode(admissiontest.Delete(slice("other"))), `can only delete ResourceSlice with the same NodeName as the requesting node`)
	expect(t, "update of a slice", s, asNode(admissiontest.Update(slice("other"), slice("other"))), "")

	claim := func(text string) *corev1.PersistentVolumeClaim {
		return parse(t, &corev1.PersistentVolumeClaim{}, text)
	}
	const old = `{metadata: {namespace: ns, name: c, resourceVersion: "5"}, status: {phase: Bound, capacity: {storage: 1Gi}}}`
	expect(t, "the size of a volume", s, sub(admissiontest.Update(claim(`{metadata: {namespace: ns, name: c}, status: {phase: Bound, capacity: {storage: 2Gi}, allocatedResources: {storage: 2Gi},
		conditions: [{type: Resizing, status: "True"}]}}`), claim(old)), &corev1.PersistentVolumeClaim{}, "status"), "")
	expect(t, "a claim itself", s, asNode(admissiontest.Update(claim(old), claim(old))), `may only update PVC status`)
	a := sub(admissiontest.Update(claim(`{metadata: {namespace: ns, name: c}, status: {phase: Lost}}`), claim(old)), &corev1.PersistentVolumeClaim{}, "status")
	err := admissiontest.Through(t, noderestriction.New(s, allows{}), a)
	if err == nil || !strings.Contains(err.Error(), `node "node1" is not allowed to update fields other than status.quantity and status.conditions: `) || !strings.Contains(err.Error(), `"phase": "Lost"`) {
		t.Errorf("the phase of a claim: %v", err)
	}
	expect(t, "anything else", s, asNode(admissiontest.Create(parse(t, &corev1.Event{}, `{metadata: {namespace: ns, name: e}}`))), "")
}

func TestTokens(t *testing.T) {
	request := func(name, subresource, spec string) *admission.Attributes {
		a := &admission.Attributes{Operation: admission.Create, Namespace: "ns", Name: name, Object: parse(t, &authenticationv1.TokenRequest{}, `{spec: `+spec+`}`)}
		return sub(a, &corev1.ServiceAccount{}, subresource)
	}
	bound := func(pod, uid, audiences string) *admission.Attributes {
		return request("sa", "token", `{audiences: [`+audiences+`], boundObjectRef: {apiVersion: v1, kind: Pod, name: `+pod+`, uid: "`+uid+`"}}`)
	}
	s := store(t)
	for _, c := range []struct {
		name  string
		write *admission.Attributes
		want  string
	}{
		{"for a pod and its audience", bound("here", "p1", "vault"), ""},
		{"not bound", request("sa", "token", `{audiences: [vault]}`), `node requested token not bound to a pod`},
		{"bound to something else", request("sa", "token", `{audiences: [], boundObjectRef: {apiVersion: v1, kind: Secret, name: here, uid: p1}}`), `node requested token not bound to a pod`},
		{"without a uid", bound("here", "", "vault"), `node requested token with a pod binding without a uid`},
		{"an earlier pod", bound("here", "p0", "vault"), `the UID in the bound object reference (p0) does not match the UID in record. The object might have been deleted and then recreated`},
		{"a pod elsewhere", bound("there", "p2", "vault"), `node requested token bound to a pod scheduled on a different node`},
		{"no pod", bound("gone", "p9", "vault"), `pod "gone" not found`},
		{"two audiences", bound("here", "p1", "vault, other"), `node may only request 0 or 1 audiences`},
		{"an audience of an inline driver", bound("here", "p1", "from-inline"), ""},
		{"an audience of a claim's driver", bound("here", "p1", "from-disk"), ""},
		{"an audience that no volume needs", bound("here", "p1", "other"), `system:node:node1 is not authorized to request tokens for audience "other"`},
		{"an audience that was granted", bound("here", "p1", "granted"), ""},
		{"an authorizer that fails", bound("here", "p1", "broken"), `error authorizing system:node:node1 to request tokens for audience "broken": no roles`},
		{"a claim that is lost", bound("lost", "p4", "vault"), `error validating audience "vault": persistentvolumeclaim "lost-e" not found`},
		{"the account itself", request("sa", "", `{audiences: []}`), ""},
	} {
		expect(t, c.name, s, c.write, c.want)
	}
}

func TestSigningRequests(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(signer, name string) *admission.Attributes {
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}, key)
		if err != nil {
			t.Fatal(err)
		}
		csr := &certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: signer,
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})}}
		return asNode(admissiontest.Create(csr))
	}
	s := store(t)
	expect(t, "its own", s, request(certificatesv1.KubeletServingSignerName, "system:node:node1"), "")
	expect(t, "another's", s, request(certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:other"), `can only create a node CSR with CN=system:node:node1`)
	expect(t, "another signer", s, request("example.com/signer", "whoever"), "")
	bad := request(certificatesv1.KubeletServingSignerName, "system:node:node1")
	bad.Object.(*certificatesv1.CertificateSigningRequest).Spec.Request = []byte("no PEM")
	expect(t, "no request", s, bad, `unable to parse csr: PEM block type must be CERTIFICATE REQUEST`)
}

func TestPodCertificates(t *testing.T) {
	const good = `{signerName: example.com/mounted, podName: here, podUID: p1, serviceAccountName: sa, serviceAccountUID: s1, nodeName: node1, nodeUID: n1}`
	s := store(t)
	for _, c := range []struct{ name, spec, want string }{
		{"for a pod that mounts it", good, ""},
		{"another node", strings.Replace(good, "nodeName: node1", "nodeName: other", 1), `PodCertificateRequest.Spec.NodeName="other", which is not the requesting node "node1"`},
		{"an earlier node", strings.Replace(good, "n1", "n0", 1), `PodCertificateRequest for pod "ns/here" names node UID "n0", inconsistent with the running node ("n1")`},
		{"no pod", strings.Replace(good, "podName: here", "podName: gone", 1), `while retrieving pod "ns/gone" named in the PodCertificateRequest: pod "gone" not found`},
		{"an earlier pod", strings.Replace(good, "p1", "p0", 1), `PodCertificateRequest for pod "ns/here" contains pod UID ("p0") which differs from running pod "p1"`},
		{"a pod elsewhere", strings.Replace(strings.Replace(good, "podName: here", "podName: there", 1), "p1", "p2", 1), `pod "ns/there" is not running on node "node1" named in the PodCertificateRequest`},
		{"a mirror pod", strings.Replace(strings.Replace(good, "podName: here", "podName: mirror", 1), "p1", "p3", 1), `pod "ns/mirror" is a mirror pod`},
		{"another account", strings.Replace(good, "serviceAccountName: sa", "serviceAccountName: x", 1), `PodCertificateRequest for pod "ns/here" contains serviceAccountName ("x") that differs from running pod ("sa")`},
		{"an earlier account", strings.Replace(good, "s1", "s0", 1), `PodCertificateRequest for pod "ns/here" names service account UID "s0", which differs from the running service account ("s1")`},
		{"a signer the pod does not want", strings.Replace(good, "mounted", "other", 1), `pod "ns/here" does not mount a podCertificate projected volume for signer "example.com/other"`},
		{"a signer that was granted", strings.Replace(good, "mounted", "granted", 1), ""},
	} {
		request := &certificatesv1.PodCertificateRequest{Spec: *parse(t, &certificatesv1.PodCertificateRequestSpec{}, c.spec)}
		request.Namespace, request.Name = "ns", "r"
		expect(t, c.name, s, asNode(admissiontest.Create(request)), c.want)
	}
	request := &certificatesv1.PodCertificateRequest{Spec: *parse(t, &certificatesv1.PodCertificateRequestSpec{}, good)}
	request.Namespace = "ns"
	expect(t, "an update", s, asNode(admissiontest.Update(request, request)), `unexpected operation UPDATE`)
}

// lagging is a store whose cache has not observed any binding yet.
type lagging struct{ *objectstest.Store }

func (l lagging) Get(r schema.GroupResource, namespace, name string) catalog.Object {
	obj := l.Store.Get(r, namespace, name)
	if pod, ok := obj.(*corev1.Pod); ok {
		unbound := pod.DeepCopy()
		unbound.Spec.NodeName = ""
		return unbound
	}
	return obj
}

func TestOutdatedCacheRefusesNothing(t *testing.T) {
	a := &admission.Attributes{Operation: admission.Create, Namespace: "ns", Name: "here", Object: &policyv1.Eviction{}}
	admissiontest.Expect(t, admissiontest.Through(t, noderestriction.New(lagging{store(t)}, allows{}), sub(a, &corev1.Pod{}, "eviction")), "")
}

package all

import (
	"fmt"
	"slices"
	"strings"

	"skiff/internal/controller"
	"skiff/internal/controller/bootstrap"
	"skiff/internal/controller/certificates"
	"skiff/internal/controller/clusterdns"
	"skiff/internal/controller/cronjob"
	"skiff/internal/controller/daemonset"
	"skiff/internal/controller/deployment"
	"skiff/internal/controller/devicetainteviction"
	"skiff/internal/controller/disruption"
	"skiff/internal/controller/endpoints"
	"skiff/internal/controller/endpointslice"
	"skiff/internal/controller/endpointslicemirroring"
	"skiff/internal/controller/garbagecollector"
	"skiff/internal/controller/job"
	"skiff/internal/controller/loadbalancer"
	"skiff/internal/controller/localvolume"
	"skiff/internal/controller/namespace"
	"skiff/internal/controller/node/nodeipam"
	"skiff/internal/controller/node/nodelifecycle"
	"skiff/internal/controller/node/tainteviction"
	"skiff/internal/controller/node/ttl"
	"skiff/internal/controller/podautoscaler"
	"skiff/internal/controller/podgc"
	"skiff/internal/controller/protection"
	"skiff/internal/controller/replicaset"
	"skiff/internal/controller/resourceclaim"
	"skiff/internal/controller/resourcequota"
	"skiff/internal/controller/serviceaccount"
	"skiff/internal/controller/serviceaccount/legacytoken"
	"skiff/internal/controller/serviceaccount/rootca"
	"skiff/internal/controller/serviceaccount/tokens"
	"skiff/internal/controller/servicecidr"
	"skiff/internal/controller/statefulset"
	"skiff/internal/controller/storageversionmigrator"
	"skiff/internal/controller/ttlafterfinished"
	"skiff/internal/controller/volume/attachdetach"
	"skiff/internal/controller/volume/ephemeral"
	"skiff/internal/controller/volume/expand"
	"skiff/internal/controller/volume/persistentvolume"
)

// loop is a control loop of a cluster.
type loop struct {
	name string
	new  func(controller.Deps) controller.Loop // nil if it runs elsewhere
}

// loops holds all loops, by the names that --controllers takes.
var loops = []loop{
	{"bootstrap-signer-controller", bootstrap.NewSigner},
	{"certificatesigningrequest-approving-controller", certificates.NewApprover},
	{"certificatesigningrequest-cleaner-controller", certificates.NewCleaner},
	{"certificatesigningrequest-signing-controller", certificates.NewSigner},
	{"cluster-dns-controller", clusterdns.New},
	{"cluster-info-controller", bootstrap.NewPublisher},
	{Aggregation, nil},
	{"cronjob-controller", cronjob.New},
	{"daemonset-controller", daemonset.New},
	{"deployment-controller", deployment.New},
	{"device-taint-eviction-controller", devicetainteviction.New},
	{"disruption-controller", disruption.New},
	{"endpoints-controller", endpoints.New},
	{"endpointslice-controller", endpointslice.New},
	{"endpointslice-mirroring-controller", endpointslicemirroring.New},
	{"ephemeral-volume-controller", ephemeral.New},
	{"garbage-collector-controller", garbagecollector.New},
	{"horizontal-pod-autoscaler-controller", podautoscaler.New},
	{"job-controller", job.New},
	{"kube-apiserver-serving-clustertrustbundle-publisher-controller", rootca.NewTrustBundle},
	{"kubelet-serving-approving-controller", certificates.NewServingApprover},
	{"legacy-serviceaccount-token-cleaner-controller", legacytoken.NewCleaner},
	{"local-volume-provisioner-controller", localvolume.New},
	{"namespace-controller", namespace.New},
	{"node-client-key-controller", certificates.NewKeyRecorder},
	{"node-ipam-controller", nodeipam.New},
	{"node-lifecycle-controller", nodelifecycle.New},
	{"persistentvolume-attach-detach-controller", attachdetach.New},
	{"persistentvolume-binder-controller", persistentvolume.New},
	{"persistentvolume-expander-controller", expand.New},
	{"persistentvolume-protection-controller", protection.NewVolumes},
	{"persistentvolumeclaim-protection-controller", protection.NewClaims},
	{"pod-garbage-collector-controller", podgc.New},
	{"podcertificaterequest-cleaner-controller", certificates.NewPodCleaner},
	{"replicaset-controller", replicaset.New},
	{"replicationcontroller-controller", replicaset.NewReplicationController},
	{"resourceclaim-controller", resourceclaim.New},
	{"resourcequota-controller", resourcequota.New},
	{"root-ca-certificate-publisher-controller", rootca.New},
	{"service-cidr-controller", servicecidr.New},
	{"service-lb-controller", loadbalancer.New},
	{"serviceaccount-controller", serviceaccount.New},
	{"serviceaccount-token-controller", tokens.New},
	{"statefulset-controller", statefulset.New},
	{"storage-version-migrator-controller", storageversionmigrator.New},
	{"taint-eviction-controller", tainteviction.New},
	{"token-cleaner-controller", bootstrap.NewCleaner},
	{"ttl-after-finished-controller", ttlafterfinished.New},
	{"ttl-controller", ttl.New},
	{PolicyStatus, nil},
	{"volumeattributesclass-protection-controller", protection.NewClasses},
}

// Aggregation is the loop that runs in the API server, as aggregated cluster roles decide about requests.
const Aggregation = "clusterrole-aggregation-controller"

// PolicyStatus is a loop that runs in the API server, as the schemas are there by which the expressions of policies are checked.
const PolicyStatus = "validatingadmissionpolicy-status-controller"

// Names returns the names of all loops.
func Names() []string {
	var names []string
	for _, l := range loops {
		names = append(names, l.name)
	}
	return names
}

// New returns the loops that --controllers chooses: "*" is all, "name" that one, "-name" all but that one; see On.
func New(chosen []string, deps controller.Deps) ([]controller.Loop, error) {
	for _, c := range chosen {
		if name := strings.TrimPrefix(c, "-"); name != "*" && !slices.Contains(Names(), name) {
			return nil, fmt.Errorf("%q is not in the list of known controllers", name)
		}
	}
	var out []controller.Loop
	for _, l := range loops {
		if l.new != nil && On(l.name, chosen) {
			out = append(out, l.new(deps))
		}
	}
	return out, nil
}

// On reports whether a loop is chosen: by the last mention of its name, or by "*" if it is not mentioned.
func On(name string, chosen []string) bool {
	star := false
	for _, c := range slices.Backward(chosen) {
		switch c {
		case name:
			return true
		case "-" + name:
			return false
		case "*":
			star = true
		}
	}
	return star
}

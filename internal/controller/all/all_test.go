package all

import (
	"log/slog"
	"testing"

	"skiff/internal/apitest"
	"skiff/internal/client"
	"skiff/internal/controller"
)

var nothing controller.Deps

func TestChoosing(t *testing.T) {
	for _, c := range []struct {
		chosen []string
		want   bool
	}{
		{[]string{"*"}, true}, {nil, false}, {[]string{"a"}, true}, {[]string{"b"}, false}, {[]string{"*", "-a"}, false}, {[]string{"-a", "*"}, false}, {[]string{"-a", "a"}, true}, {[]string{"*", "-b"}, true},
	} {
		if got := On("a", c.chosen); got != c.want {
			t.Errorf("%v: %v", c.chosen, got)
		}
	}
	if _, err := New([]string{"*", "-nonsense"}, nothing); err == nil || err.Error() != `"nonsense" is not in the list of known controllers` {
		t.Error(err)
	}
}

// sources holds the event sources of upstream's loops, where they differ from the loop's name.
var sources = map[string]string{
	"disruption-controller":                     "controllermanager",
	"endpoints-controller":                      "endpoint-controller",
	"endpointslice-controller":                  "endpoint-slice-controller",
	"endpointslice-mirroring-controller":        "endpoint-slice-mirroring-controller",
	"ephemeral-volume-controller":               "ephemeral_volume",
	"horizontal-pod-autoscaler-controller":      "horizontal-pod-autoscaler",
	"local-volume-provisioner-controller":       "local.skiff", // of skiff
	"node-ipam-controller":                      "cidrAllocator",
	"node-lifecycle-controller":                 "node-controller",
	"persistentvolume-attach-detach-controller": "attachdetach-controller",
	"persistentvolume-binder-controller":        "persistentvolume-controller",
	"persistentvolume-expander-controller":      "volume_expand",
	"replicationcontroller-controller":          "replication-controller",
	"resourceclaim-controller":                  "resource_claim",
	"service-lb-controller":                     "service-controller",
}

// queues holds upstream's names of the loops' queues in metrics. The garbage collector has its own.
var queues = map[string]string{
	"cluster-dns-controller":                         "cluster_dns",     // of skiff
	"cluster-info-controller":                        "cluster_info",    // of skiff
	"kubelet-serving-approving-controller":           "kubelet_serving", // of skiff
	"node-client-key-controller":                     "node_client_key", // of skiff
	"bootstrap-signer-controller":                    "bootstrap_signer_queue",
	"certificatesigningrequest-approving-controller": "certificate",
	"certificatesigningrequest-signing-controller":   "certificate",
	"token-cleaner-controller":                       "token_cleaner",
	"cronjob-controller":                             "cronjob",
	"daemonset-controller":                           "daemonset",
	"deployment-controller":                          "deployment",
	"device-taint-eviction-controller":               "device-taint-eviction-controller",
	"disruption-controller":                          "disruption",
	"endpoints-controller":                           "endpoint",
	"endpointslice-controller":                       "endpoint_slice",
	"endpointslice-mirroring-controller":             "endpoint_slice_mirroring",
	"ephemeral-volume-controller":                    "ephemeral_volume",
	"horizontal-pod-autoscaler-controller":           "horizontalpodautoscaler",
	"resourceclaim-controller":                       "resource_claim",
	"job-controller":                                 "job",
	"local-volume-provisioner-controller":            "local_volume_provisioner",
	"namespace-controller":                           "namespace",
	"node-ipam-controller":                           "cidrallocator_node",
	"node-lifecycle-controller":                      "node_lifecycle_controller",
	"persistentvolume-attach-detach-controller":      "attach_detach", // upstream's is of claims: pvcs
	"persistentvolume-binder-controller":             "claims",        // upstream has another one, volumes
	"persistentvolume-expander-controller":           "volume_expand",
	"persistentvolume-protection-controller":         "pvprotection",
	"persistentvolumeclaim-protection-controller":    "pvcprotection",
	"pod-garbage-collector-controller":               "orphaned_pods_nodes",
	"replicaset-controller":                          "replicaset",
	"replicationcontroller-controller":               "replicationmanager",
	"resourcequota-controller":                       "resourcequota_primary",
	"root-ca-certificate-publisher-controller":       "root_ca_cert_publisher",
	"service-cidr-controller":                        "ipaddresses",
	"service-lb-controller":                          "service",
	"serviceaccount-controller":                      "serviceaccount",
	"serviceaccount-token-controller":                "serviceaccount_tokens_service",
	"statefulset-controller":                         "statefulset",
	"taint-eviction-controller":                      "noexec_taint_pod",
	"ttl-after-finished-controller":                  "ttl_jobs_to_delete",
	"ttl-controller":                                 "ttlcontroller",
	"volumeattributesclass-protection-controller":    "vacprotection",

	"kube-apiserver-serving-clustertrustbundle-publisher-controller": "ca_cert_publisher_cluster_trust_bundles",
}

// A loop has the name that it is listed with, and upstream's event source and queue name.
func TestNames(t *testing.T) {
	server := apitest.Start(t)
	c := server.InProcess("test", "system:kube-controller-manager")
	deps := controller.Deps{Informers: c.Informers(client.InformerOptions{}), Client: c, Log: slog.Default(), Config: controller.Config{ClusterCIDRs: []string{"10.42.0.0/16"}, AllocateNodeCIDRs: true}}
	for _, l := range loops {
		if l.new != nil {
			loop := l.new(deps)
			if loop.Name != l.name {
				t.Errorf("%s calls itself %s", l.name, loop.Name)
			}
			if loop.EventSource != sources[l.name] {
				t.Errorf("the events of %s are from %q", l.name, loop.EventSource)
			}
			if loop.QueueName != queues[l.name] {
				t.Errorf("the queue of %s is %q", l.name, loop.QueueName)
			}
		}
	}
}

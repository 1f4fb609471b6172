package node

import "testing"

// clauses are the cases of what a kubelet must do, each with real containers. Slow ones are run by make e2e.
var clauses = []struct {
	name string
	slow bool
	run  func(*testNamespace)
}{
	{"registration", false, registration},
	{"images of the node", true, nodeImages},
	{"leases", true, leases},
	{"conditions", false, conditions},
	{"capacity and allocatable", false, capacity},
	{"phases", false, phases},
	{"pod conditions", false, podConditions},
	{"readiness gates", false, readinessGates},
	{"init containers", false, initContainers},
	{"init container failing", false, initFails},
	{"sidecars", false, sidecars},
	{"restart policies", false, restartPolicies},
	{"restart back-off", true, restartBackOff},
	{"startup probes", false, startupProbes},
	{"startup probe failing", true, startupFails},
	{"liveness probes", false, livenessProbes},
	{"readiness probes", false, readinessProbes},
	{"host network probes", false, hostNetworkProbes},
	{"readiness while terminating", false, terminatingReadiness},
	{"postStart failing", false, postStartFails},
	{"postStart hanging", false, postStartHangs},
	{"postStart and preStop", false, hooks},
	{"termination grace", false, grace},
	{"preStop within grace", true, preStopWithinGrace},
	{"activeDeadlineSeconds", false, activeDeadline},
	{"users and groups", false, users},
	{"runAsNonRoot", false, nonRoot},
	{"fsGroup", false, fsGroup},
	{"capabilities", false, capabilities},
	{"seccomp", false, seccomp},
	{"privileged", false, privileged},
	{"read-only root", false, readOnlyRoot},
	{"host namespaces", false, hostNamespaces},
	{"shared PID namespace", false, sharedProcesses},
	{"environment", false, environment},
	{"environment missing", false, environmentMissing},
	{"hosts file", false, hostsFile},
	{"resolv.conf", false, resolvConf},
	{"timer slack", false, timerSlack},
	{"QoS cgroups", false, qosCgroups},
	{"memory limit", false, memoryLimit},
	{"process limit", false, processLimit},
	{"emptyDir", false, emptyDir},
	{"hostPath", false, hostPath},
	{"configMap and secret", false, configMapAndSecret},
	{"projected", false, projected},
	{"downwardAPI", false, downwardAPI},
	{"subPath", false, subPath},
	{"subPath leading out", false, subPathOut},
	{"atomic updates", true, atomicUpdates},
	{"volume missing", false, volumeMissing},
	{"local volumes", false, localVolumes},
	{"local block volumes", false, localBlockVolumes},
	{"retained volumes", false, retainedVolumes},
	{"volumes too large", false, tooLargeVolumes},
	{"image pull failures", false, imageFailures},
	{"host ports", false, hostPorts},
	{"termination messages", false, terminationMessages},
	{"termination message hostile", false, hostileTerminationMessage},
	{"logs", false, logs},
	{"log rotation", true, logRotation},
	{"container garbage", true, containerGarbage},
	{"ephemeral containers", false, ephemeralContainers},
	{"server authentication", false, serverAuthentication},
	{"server pods", false, serverPods},
	{"stats", false, stats},
	{"metrics", false, metrics},
	{"journey", false, journeyStages},
	{"kubectl", false, kubectlScript},
	{"image corrupt", false, imageCorrupt},
	{"registry down", false, registryDown},
	{"memory hog", false, memoryHog},
}

// A kubelet does what Kubernetes promises. When skiff is killed or stopped, containers go on; when the cluster is taken down, nothing is left.
func TestKubelet(t *testing.T) {
	c := newCluster(t)
	t.Run("clause", func(t *testing.T) {
		for _, k := range clauses {
			if !k.slow || *slow {
				t.Run(k.name, func(t *testing.T) {
					t.Parallel()
					k.run(c.space(t))
				})
			}
		}
	})
	// What all pods would notice if it did harm.
	t.Run("CNI failing", func(t *testing.T) { cniFails(c.space(t)) })
	t.Run("fork bomb", func(t *testing.T) { forkBomb(c.space(t)) })
	if *slow {
		t.Run("log flood", func(t *testing.T) { logFlood(c.space(t)) })
	}
	t.Run("skiff killed", func(t *testing.T) { killed(c.space(t)) })
	if *slow {
		t.Run("skiff stopped", func(t *testing.T) { stopped(c.space(t)) })
	}
	t.Run("down", func(t *testing.T) { down(c, t) })
}

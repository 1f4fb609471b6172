// Package differential compares skiff with upstream Kubernetes as a kubectl user sees them.
//
// Each testdata/*.script is the transcript of a terminal: kubectl commands that need neither nodes nor controllers, and what
// they printed on upstream's kube-apiserver. upstream.sh records them; TestReplay runs the same commands against skiff and expects
// the same text, after values that differ from run to run (uids, resource versions, times, allocated addresses, generated names) have
// been replaced on both sides.
//
// testdata/cluster/*.script are the scripts that need controllers, a scheduler and nodes. They were recorded with upstream's
// kube-controller-manager and kube-scheduler and three hollow nodes (command hollow runs package internal/hollow on any server);
// TestCluster runs them against `skiff up --no-node --hollow-nodes 3`. The names of ReplicaSets, which are made from a hash, stay as they are.
//
// A script is a shell session:
//
//	# A comment, up to the next blank line or command.
//	$ kubectl create configmap settings --from-literal=colour=blue
//	configmap/settings created
//
//	$ kubectl apply -f - <<EOF
//	> apiVersion: v1
//	> ...
//	> EOF
//	configmap/more created
//
//	$ kubectl get configmap absent
//	Error from server (NotFound): configmaps "absent" not found
//	[exit 1]
//
// testdata/plugins/*.script are the scripts that need admission plugins which are off by default, and a webhook that reviews images (StartPolicyServer).
// TestPlugins runs them.
//
// Each command runs in a bash of its own, in a directory the script's commands share, with the namespace named after the
// script as the default one. Output and errors are one stream. Variables do not live on from one command to the next; files,
// and processes left in the background, do until the script ends. testdata/files is there as files/. Shell functions wait for what
// takes a while: `await N FILE` until FILE has N lines, `lines N CMD...` until CMD prints N lines, `shows TEXT CMD...` until what it
// prints contains TEXT. `CMD | unordered` is for what comes in any order: its lines are sorted once they are normalised.
//
// Scripts run in parallel on one server, which must be fresh; those of testdata/cluster each have their own. A script owns its namespace and may own others that start with
// its name; what it creates outside namespaces carries its name too, and it lists such kinds only by name or by label. Node
// ports it asks for come from 30000 to 30085, the band servers do not give out by themselves while there are others.
//
// It must not import k8s.io/kubernetes: upstream is what skiff is compared with, never a part of it.
package differential

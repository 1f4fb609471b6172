// Package differential compares skiff with upstream Kubernetes as a kubectl user sees them.
//
// Each testdata/*.script is the transcript of a terminal: kubectl commands that need neither nodes nor controllers, and what
// they printed on upstream's kube-apiserver. upstream.sh records them; TestReplay types the same commands at skiff and expects
// the same text, once what no two runs share (uids, resource versions, times, allocated addresses, generated names) has
// been replaced on both sides.
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
// Each command runs in a bash of its own, in a directory the script's commands share, with the namespace named after the
// script as the default one. Output and errors are one stream. Variables do not live on from one command to the next; files,
// and processes left in the background, do until the script ends. testdata/files is there as files/. The shell function
// `await N FILE` returns when FILE has N lines.
//
// Scripts run in parallel on one server, which must be fresh. A script owns its namespace and may own others that start with
// its name; what it creates outside namespaces carries its name too, and it lists such kinds only by name or by label. Node
// ports it asks for come from 30000 to 30085, the band servers do not give out by themselves while there are others.
package differential

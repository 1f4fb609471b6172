// Package dra has DRA drivers prepare the devices of ResourceClaims on the node, and says which of them a container gets.
//
// Before the first container of a pod is created, each driver whose devices are allocated to one of the pod's claims is told to prepare that claim, and answers
// with the names that its devices have for the runtime (CDI). A claim is prepared once for all pods of the node that share it, and
// unprepared when the last of them has terminated. Which pods have which claims is written to <kubelet directory>/dra_manager_state before the
// driver is called, so that nothing stays prepared after a kubelet that was killed.
//
// What differs from upstream: drivers have to speak v1 of the API (v1beta1 alone is refused), claims that stand for extended resources are not prepared, and what drivers say of their
// devices' health is not read.
//
// It must not import the API server, its store or its cache, nor another component: the kubelet meets them only at the API, through client.
package dra

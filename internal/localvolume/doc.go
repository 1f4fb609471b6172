// Package localvolume is what the control plane and a node say to each other about the volumes of the default StorageClass: create one, expand one,
// delete one. A call is one of CSI's controller service, sent to the kubelet of the node that has the volume, through the API server's nodes/proxy:
//
//	POST /api/v1/nodes/{node}/proxy/localvolumes/{CreateVolume|ControllerExpandVolume|DeleteVolume}
//
// Client makes the calls, NewHandler answers them on the node with its driver (package kubelet/disk). Who may call is decided as for all that goes through
// nodes/proxy: the API server asks for the right to create it, and the kubelet takes calls only from those who have that right.
//
// It must not import anything else of skiff: the control plane and the kubelet both import it.
package localvolume

// Package disk is the CSI driver local.skiff: volumes with an enforced size on the node's own disk. It runs in the kubelet's process, without a socket.
//
// A volume is one file, <dir>/<id>.img, that is attached to a loop device while a pod uses it. What the file holds is a file system, ext4 unless the StorageClass asks
// for xfs, or nothing for a block volume. The size of the file is the size of the volume: who fills it gets ENOSPC and nobody else notices.
//
//	create.go    creates, deletes and expands images, at the call of the provisioner
//	image.go     allocates an image; never more than leaves the disk its reserve
//	stage.go     attaches an image and mounts it once per node; a file system that is smaller than its image grows here, before it is mounted
//	publish.go   binds the mounted volume, or its device, to where a pod expects it
//	loop.go      loop devices
//
// All state is on the disk and in the kernel. An image is built under the name <id>.part, synced, and then renamed, so that an .img file is always whole. Parts are removed
// at the next try and at the next start; images are only ever removed by DeleteVolume, also those that nobody seems to know: a cluster
// that was restored from an older snapshot must not lose data.
//
// It must not import the API server, its store or its cache, or another component: the provisioner calls it through localvolume.
package disk

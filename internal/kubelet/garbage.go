package kubelet

import (
	"cmp"
	"context"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/cri"
	"skiff/internal/kubelet/machine"
)

// When what piles up is removed.
const (
	containersEvery  = time.Minute
	imagesCheckEvery = 5 * time.Minute
	deadContainers   = 1        // runs of a container that are kept beside the one that runs, for their logs
	imageHighPercent = 85       // of the disk, from which on images are removed
	imageLowPercent  = 80       // of the disk, down to which
	imageFreeHigh    = 10 << 30 // bytes that are enough, however large a disk is and whoever else fills it
	imageFreeLow     = 15 << 30 // bytes that are enough once images are removed
	imageMinAge      = 2 * time.Minute
)

// collectGarbage removes what piles up, now and then.
func (k *Kubelet) collectGarbage(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-k.synced:
	}
	k.logs.RemoveDangling(k.knows) // the last process may have been ended while it removed a pod
	seen := map[string]imageUse{}
	var imagesAt time.Time
	for {
		sleep(ctx, containersEvery)
		if ctx.Err() != nil {
			return
		}
		k.removeDeadContainers(ctx)
		k.removeDeadSandboxes(ctx)
		k.logs.RemoveDangling(k.knows)
		if time.Since(imagesAt) > imagesCheckEvery {
			imagesAt = time.Now()
			k.removeImages(ctx, seen)
		}
	}
}

// podDirs are the pods that have a directory.
func (k *Kubelet) podDirs() (out []types.UID, err error) {
	entries, err := os.ReadDir(filepath.Join(k.options.RootDir, "pods"))
	for _, e := range entries {
		out = append(out, types.UID(e.Name()))
	}
	return out, err
}

// removeDeadContainers removes runs of containers that ended, but for the last ones of each.
func (k *Kubelet) removeDeadContainers(ctx context.Context) {
	list, err := k.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	for _, c := range tooMany(list) {
		uid := types.UID(c.Labels[cri.LabelPodUID])
		if !k.knows(uid) {
			continue // it is being removed with all of its pod
		}
		status, err := k.options.Runtime.ContainerStatus(ctx, c.Id)
		if err != nil {
			continue
		}
		k.logs.Remove(status.LogPath)
		if err := k.logs.RemoveLink(c.Labels[cri.LabelPodName], c.Labels[cri.LabelPodNamespace], c.Labels[cri.LabelContainer], c.Id); err != nil {
			k.log.Warn("failed to remove the link to an exited container's log", "container", c.Id, "error", err)
		}
		if err := k.options.Runtime.RemoveContainer(ctx, c.Id); err != nil && !cri.IsNotFound(err) {
			k.log.Warn("removing a container that ended", "container", c.Id, "error", err)
		}
	}
}

// tooMany are the runs of containers that ended and are not among the last ones.
func tooMany(list []*runtimeapi.Container) (out []*runtimeapi.Container) {
	dead := map[string][]*runtimeapi.Container{}
	for _, c := range list {
		if c.State == runtimeapi.ContainerState_CONTAINER_EXITED || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			key := c.Labels[cri.LabelPodUID] + "/" + c.Labels[cri.LabelContainer]
			dead[key] = append(dead[key], c)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(dead)) {
		runs := dead[key]
		slices.SortFunc(runs, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
		out = append(out, runs[min(len(runs), deadContainers):]...)
	}
	return out
}

// removeDeadSandboxes removes sandboxes that do not work any more and have no containers, but for the last one of each pod: it tells which
// attempt the next one is.
func (k *Kubelet) removeDeadSandboxes(ctx context.Context) {
	sandboxes, err := k.options.Runtime.ListPodSandboxes(ctx, nil)
	if err != nil {
		return
	}
	containers, err := k.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.PodSandboxId] = true
	}
	newest := map[string]uint32{}
	for _, s := range sandboxes {
		uid := s.Labels[cri.LabelPodUID]
		newest[uid] = max(newest[uid], s.Metadata.GetAttempt())
	}
	for _, s := range sandboxes {
		uid := s.Labels[cri.LabelPodUID]
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY || used[s.Id] || s.Metadata.GetAttempt() == newest[uid] || !k.knows(types.UID(uid)) {
			continue
		}
		if err := k.options.Runtime.RemovePodSandbox(ctx, s.Id); err != nil && !cri.IsNotFound(err) {
			k.log.Warn("removing a sandbox that is not used any more", "sandbox", s.Id, "error", err)
		}
	}
}

// imageUse is when an image was first seen, and last used.
type imageUse struct{ found, used time.Time }

// removeImages removes images that no container uses when the disk becomes full, those not used for longest first.
func (k *Kubelet) removeImages(ctx context.Context, seen map[string]imageUse) {
	images, used, err := k.imagesInUse(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	there := map[string]bool{}
	for _, i := range images {
		there[i.Id] = true
		use, known := seen[i.Id]
		if !known {
			use.found = now
		}
		if used[i.Id] {
			use.used = now
		}
		seen[i.Id] = use
	}
	maps.DeleteFunc(seen, func(id string, _ imageUse) bool { return !there[id] })
	if err := k.images.Keep(there); err != nil {
		k.log.Warn("noting which images are gone", "error", err)
	}
	size, free, err := k.imageDisk(ctx)
	if err != nil || size == 0 {
		return
	}
	if missing := imageSpaceMissing(size, free); missing > 0 {
		k.removeLeastUsed(ctx, images, used, seen, missing)
	}
}

// imageSpaceMissing is how much is to be freed of a disk by removing images, if it is time for that.
func imageSpaceMissing(size, free int64) int64 {
	if 100-free*100/size < imageHighPercent || free >= imageFreeHigh {
		return 0
	}
	return min(size/100*(100-imageLowPercent), imageFreeLow) - free
}

// removeUnusedImages removes all images that no container uses: the node runs out of disk.
func (k *Kubelet) removeUnusedImages(ctx context.Context) {
	images, used, err := k.imagesInUse(ctx)
	if err == nil {
		k.removeLeastUsed(ctx, images, used, nil, math.MaxInt64)
	}
}

// removeLeastUsed removes images that no container uses, those not used for longest first, until so many bytes are freed.
func (k *Kubelet) removeLeastUsed(ctx context.Context, images []*runtimeapi.Image, used map[string]bool, seen map[string]imageUse, target int64) {
	now := time.Now()
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(seen[a.Id].used.Compare(seen[b.Id].used), seen[a.Id].found.Compare(seen[b.Id].found))
	})
	var freed int64
	for _, i := range images {
		if freed >= target {
			return
		}
		if used[i.Id] || i.Pinned || seen != nil && now.Sub(seen[i.Id].found) < imageMinAge {
			continue
		}
		if err := k.options.Runtime.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: i.Id}); err != nil {
			k.log.Warn("removing an image that nobody uses", "image", i.Id, "error", err)
			continue
		}
		freed += int64(i.Size)
	}
	if freed < target && target < math.MaxInt64 {
		k.recorder.Eventf(k.node.Ref(), corev1.EventTypeWarning, "FreeDiskSpaceFailed",
			"Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", target, freed)
	}
}

// imagesInUse are the images there are, and which of them containers use.
func (k *Kubelet) imagesInUse(ctx context.Context) (images []*runtimeapi.Image, used map[string]bool, err error) {
	if images, err = k.options.Runtime.ListImages(ctx); err != nil {
		return nil, nil, err
	}
	containers, err := k.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	used = map[string]bool{}
	for _, c := range containers {
		used[c.ImageRef], used[c.ImageId] = true, true
		used[c.GetImage().GetImage()] = true
	}
	for _, i := range images {
		for _, name := range slices.Concat(i.RepoTags, i.RepoDigests) {
			used[i.Id] = used[i.Id] || used[name]
		}
	}
	return images, used, nil
}

// imageDisk is how large the disk is that images are on, and how much of it is free.
func (k *Kubelet) imageDisk(ctx context.Context) (size, free int64, err error) {
	info, err := k.options.Runtime.ImageFsInfo(ctx)
	if err != nil || len(info.GetImageFilesystems()) == 0 {
		return 0, 0, err
	}
	return machine.DiskSpace(info.ImageFilesystems[0].GetFsId().GetMountpoint())
}

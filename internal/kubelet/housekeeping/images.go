package housekeeping

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"skiff/internal/kubelet/machine"
)

const (
	imageHighPercent = 85       // the disk usage from which on images are removed
	imageLowPercent  = 80       // the disk usage down to which images are removed
	imageFreeHigh    = 10 << 30 // free bytes with which no image is removed, however large the disk is and whoever else fills it
	imageFreeLow     = 15 << 30 // free bytes that are enough once images are being removed
	imageMinAge      = 2 * time.Minute
)

// imageUse is when an image was first seen, and when a container last used it.
type imageUse struct{ firstSeen, lastUsed time.Time }

// collectImages removes unused images, least recently used first, if the disk is too full. uses is what it remembers from call to call, by image id.
func (m *Manager) collectImages(ctx context.Context, uses map[string]imageUse) {
	images, inUse, err := m.listImages(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	present := map[string]bool{}
	for _, i := range images {
		present[i.Id] = true
		use, known := uses[i.Id]
		if !known {
			use.firstSeen = now
		}
		if inUse[i.Id] {
			use.lastUsed = now
		}
		uses[i.Id] = use
	}
	maps.DeleteFunc(uses, func(id string, _ imageUse) bool { return !present[id] })
	if err := m.options.Images.Keep(present); err != nil {
		m.log.Warn("failed to drop the records of removed images", "error", err)
	}
	size, free, err := m.imageDisk(ctx)
	if err != nil || size == 0 {
		return
	}
	if target := bytesToFree(size, free); target > 0 {
		m.removeImages(ctx, images, inUse, uses, target)
	}
}

// bytesToFree returns how many bytes of images are to be removed from a disk, 0 if it is not full enough for that.
func bytesToFree(size, free int64) int64 {
	if 100-free*100/size < imageHighPercent || free >= imageFreeHigh {
		return 0
	}
	return min(size/100*(100-imageLowPercent), imageFreeLow) - free
}

// removeUnusedImages removes all images that no container uses, because the node is short of disk.
func (m *Manager) removeUnusedImages(ctx context.Context) {
	images, inUse, err := m.listImages(ctx)
	if err == nil {
		m.removeImages(ctx, images, inUse, nil, math.MaxInt64)
	}
}

// removeImages removes images that no container uses, least recently used first, until target bytes are freed. Images younger than imageMinAge stay, unless
// uses is nil.
func (m *Manager) removeImages(ctx context.Context, images []*runtimeapi.Image, inUse map[string]bool, uses map[string]imageUse, target int64) {
	now := time.Now()
	slices.SortFunc(images, func(a, b *runtimeapi.Image) int {
		return cmp.Or(uses[a.Id].lastUsed.Compare(uses[b.Id].lastUsed), uses[a.Id].firstSeen.Compare(uses[b.Id].firstSeen))
	})
	var freed int64
	for _, i := range images {
		if freed >= target {
			return
		}
		if inUse[i.Id] || i.Pinned || uses != nil && now.Sub(uses[i.Id].firstSeen) < imageMinAge {
			continue
		}
		if err := m.options.Runtime.RemoveImage(ctx, &runtimeapi.ImageSpec{Image: i.Id}); err != nil {
			m.log.Warn("failed to remove an unused image", "image", i.Id, "error", err)
			continue
		}
		freed += int64(i.Size)
	}
	if freed < target && target < math.MaxInt64 {
		m.options.Recorder.Eventf(m.options.Node.Ref(), corev1.EventTypeWarning, "FreeDiskSpaceFailed",
			"Failed to garbage collect required amount of images. Attempted to free %d bytes, but only found %d bytes eligible to free.", target, freed)
	}
}

// listImages returns the node's images, and which of them containers use, by id.
func (m *Manager) listImages(ctx context.Context) (images []*runtimeapi.Image, inUse map[string]bool, err error) {
	if images, err = m.options.Runtime.ListImages(ctx); err != nil {
		return nil, nil, err
	}
	containers, err := m.options.Runtime.ListContainers(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	inUse = map[string]bool{}
	for _, c := range containers {
		inUse[c.ImageRef], inUse[c.ImageId] = true, true
		inUse[c.GetImage().GetImage()] = true
	}
	for _, i := range images {
		for _, name := range slices.Concat(i.RepoTags, i.RepoDigests) {
			inUse[i.Id] = inUse[i.Id] || inUse[name]
		}
	}
	return images, inUse, nil
}

// imageDisk returns the size of the disk that images are on, and how much of it is free, in bytes.
func (m *Manager) imageDisk(ctx context.Context) (size, free int64, err error) {
	info, err := m.options.Runtime.ImageFsInfo(ctx)
	if err != nil || len(info.GetImageFilesystems()) == 0 {
		return 0, 0, err
	}
	return machine.DiskSpace(info.ImageFilesystems[0].GetFsId().GetMountpoint())
}

package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"skiff/internal/kubelet/volume"
)

// stage has the driver make a volume ready on the node, if it does that apart from publishing.
func (p *Plugin) stage(ctx context.Context, m *mount) error {
	if m.ephemeral() {
		return nil
	}
	stages, err := m.driver.can(ctx, csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
	if err != nil {
		return m.failed(staging, err)
	}
	if !stages {
		return nil
	}
	m.stagingPath = p.stagingPath(&m.record)
	if p.isStaged(m.stagingPath) {
		return nil
	}
	secrets, err := p.secrets(ctx, m.stageSecret)
	if err != nil {
		return m.failed(staging, fmt.Errorf("fetching NodeStageSecretRef %s/%s failed: %w", m.stageSecret.Namespace, m.stageSecret.Name, err))
	}
	capability, err := m.capability(ctx)
	if err != nil {
		return m.failed(staging, err)
	}
	dir := p.stagedDir(&m.record)
	before, err := load(dir)
	if err != nil {
		return m.failed(staging, err)
	}
	if err := os.MkdirAll(m.stagingPath, 0o750); err != nil {
		return m.failed(staging, err)
	}
	if err := (&record{Name: m.record.Name, Handle: m.record.Handle, Driver: m.record.Driver, Block: m.record.Block}).save(dir); err != nil {
		return m.failed(staging, fmt.Errorf("failed to save volume info data: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = m.driver.node.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{VolumeId: m.record.Handle, PublishContext: m.publishContext, StagingTargetPath: m.stagingPath,
		VolumeCapability: capability, Secrets: secrets, VolumeContext: m.attributes})
	if err == nil {
		p.setStaged(m.stagingPath, true)
		return nil
	}
	if before == nil && m.record.Published == "" && final(err) { // nothing was staged: nothing is to be undone
		err = errors.Join(err, removeTarget(ctx, m.stagingPath), remove(dir), remove(p.podDir(m.pod.UID, m.record.Name)))
	}
	return m.failed(staging, err)
}

// publish has the driver mount a volume for a pod.
func (p *Plugin) publish(ctx context.Context, m *mount) error {
	secrets, err := p.secrets(ctx, m.publishSecret)
	if err != nil {
		return m.failed(publishing, fmt.Errorf("fetching NodePublishSecretRef %s/%s failed: %w", m.publishSecret.Namespace, m.publishSecret.Name, err))
	}
	attributes, err := p.publishAttributes(ctx, m, secrets)
	if err != nil {
		return m.failed(publishing, fmt.Errorf("kubernetes.io/csi: mounter.SetUpAt failed to get service account token attributes: %w", err))
	}
	capability, err := m.capability(ctx)
	if err != nil {
		return m.failed(publishing, err)
	}
	if err := parent(m.target); err != nil {
		return m.failed(publishing, err)
	}
	dir, wasPublished := p.podDir(m.pod.UID, m.record.Name), m.record.Published
	m.record.Published = "true"
	if err := m.record.save(dir); err != nil {
		return m.failed(publishing, err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = m.driver.node.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{VolumeId: m.record.Handle, PublishContext: m.publishContext, StagingTargetPath: m.stagingPath,
		TargetPath: m.target, VolumeCapability: capability, Readonly: m.readOnly, Secrets: secrets, VolumeContext: attributes})
	if err == nil {
		return nil
	}
	if final(err) && wasPublished == "" {
		m.record.Published = ""
		err = errors.Join(err, removeTarget(ctx, m.target), m.record.save(dir))
	}
	return m.failed(publishing, err)
}

// unpublish has the driver unmount a volume of a pod.
func (p *Plugin) unpublish(ctx context.Context, d *driver, uid types.UID, r *record) error {
	target := p.targetPath(uid, r)
	if r.Published != "" {
		calling, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		if _, err := d.node.NodeUnpublishVolume(calling, &csi.NodeUnpublishVolumeRequest{VolumeId: r.Handle, TargetPath: target}); err != nil {
			return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed: %w", err)
		}
	}
	if err := removeTarget(ctx, target); err != nil {
		return fmt.Errorf("kubernetes.io/csi: Unmounter.TearDownAt failed to clean mount dir [%s]: %w", target, err)
	}
	if r.Block != "" {
		return removeEmpty(filepath.Dir(target))
	}
	return nil
}

// unstage has the driver undo what it did for all pods of the node.
func (p *Plugin) unstage(ctx context.Context, d *driver, r *record) error {
	dir, path := p.stagedDir(r), p.stagingPath(r)
	staged, err := load(dir)
	if staged == nil {
		return err
	}
	p.setStaged(path, false)
	calling, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := d.node.NodeUnstageVolume(calling, &csi.NodeUnstageVolumeRequest{VolumeId: r.Handle, StagingTargetPath: path}); err != nil {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed: %w", err)
	}
	if err := errors.Join(removeTarget(ctx, path), remove(dir)); err != nil {
		return fmt.Errorf("kubernetes.io/csi: attacher.UnmountDevice failed to clean up global mount %s: %w", path, err)
	}
	if r.Block != "" {
		return removeEmpty(filepath.Dir(dir))
	}
	return nil
}

// removeTarget removes a path that a driver mounted something at, and unmounts what a driver has left there.
func removeTarget(ctx context.Context, path string) error {
	if info, err := os.Lstat(path); err == nil && info.Mode()&fs.ModeSymlink == 0 { // what a link leads to is not ours
		if err := volume.Unmount(ctx, path); err != nil {
			return err
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// capability returns how a volume is to be accessed.
func (m *mount) capability(ctx context.Context) (*csi.VolumeCapability, error) {
	multiWriter, err := m.driver.can(ctx, csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER)
	if err != nil {
		return nil, err
	}
	c := &csi.VolumeCapability{AccessMode: &csi.VolumeCapability_AccessMode{Mode: accessMode(m.mode(), multiWriter)}}
	if m.record.Block != "" {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
		return c, nil
	}
	files := &csi.VolumeCapability_MountVolume{FsType: m.fsType, MountFlags: m.options}
	if m.groupByDriver, err = m.driver.can(ctx, csi.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP); err != nil {
		return nil, err
	}
	if group := m.request.FSGroup(); m.groupByDriver && group != nil {
		files.VolumeMountGroup = strconv.FormatInt(*group, 10)
	}
	c.AccessType = &csi.VolumeCapability_Mount{Mount: files}
	return c, nil
}

// secrets reads the secret that a driver gets with a call.
func (p *Plugin) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	out := map[string]string{}
	if ref == nil {
		return out, nil
	}
	secret, err := p.options.Source.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		return nil, fmt.Errorf("kubernetes.io/csi: failed to find the secret %s in the namespace %s with error: %w", ref.Name, ref.Namespace, err)
	}
	for key, value := range secret.Data {
		out[key] = string(value)
	}
	return out, nil
}

// publishAttributes returns the attributes of a volume, with what the CSIDriver wants to know of the pod. Tokens go to the secrets if it says so.
func (p *Plugin) publishAttributes(ctx context.Context, m *mount, secrets map[string]string) (map[string]string, error) {
	if m.object == nil {
		return m.attributes, nil
	}
	out, spec := maps.Clone(m.attributes), &m.object.Spec
	if out == nil {
		out = map[string]string{}
	}
	if spec.PodInfoOnMount != nil && *spec.PodInfoOnMount {
		out["csi.storage.k8s.io/pod.name"] = m.pod.Name
		out["csi.storage.k8s.io/pod.namespace"] = m.pod.Namespace
		out["csi.storage.k8s.io/pod.uid"] = string(m.pod.UID)
		out["csi.storage.k8s.io/serviceAccount.name"] = m.pod.Spec.ServiceAccountName
		out["csi.storage.k8s.io/ephemeral"] = strconv.FormatBool(m.ephemeral())
	}
	if len(spec.TokenRequests) == 0 {
		return out, nil
	}
	tokens := map[string]authenticationv1.TokenRequestStatus{}
	for _, wanted := range spec.TokenRequests {
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{}, ExpirationSeconds: wanted.ExpirationSeconds,
			BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: m.pod.Name, UID: m.pod.UID}}}
		if wanted.Audience != "" {
			request.Spec.Audiences = []string{wanted.Audience}
		}
		answer, err := p.options.Source.Token(ctx, m.pod.Namespace, m.pod.Spec.ServiceAccountName, request)
		if err != nil {
			return nil, err
		}
		tokens[wanted.Audience] = answer.Status
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return nil, err
	}
	to := out
	if spec.ServiceAccountTokenInSecrets != nil && *spec.ServiceAccountTokenInSecrets {
		to = secrets
	}
	to["csi.storage.k8s.io/serviceAccount.tokens"] = string(text)
	return out, nil
}

// final reports whether a call has ended for good: after other errors the driver may still be at it.
func final(err error) bool {
	s, ok := status.FromError(err)
	if !ok {
		return false
	}
	switch s.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Aborted:
		return false
	}
	return true
}

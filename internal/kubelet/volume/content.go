package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/kubelet/environment"
)

// content sets up a volume whose files come from the API: a ConfigMap, a Secret, the pod itself, or several of these. They are read
// first; nothing on the disk is changed unless all of them could be read.
func (m *Manager) content(ctx context.Context, pod *corev1.Pod, v *corev1.Volume) (volumeState, error) {
	c := collector{ctx: ctx, m: m, pod: pod, files: files{}}
	var kind string
	memory := false
	switch {
	case v.ConfigMap != nil:
		kind = "configmap"
		c.configMap(v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.DefaultMode, v.ConfigMap.Optional)
	case v.Secret != nil:
		kind, memory = "secret", true
		c.secret(v.Secret.SecretName, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional)
	case v.DownwardAPI != nil:
		kind, memory = "downward-api", true
		c.downwardAPI(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		kind, memory = "projected", true
		for i := range v.Projected.Sources {
			c.projection(v.Name, i, &v.Projected.Sources[i], v.Projected.DefaultMode)
		}
	}
	if err := errors.Join(c.failed...); err != nil {
		return volumeState{}, &Failure{Volume: v.Name, Stage: setUpStage, Err: err, Waits: c.waits && len(c.failed) == 1}
	}
	dir := m.dir(pod.UID, kind, v.Name)
	if err := m.contentDir(dir, pod, memory); err != nil {
		return volumeState{}, err
	}
	if err := makeNested(dir, v.Name, pod); err != nil {
		return volumeState{}, err
	}
	group := fsGroup(pod)
	err := publish(dir, c.files, m.opts.Clock.Now(), func() error {
		if group == nil {
			return nil
		}
		return setGroup(ctx, dir, *group, true)
	})
	return volumeState{name: v.Name, path: dir, readOnly: true, managed: true, counted: true}, err
}

// contentDir creates the directory of such a volume. Secrets and tokens are kept in memory, never on the disk; only ConfigMaps are on the disk.
func (m *Manager) contentDir(dir string, pod *corev1.Pod, memory bool) error {
	if memory {
		return mountMemory(dir, m.memorySize(pod, nil), fsGroup(pod))
	}
	return makeShared(dir, fsGroup(pod))
}

// collector gathers the files of one volume.
type collector struct {
	ctx    context.Context
	m      *Manager
	pod    *corev1.Pod
	files  files
	failed []error
	waits  bool // a failure is that a signer has not answered yet
}

func (c *collector) fail(err error) { c.failed = append(c.failed, err) }

var errNoMode = errors.New("no defaultMode used, not even the default value for it")

func (c *collector) configMap(name string, items []corev1.KeyToPath, mode *int32, optional *bool) {
	data := map[string][]byte{}
	object, err := c.m.opts.Source.ConfigMap(c.ctx, c.pod.Namespace, name)
	switch {
	case err == nil:
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		maps.Copy(data, object.BinaryData)
	case !apierrors.IsNotFound(err) || optional == nil || !*optional:
		c.fail(err)
		return
	}
	c.keys(data, items, mode, optional, "configmap references non-existent config key: %s")
}

func (c *collector) secret(name string, items []corev1.KeyToPath, mode *int32, optional *bool) {
	var data map[string][]byte
	object, err := c.m.opts.Source.Secret(c.ctx, c.pod.Namespace, name)
	switch {
	case err == nil:
		data = object.Data
	case !apierrors.IsNotFound(err) || optional == nil || !*optional:
		c.fail(err)
		return
	}
	c.keys(data, items, mode, optional, "references non-existent secret key: %s")
}

// keys adds a file for every key, or for those that items name.
func (c *collector) keys(data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool, missing string) {
	if mode == nil {
		c.fail(errNoMode)
		return
	}
	if len(items) == 0 {
		for key, value := range data {
			c.files[key] = file{data: value, mode: *mode}
		}
		return
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional == nil || !*optional {
				c.fail(fmt.Errorf(missing, item.Key))
			}
			continue
		}
		f := file{data: value, mode: *mode}
		if item.Mode != nil {
			f.mode = *item.Mode
		}
		c.files[item.Path] = f
	}
}

func (c *collector) downwardAPI(items []corev1.DownwardAPIVolumeFile, mode *int32) {
	if mode == nil {
		c.fail(errNoMode)
		return
	}
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = environment.MetadataField(c.pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = environment.Resource(item.ResourceFieldRef, c.pod, c.m.opts.Node().Status.Allocatable)
		}
		if err != nil {
			c.fail(err)
			continue
		}
		f := file{data: []byte(value), mode: *mode}
		if item.Mode != nil {
			f.mode = *item.Mode
		}
		c.files[path.Clean(item.Path)] = f
	}
}

// projection adds what one source of a projected volume shows.
func (c *collector) projection(volume string, i int, source *corev1.VolumeProjection, mode *int32) {
	switch {
	case mode == nil:
		c.fail(errNoMode)
	case source.Secret != nil:
		c.secret(source.Secret.Name, source.Secret.Items, mode, source.Secret.Optional)
	case source.ConfigMap != nil:
		c.configMap(source.ConfigMap.Name, source.ConfigMap.Items, mode, source.ConfigMap.Optional)
	case source.DownwardAPI != nil:
		c.downwardAPI(source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		c.token(source.ServiceAccountToken, *mode)
	case source.ClusterTrustBundle != nil:
		anchors, err := c.anchors(source.ClusterTrustBundle)
		if err != nil {
			c.fail(err)
			return
		}
		c.private(source.ClusterTrustBundle.Path, anchors, *mode)
	case source.PodCertificate != nil:
		c.certificate(volume, i, source.PodCertificate, *mode)
	}
}

// certificate adds a certificate of the pod and its key, in one file or in two.
func (c *collector) certificate(volume string, i int, source *corev1.PodCertificateProjection, mode int32) {
	key, chain, waits, err := c.m.opts.Source.Certificate(c.ctx, c.pod, volume, i, source)
	if err != nil {
		c.waits = c.waits || waits
		c.fail(err)
		return
	}
	for path, data := range map[string][]byte{source.CredentialBundlePath: slices.Concat(key, chain), source.KeyPath: key, source.CertificateChainPath: chain} {
		if path != "" {
			c.private(path, data, mode)
		}
	}
}

// token adds a token of the pod's service account that is bound to the pod.
func (c *collector) token(source *corev1.ServiceAccountTokenProjection, mode int32) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: c.pod.Name, UID: c.pod.UID},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	token, err := c.m.tokens.get(c.ctx, c.pod.Namespace, c.pod.Spec.ServiceAccountName, request)
	if err != nil {
		c.fail(err)
		return
	}
	c.private(source.Path, []byte(token), mode)
}

// private adds a file that is closed to others when it is known whom it is for: one user that all containers run as, or the pod's group,
// which setting the volume's group lets read it.
func (c *collector) private(path string, data []byte, mode int32) {
	user := onlyUser(c.pod)
	if user != nil || fsGroup(c.pod) != nil {
		mode = 0o600
	}
	c.files[path] = file{data: data, mode: mode, user: user}
}

// onlyUser returns the user that every container of a pod runs as, nil if they differ or the image decides.
func onlyUser(pod *corev1.Pod) *int64 {
	var only *int64
	for c := range containers(pod) {
		var user *int64
		if s := pod.Spec.SecurityContext; s != nil {
			user = s.RunAsUser
		}
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			user = s.RunAsUser
		}
		if user == nil || only != nil && *only != *user {
			return nil
		}
		only = user
	}
	return only
}

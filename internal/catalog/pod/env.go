package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/catalog/check"
	"skiff/internal/catalog/quantity"
	"skiff/internal/catalog/volume"
)

// envFields are the fields of a pod that an environment variable can refer to, sorted.
var envFields = []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
	"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}

func (r *rules) env(p *check.Part, c *corev1.Container) {
	for i := range c.Env {
		v, at := &c.Env[i], p.Item("env", i)
		if v.Name == "" {
			at.Required("name", "")
		} else {
			at.Format("name", v.Name, utilvalidation.IsRelaxedEnvVarName)
		}
		if v.ValueFrom != nil {
			envSource(at.Child("valueFrom"), v)
		}
	}
	for i := range c.EnvFrom {
		envFrom(p, p.Item("envFrom", i), &c.EnvFrom[i])
	}
}

func envSource(p *check.Part, v *corev1.EnvVar) {
	from, sources := v.ValueFrom, 0
	if from.FieldRef != nil {
		sources++
		p.Add(volume.FieldRef(from.FieldRef, envFields, p.Path("fieldRef"))...)
	}
	if from.ResourceFieldRef != nil {
		sources++
		p.Add(quantity.ResourceFieldRef(from.ResourceFieldRef, false, p.Path("resourceFieldRef"))...)
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		sources++
		keyRef(p.Child("configMapKeyRef"), ref.Name, ref.Key)
	}
	if ref := from.SecretKeyRef; ref != nil {
		sources++
		keyRef(p.Child("secretKeyRef"), ref.Name, ref.Key)
	}
	if from.FileKeyRef != nil {
		sources++
		fileKeyRef(p.Child("fileKeyRef"), from.FileKeyRef)
	}
	switch {
	case sources == 0:
		p.Invalid("", "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`")
	case v.Value != "":
		p.Invalid("", "", "may not be specified when `value` is not empty")
	case sources > 1:
		p.Invalid("", "", "may not have more than one field specified at a time")
	}
}

// keyRef checks a reference to a key of a config map or secret.
func keyRef(p *check.Part, name, key string) {
	formatName(p, "name", name, validation.NameIsDNSSubdomain)
	if key == "" {
		p.Required("key", "")
	} else {
		p.Format("key", key, utilvalidation.IsConfigMapKey)
	}
}

func fileKeyRef(p *check.Part, ref *corev1.FileKeySelector) {
	if ref.Key == "" {
		p.Required("key", "")
	} else {
		p.Format("key", ref.Key, utilvalidation.IsRelaxedEnvVarName)
	}
	if ref.VolumeName == "" {
		p.Required("volumeName", "")
	} else {
		p.Format("volumeName", ref.VolumeName, utilvalidation.IsDNS1123Label)
	}
	if ref.Path == "" {
		p.Required("path", "")
	} else if hasBacksteps(ref.Path) {
		p.Invalid("path", ref.Path, noBacksteps)
	}
}

// envFrom validates an item of envFrom. A wrong number of sources is an error of the list, not of the item.
func envFrom(list, p *check.Part, from *corev1.EnvFromSource) {
	if from.Prefix != "" {
		p.Format("prefix", from.Prefix, utilvalidation.IsRelaxedEnvVarName)
	}
	if ref := from.ConfigMapRef; ref != nil {
		sourceName(p.Child("configMapRef"), ref.Name)
	}
	if ref := from.SecretRef; ref != nil {
		sourceName(p.Child("secretRef"), ref.Name)
	}
	switch {
	case from.ConfigMapRef == nil && from.SecretRef == nil:
		list.Invalid("envFrom", "", "must specify one of: `configMapRef` or `secretRef`")
	case from.ConfigMapRef != nil && from.SecretRef != nil:
		list.Invalid("envFrom", "", "may not have more than one field specified at a time")
	}
}

func sourceName(p *check.Part, name string) {
	if name == "" {
		p.Required("name", "")
		return
	}
	for _, msg := range validation.NameIsDNSSubdomain(name, true) {
		p.Invalid("name", name, msg)
	}
}

// envFileVolumes checks that files of variables are in emptyDir volumes of the pod, where an init container can write them.
func (r *rules) envFileVolumes(p *check.Part) {
	for at, c := range containers(r.spec) {
		for i := range c.Env {
			from := c.Env[i].ValueFrom
			if from == nil || from.FileKeyRef == nil {
				continue
			}
			name := from.FileKeyRef.VolumeName
			ref := at.in(p).Item("env", i).Child("valueFrom").Child("fileKeyRef")
			switch v := r.volumeNamed(name); {
			case v == nil:
				ref.Add(field.NotFound(ref.Path("volumeName"), name))
			case v.EmptyDir == nil:
				ref.Invalid("volumeName", name, "referenced volume must be of type emptyDir")
			}
		}
	}
}

// volumeNamed returns the last volume of a name, valid or not.
func (r *rules) volumeNamed(name string) *corev1.Volume {
	for i := len(r.spec.Volumes) - 1; i >= 0; i-- {
		if r.spec.Volumes[i].Name == name {
			return &r.spec.Volumes[i]
		}
	}
	return nil
}

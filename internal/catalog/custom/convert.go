package custom

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"skiff/internal/catalog"
)

// Converter converts the objects of a definition between its versions.
type Converter interface {
	// Convert returns objects, which may be in different versions, in the version to, in order. They have the metadata of the originals, but for labels and
	// annotations. Neither the originals nor what they share may be changed.
	Convert(ctx context.Context, objects []*Object, to *Version) ([]*Object, error)
	// Close is called when no further call begins.
	Close()
}

// NewConverter returns the converter of a definition that names a webhook.
type NewConverter func(crd *apiextensionsv1.CustomResourceDefinition) Converter

// addConverter sets the converter of a state of the definition: that of the state before if nothing has changed that it depends on.
func (r *Resource) addConverter(d *definition, crd *apiextensionsv1.CustomResourceDefinition, old *definition) {
	c := crd.Spec.Conversion
	if r.newConverter == nil || c == nil || c.Strategy != apiextensionsv1.WebhookConverter || c.Webhook == nil {
		return
	}
	// What a conversion results in depends on the webhook, and on the schemas of the versions that it converts between.
	sum := sha256.New()
	encoded, _ := json.Marshal(c) // strings, bytes and numbers can be marshaled
	sum.Write(encoded)
	webhook := sha256.Sum256(append(encoded, crd.Spec.Names.Kind...))
	for i := range crd.Spec.Versions {
		_, form := digests(crd, &crd.Spec.Versions[i])
		sum.Write([]byte(crd.Spec.Versions[i].Name))
		sum.Write(form[:])
	}
	sum.Sum(d.conversion[:0])
	if d.webhook = webhook; old != nil && old.converter != nil && old.webhook == webhook {
		d.converter = old.converter
		return
	}
	d.converter = r.newConverter(d.crd)
}

// Close releases what the resource holds for conversions. No object may be converted from then on.
func (r *Resource) Close() {
	if c := r.definition.Load().converter; c != nil {
		c.Close()
	}
}

// Converts reports whether the versions of the resource differ in content, so that a webhook converts between them.
func (r *Resource) Converts() bool { return r.definition.Load().converter != nil }

// state returns the version as a state of the definition describes it; the version itself if that does not have it.
func (d *definition) state(v *Version) *Version {
	if now := d.versions[v.kind.Version]; now != nil {
		return now
	}
	return v
}

// normalized returns the messages of stored objects as the definition has them today in this version, and its epoch: pruned and with the defaults of the
// version in which they are stored, then converted, and pruned again.
func (v *Version) normalized(ctx context.Context, messages [][]byte) (epoch uint64, results [][]byte, err error) {
	d := v.resource.definition.Load()
	now := d.state(v)
	objects := make([]*Object, len(messages))
	for i, message := range messages {
		o := now.New()
		if err := o.Unmarshal(message); err != nil {
			return 0, nil, err
		}
		if d.converter != nil {
			if o.version = d.versions[o.in]; o.version == nil {
				return 0, nil, invalidVersion("from", now, o.in)
			}
		}
		if err := o.version.complete(o); err != nil {
			return 0, nil, err
		}
		objects[i] = o
	}
	if objects, err = d.convert(ctx, objects, now); err != nil {
		return 0, nil, err
	}
	results = make([][]byte, len(objects))
	for i, o := range objects {
		if results[i], err = o.Marshal(); err != nil {
			return 0, nil, err
		}
	}
	return now.epoch, results, nil
}

// fromNormalized returns the object of a message that the schema of an epoch has nothing to add to and nothing to remove from.
func (v *Version) fromNormalized(message []byte, epoch uint64) (*Object, error) {
	o := v.New()
	if err := o.Unmarshal(message); err != nil {
		return nil, err
	}
	o.epoch = epoch
	return o, nil
}

// convert returns objects in a version. They are pruned by its schema if they were in another. What is not converted is returned as it is.
func (d *definition) convert(ctx context.Context, objects []*Object, to *Version) ([]*Object, error) {
	if d.converter == nil {
		return objects, nil
	}
	var others []*Object
	for _, o := range objects {
		if o.version.kind.Version != to.kind.Version {
			others = append(others, o)
		}
	}
	if len(others) == 0 {
		return objects, nil
	}
	converted, err := d.converter.Convert(ctx, others, to)
	if err != nil {
		if ctx.Err() != nil { // not the webhook's time is over, but that of the request
			err = apierrors.NewTimeoutError("request did not complete within the allotted timeout", 0)
		}
		return nil, &catalog.ConversionError{Err: err}
	}
	all := make([]*Object, len(objects))
	for i, o := range objects {
		if all[i] = o; o.version.kind.Version == to.kind.Version {
			continue
		}
		all[i], converted = converted[0], converted[1:]
		if err := to.pruneConverted(all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// pruneConverted removes the fields from a converted object that the version does not have.
func (v *Version) pruneConverted(o *Object) error {
	fields, _, err := o.ownFields()
	if err != nil {
		return err
	}
	v.used.Store(true)
	if err := v.schema.PruneStored(fields); err != nil {
		return err
	}
	o.SetFields(fields)
	o.in = v.kind.Version
	return nil
}

// converted returns an object in this version.
func (v *Version) converted(ctx context.Context, o *Object) (*Object, error) {
	d := v.resource.definition.Load()
	got, err := d.convert(ctx, []*Object{o}, d.state(v))
	if err != nil {
		return nil, err
	}
	return got[0], nil
}

// toStorage returns an object in the version of a name, in which it is to be stored.
func (r *Resource) toStorage(ctx context.Context, o *Object, name string) (*Object, error) {
	d := r.definition.Load()
	to := d.versions[name]
	if to == nil {
		if d.converter != nil {
			return nil, invalidVersion("to", o.version, name)
		}
		to = o.version
	}
	got, err := d.convert(ctx, []*Object{o}, to)
	if err != nil {
		return nil, err
	}
	got[0].in = name
	return got[0], nil
}

// asStored returns the object of a stored message in the version in which it is stored; in this version if the definition does not have that.
func (v *Version) asStored(message []byte) (*Object, error) {
	o := v.New()
	if err := o.Unmarshal(message); err != nil {
		return nil, err
	}
	if stored := v.resource.definition.Load().versions[o.in]; stored != nil {
		o.version = stored
	}
	return o, nil
}

// Derived returns an object of the version with the metadata of another, but for labels and annotations, and the given fields, which it owns.
func (v *Version) Derived(from *Object, labels, annotations map[string]string, fields map[string]any) *Object {
	o := v.New()
	from.ObjectMeta.DeepCopyInto(&o.ObjectMeta)
	o.Labels, o.Annotations = labels, annotations
	o.SetFields(fields)
	return o
}

// invalidVersion returns the error for a version that the definition does not have.
func invalidVersion(direction string, v *Version, name string) error {
	return &catalog.ConversionError{Err: fmt.Errorf("request to convert CR %s an invalid group/version: %s/%s", direction, v.kind.Group, name)}
}

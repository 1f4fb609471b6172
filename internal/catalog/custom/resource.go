package custom

import (
	"cmp"
	"crypto/sha256"
	"slices"
	"strconv"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"

	"skiff/internal/catalog/custom/schema"
)

// Resource is a custom resource as its definition describes it now. Objects, declarations and caches refer to it, and so follow the definition.
type Resource struct {
	definition   atomic.Pointer[definition]
	newConverter NewConverter // nil: objects of all versions have the same content, whatever the definition says
	// first is the version in which objects were stored when the resource was made: messages of objects in it do not name it.
	first string
}

// definition is one state of a CustomResourceDefinition. It is immutable.
type definition struct {
	crd      *apiextensionsv1.CustomResourceDefinition // without the schemas of its versions, which are large when decoded
	versions map[string]*Version
	fields   []string // the paths by which objects of any version can be selected, in the order of cache.Item.Fields
	// converter converts objects between versions; nil if they have the same content in all of them. webhook is a digest of what it was made of, and
	// conversion one of all that its results depend on.
	converter           Converter
	webhook, conversion [sha256.Size]byte
}

// Version is one version of a custom resource, as a definition described it.
type Version struct {
	resource *Resource
	kind     apischema.GroupVersionKind
	schema   *schema.Schema
	digest   [sha256.Size]byte // of what the version says, names aside
	form     [sha256.Size]byte // of what the version says about the form of objects: their pruning and defaults
	epoch    uint64            // of the form: differs from that of any other form in this process
	used     atomic.Bool       // since the last call of DropIdle
}

// epochs counts the forms that were made in this process, so that none is taken for another.
var epochs atomic.Uint64

// NewResource returns the resource of a definition that has passed validation and whose names are accepted. Objects are converted by what newConverter
// returns, if it is not nil and the definition names a webhook.
func NewResource(crd *apiextensionsv1.CustomResourceDefinition, newConverter NewConverter) *Resource {
	r := &Resource{newConverter: newConverter, first: StorageVersion(crd)}
	r.Update(crd)
	return r
}

// Update makes the resource follow a newer state of its definition. It must not be called by several goroutines at once.
func (r *Resource) Update(crd *apiextensionsv1.CustomResourceDefinition) {
	old := r.definition.Load()
	d := &definition{crd: withoutSchemas(crd), versions: make(map[string]*Version, len(crd.Spec.Versions))}
	r.addConverter(d, crd, old)
	for i := range crd.Spec.Versions {
		v := &crd.Spec.Versions[i]
		d.versions[v.Name] = r.newVersion(crd, v, d, old)
		for _, f := range v.SelectableFields {
			if !slices.Contains(d.fields, f.JSONPath) {
				d.fields = append(d.fields, f.JSONPath)
			}
		}
	}
	r.definition.Store(d)
	if old != nil && old.converter != nil && old.converter != d.converter {
		old.converter.Close()
	}
}

// withoutSchemas returns a copy of a definition without the schemas of its versions.
func withoutSchemas(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	shallow := *crd
	shallow.ManagedFields = nil
	shallow.Spec.Versions = slices.Clone(crd.Spec.Versions)
	for i := range shallow.Spec.Versions {
		shallow.Spec.Versions[i].Schema = nil
	}
	return shallow.DeepCopy()
}

// newVersion returns a version of a definition. It has the compiled schema of its own earlier state if that said the same, and the epoch of a version with
// the same form.
func (r *Resource) newVersion(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion, d, old *definition) *Version {
	made := &Version{resource: r, kind: apischema.GroupVersionKind{Group: crd.Spec.Group, Version: v.Name, Kind: crd.Status.AcceptedNames.Kind}}
	made.digest, made.form = digests(crd, v)
	if d.converter != nil { // each version has other content, which also depends on the version that is stored
		made.form = sha256.Sum256(slices.Concat(made.form[:], d.conversion[:], []byte(v.Name)))
	}
	if old != nil {
		if before := old.versions[v.Name]; before != nil && before.kind == made.kind && before.digest == made.digest {
			made.schema = before.schema
		}
		made.epoch = old.epochOf(made.form)
	}
	if made.schema == nil {
		made.schema = schema.New(crd, v.Name)
	}
	if made.epoch = cmp.Or(made.epoch, d.epochOf(made.form)); made.epoch == 0 {
		made.epoch = epochs.Add(1)
	}
	return made
}

// epochOf returns the epoch of a form; 0 if no version has it.
func (d *definition) epochOf(form [sha256.Size]byte) uint64 {
	for _, v := range d.versions {
		if v.form == form {
			return v.epoch
		}
	}
	return 0
}

// digests returns the digests of a version and of the form that it gives its objects. A version that cannot be encoded equals no other.
func digests(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) (digest, form [sha256.Size]byte) {
	preserves := []byte{0}
	if crd.Spec.PreserveUnknownFields {
		preserves[0] = 1
	}
	of := func(marshal func() ([]byte, error)) [sha256.Size]byte {
		encoded, err := marshal()
		if err != nil {
			encoded = strconv.AppendUint(nil, epochs.Add(1), 10)
		}
		return sha256.Sum256(append(preserves, encoded...))
	}
	digest = of(v.Marshal)
	if v.Schema == nil {
		return digest, sha256.Sum256(preserves)
	}
	return digest, of(v.Schema.Marshal)
}

// findVersion returns a version of a definition; nil if there is none of that name.
func findVersion(crd *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == name {
			return &crd.Spec.Versions[i]
		}
	}
	return nil
}

// Definition returns the state of the definition that the resource follows. It must not be changed.
func (r *Resource) Definition() *apiextensionsv1.CustomResourceDefinition {
	return r.definition.Load().crd
}

// DropIdle releases what was compiled for the objects of versions that were not used since its last call. It is compiled again when it is needed.
func (r *Resource) DropIdle() {
	for _, v := range r.definition.Load().versions {
		if !v.used.Swap(false) {
			v.schema.Drop()
		}
	}
}

// SelectableFields returns the JSON paths by which objects of any version can be selected. A cache of the objects holds their values in this order.
func (r *Resource) SelectableFields() []string { return r.definition.Load().fields }

// current returns the version as the definition describes it now; the version itself if the definition no longer has it.
func (v *Version) current() *Version {
	if now := v.resource.definition.Load().versions[v.kind.Version]; now != nil {
		return now
	}
	return v
}

// Schema returns what the definition says of objects of the version now.
func (v *Version) Schema() *schema.Schema {
	now := v.current()
	if !now.used.Load() {
		now.used.Store(true)
	}
	return now.schema
}

// Digest returns a digest of what the definition said of the version, names aside.
func (v *Version) Digest() [sha256.Size]byte { return v.digest }

// PreservesUnknownFields reports whether the definition keeps fields that no schema has.
func (v *Version) PreservesUnknownFields() bool {
	return v.resource.Definition().Spec.PreserveUnknownFields
}

// Kind returns the kind of the version's objects.
func (v *Version) Kind() apischema.GroupVersionKind { return v.kind }

// First reports whether it is the version in which objects were stored when the resource was made.
func (v *Version) First() bool { return v.kind.Version == v.resource.first }

// New returns an empty object of the version.
func (v *Version) New() *Object { return &Object{version: v, in: v.kind.Version} }

// prune removes the fields from decoded JSON that the schema does not have.
func (v *Version) prune(root map[string]any, report bool) ([]string, error) {
	return v.Schema().Prune(root, report)
}

// setDefaults brings an object into the form that today's schema gives it: pruned, if it is from the store, and with defaults.
func (v *Version) setDefaults(o *Object) error { return v.current().complete(o) }

// complete is setDefaults by the schema of this state of the definition.
func (v *Version) complete(o *Object) error {
	if o.epoch == v.epoch {
		return nil
	}
	fields, stored, err := o.ownFields()
	if err != nil {
		return err
	}
	if v.used.Store(true); stored {
		if err := v.schema.PruneStored(fields); err != nil {
			return err
		}
	}
	if err := v.schema.Default(fields); err != nil {
		return err
	}
	o.SetFields(fields)
	o.epoch = v.epoch
	return nil
}

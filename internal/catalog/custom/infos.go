package custom

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apischema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	"skiff/internal/catalog"
	"skiff/internal/catalog/custom/schema"
)

// Infos returns the declarations of the versions of the resource that are served, with the accepted names. Each is its own stored resource, and all of
// them share the storage name.
func (r *Resource) Infos() []*catalog.Info {
	d := r.definition.Load()
	var infos []*catalog.Info
	for i := range d.crd.Spec.Versions {
		if v := &d.crd.Spec.Versions[i]; v.Served {
			infos = append(infos, d.info(v))
		}
	}
	return infos
}

// StoredInfo returns the declaration of the version in which objects are stored, whether or not it is served.
func (r *Resource) StoredInfo() *catalog.Info {
	d := r.definition.Load()
	return d.info(findVersion(d.crd, StorageVersion(d.crd)))
}

// StorageVersion returns the name of the version in which objects are stored.
func StorageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			return crd.Spec.Versions[i].Name
		}
	}
	return ""
}

// The verbs of custom resources, in the order of upstream's discovery, and those that it lists while the definition is being deleted. Updates are served
// until the end, so that finalizers can be removed.
var (
	verbs            = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	terminatingVerbs = []string{"delete", "deletecollection", "get", "list", "watch"}
)

// info returns the declaration of a version.
func (d *definition) info(v *apiextensionsv1.CustomResourceDefinitionVersion) *catalog.Info {
	crd, own, names, storage := d.crd, d.versions[v.Name], d.crd.Status.AcceptedNames, StorageVersion(d.crd)
	i := &catalog.Info{
		GVK: own.kind, GVR: apischema.GroupVersionResource{Group: crd.Spec.Group, Version: v.Name, Resource: names.Plural},
		ListKind: names.ListKind, Singular: names.Singular, Short: names.ShortNames, Categories: names.Categories,
		Namespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped, Verbs: verbs, JSONOnly: true,
		StorageName: crd.Spec.Group + "/" + names.Plural, StorageVersion: storage, StoredAsJSON: true,
		AnyFinalizer: true, Generations: true, HasSpec: true, Complete: true,

		New:             func() runtime.Object { return own.New() },
		UnmarshalStored: func(value []byte, o catalog.Object) error { return o.(*Object).UnmarshalStored(value) },
		Name:            validation.NameIsDNSSubdomain,
		Default:         func(o runtime.Object) { _ = own.setDefaults(o.(*Object)) }, // fails only if the schema cannot be compiled, which Validate reports
		PrepareCreate:   func(catalog.Object, catalog.Request) {},
		PrepareUpdate:   func(catalog.Object, catalog.Object) {},
		Normalized:      own.normalized,
		Epoch:           func() uint64 { return own.current().epoch },
		FromNormalized: func(message []byte, epoch uint64) (catalog.Object, error) {
			return erase(own.fromNormalized(message, epoch))
		},
		Converts: own.resource.Converts,
		Convert: func(ctx context.Context, o catalog.Object) (catalog.Object, error) {
			return erase(own.converted(ctx, o.(*Object)))
		},
		AsStored: func(message []byte) (catalog.Object, error) { return erase(own.asStored(message)) },
		ToStorage: func(ctx context.Context, o catalog.Object) (catalog.Object, error) {
			return erase(own.resource.toStorage(ctx, o.(*Object), storage))
		},
		Changed: func(new, old catalog.Object) bool {
			return changed(new.(*Object), old.(*Object), own.Schema().HasStatus())
		},
		Validate: func(o runtime.Object) field.ErrorList { return own.validate(o.(*Object)) },
		ValidateUpdate: func(ctx context.Context, new, old catalog.Object) field.ErrorList {
			return own.validateUpdate(ctx, new.(*Object), old.(*Object))
		},
		RulesRun:      takeRulesRun,
		Warnings:      finalizerWarnings,
		RowConditions: func(catalog.Object) []metav1.TableRowCondition { return nil },
		ToStored:      func(o catalog.Object) catalog.Object { return o },
		FromStored:    func(o catalog.Object) catalog.Object { return o },
	}
	i.Stored = i
	i.DiscoveryVerbs = verbs
	if crd.DeletionTimestamp != nil {
		i.DiscoveryVerbs, i.CreateForbidden = terminatingVerbs, "create not allowed while custom resource definition is terminating"
	}
	if v.Deprecated {
		i.Deprecated = deprecationWarning(crd, v)
	}
	if sub := v.Subresources; sub != nil && sub.Status != nil {
		addStatus(i, own)
	}
	if sub := v.Subresources; sub != nil && sub.Scale != nil {
		i.Scale = scaleInfo(schema.NewScalePaths(sub.Scale))
	}
	for _, path := range d.fields {
		i.Fields = append(i.Fields, fieldInfo(d.declaring(path), path, selectable(v, path)))
	}
	i.Columns = columns(v, own)
	return i
}

// erase returns an object without its type; nil with an error.
func erase(o *Object, err error) (catalog.Object, error) {
	if err != nil {
		return nil, err
	}
	return o, nil
}

// selectable reports whether a version declares that its objects can be selected by a path.
func selectable(v *apiextensionsv1.CustomResourceDefinitionVersion, path string) bool {
	return slices.ContainsFunc(v.SelectableFields, func(f apiextensionsv1.SelectableField) bool { return f.JSONPath == path })
}

// declaring returns the first version that declares that its objects can be selected by a path.
func (d *definition) declaring(path string) *Version {
	for i := range d.crd.Spec.Versions {
		if v := &d.crd.Spec.Versions[i]; selectable(v, path) {
			return d.versions[v.Name]
		}
	}
	return nil
}

// addStatus declares the status subresource.
func addStatus(i *catalog.Info, own *Version) {
	i.ZeroStatus = func(o catalog.Object) { editFields(o.(*Object), schema.DropStatus) }
	i.CopyStatus = func(to, from catalog.Object) {
		old := from.(*Object).Fields()
		editFields(to.(*Object), func(fields map[string]any) { schema.CopyStatus(fields, old) })
	}
	i.RestoreAllButStatus = func(to, from catalog.Object) {
		old := from.(*Object).Fields()
		editFields(to.(*Object), func(fields map[string]any) { schema.KeepAllButStatus(fields, old) })
	}
	i.Status = &catalog.EditInfo{Name: "status", Verbs: []string{"get", "patch", "update"}, ResetFields: []string{"metadata", "spec"},
		PrepareUpdate: keepMetadata,
		ValidateUpdate: func(ctx context.Context, new, old catalog.Object) field.ErrorList {
			return own.validateStatus(ctx, new.(*Object), old.(*Object))
		},
		Warnings: func(catalog.Object, catalog.Object) []string { return nil }}
	i.Edits = append(i.Edits, i.Status)
	i.ResetFields = []string{"status"}
}

// editFields changes a copy of the root of an object's fields, and replaces the fields by it.
func editFields(o *Object, edit func(map[string]any)) {
	fields := make(map[string]any, len(o.Fields())+1)
	for name, value := range o.Fields() {
		fields[name] = value
	}
	edit(fields)
	epoch := o.epoch
	o.SetFields(fields)
	o.epoch = epoch
}

// keepMetadata restores the metadata of an object whose status is written, but for what was recorded about that write.
func keepMetadata(to, from catalog.Object) {
	new, old := to.(*Object), from.(*Object)
	managed, version := new.ManagedFields, new.ResourceVersion
	old.ObjectMeta.DeepCopyInto(&new.ObjectMeta)
	new.ManagedFields, new.ResourceVersion = managed, version
}

// changed reports whether an update changes more than metadata, and status if that has a subresource.
func changed(new, old *Object, hasStatus bool) bool {
	if new.equal(old) {
		return false
	}
	return schema.GenerationChanged(new.Fields(), old.Fields(), hasStatus)
}

// finalizerWarnings returns what a client is warned of that adds finalizers; old is nil on create.
func finalizerWarnings(new, old catalog.Object) []string {
	var before []string
	if old != nil {
		before = old.GetFinalizers()
	}
	return schema.Warnings(new.GetFinalizers(), before)
}

func (v *Version) validate(o *Object) field.ErrorList {
	found := validation.ValidateObjectMetaAccessor(o, v.namespaced(), validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	return v.runRules(context.Background(), o, func(ctx context.Context) field.ErrorList { return v.Schema().Validate(ctx, o.validated(), found...) })
}

// runRules validates an object, and keeps what its rules took.
func (v *Version) runRules(ctx context.Context, o *Object, validate func(context.Context) field.ErrorList) field.ErrorList {
	var u schema.Usage
	errs := validate(schema.WithUsage(ctx, &u))
	if !u.Start.IsZero() {
		o.rulesRun = &catalog.RulesRun{Definition: v.resource.Definition().Name, Start: u.Start, Took: u.Took, Cost: u.Cost}
	}
	return errs
}

func takeRulesRun(o catalog.Object) *catalog.RulesRun {
	obj := o.(*Object)
	run := obj.rulesRun
	obj.rulesRun = nil
	return run
}

func (v *Version) validateUpdate(ctx context.Context, new, old *Object) field.ErrorList {
	found := validation.ValidateObjectMetaAccessorUpdate(new, old, field.NewPath("metadata"))
	return v.runRules(ctx, new, func(ctx context.Context) field.ErrorList {
		return v.Schema().ValidateUpdate(ctx, new.validated(), old.validated(), found...)
	})
}

func (v *Version) validateStatus(ctx context.Context, new, old *Object) field.ErrorList {
	found := validation.ValidateObjectMetaAccessorUpdate(new, old, field.NewPath("metadata"))
	return v.runRules(ctx, new, func(ctx context.Context) field.ErrorList {
		return v.Schema().ValidateStatusUpdate(ctx, new.validated(), old.validated(), found...)
	})
}

func (v *Version) namespaced() bool {
	return v.resource.Definition().Spec.Scope == apiextensionsv1.NamespaceScoped
}

// deprecationWarning returns the warning for requests to a deprecated version.
func deprecationWarning(crd *apiextensionsv1.CustomResourceDefinition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	if v.DeprecationWarning != nil {
		return *v.DeprecationWarning
	}
	text := fmt.Sprintf("%s/%s %s is deprecated", crd.Spec.Group, v.Name, crd.Spec.Names.Kind)
	newest := ""
	for i := range crd.Spec.Versions {
		other := &crd.Spec.Versions[i]
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(v.Name, other.Name) < 0 &&
			(newest == "" || version.CompareKubeAwareVersionStrings(newest, other.Name) < 0) {
			newest = other.Name
		}
	}
	if newest == "" {
		return text
	}
	return fmt.Sprintf("%s; use %s/%s %s", text, crd.Spec.Group, newest, crd.Spec.Names.Kind)
}

// scaleInfo returns the scale subresource that finds its values at the given paths.
func scaleInfo(paths *schema.ScalePaths) *catalog.ScaleInfo {
	return &catalog.ScaleInfo{
		Path: paths.Replicas(), ErrMissing: paths.ErrMissing(), ErrEmpty: paths.ErrEmpty(),
		Get: func(o catalog.Object) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus, error) {
			scale, found, err := paths.Scale(o.(*Object).Fields())
			if err != nil {
				return autoscalingv1.ScaleSpec{}, autoscalingv1.ScaleStatus{}, err
			}
			if !found {
				scale.Spec.Replicas = catalog.UnsetReplicas
			}
			return scale.Spec, scale.Status, nil
		},
		Set: func(o catalog.Object, replicas int32) error {
			fields := runtime.DeepCopyJSON(o.(*Object).Fields())
			if fields == nil {
				fields = map[string]any{} // the object has metadata only
			}
			if err := paths.SetReplicas(fields, replicas); err != nil {
				return err
			}
			editFields(o.(*Object), func(root map[string]any) {
				clear(root)
				for name, value := range fields {
					root[name] = value
				}
			})
			return nil
		},
	}
}

// fieldInfo returns a field by which objects of some version can be selected; only those of this version have a name.
func fieldInfo(declaring *Version, path string, own bool) catalog.FieldInfo {
	f := catalog.FieldInfo{Value: func(o catalog.Object) string {
		fields, err := declaring.Schema().SelectableFields()
		if err != nil {
			return ""
		}
		name := strings.TrimPrefix(path, ".")
		for i := range fields {
			if fields[i].Name == name {
				value, _ := fields[i].Value(o.(*Object).Fields()) // an object without the field has an empty value
				return value
			}
		}
		return ""
	}}
	if own {
		f.Name = strings.TrimPrefix(path, ".")
	}
	return f
}

// columns returns the columns of a version's table. The paths are parsed when the first table is asked for.
func columns(v *apiextensionsv1.CustomResourceDefinitionVersion, own *Version) []catalog.ColumnInfo {
	infos := []catalog.ColumnInfo{nameColumn, ageColumn}
	if len(v.AdditionalPrinterColumns) == 0 {
		return infos
	}
	infos = infos[:1]
	for n, c := range v.AdditionalPrinterColumns {
		at := n + 1 // in schema.Columns, whose first column is the name
		info := catalog.ColumnInfo{
			TableColumnDefinition: metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Priority: c.Priority,
				Description: cmp.Or(c.Description, "Custom resource definition column (in JSONPath format): "+c.JSONPath)},
			Timed: c.Type == "date",
			Cell: func(o catalog.Object, now time.Time) any {
				parsed, err := own.Schema().Columns()
				if err != nil || at >= len(parsed.Definitions) {
					return nil
				}
				if parsed.InFields(at) {
					return parsed.Cell(at, o.(*Object).Fields(), now)
				}
				root, err := o.(*Object).Root()
				if err != nil {
					return nil
				}
				return parsed.Cell(at, root, now)
			},
		}
		if c.JSONPath == ".metadata.creationTimestamp" && c.Type == "date" {
			info.Cell, info.Age = ageColumn.Cell, ageColumn.Age
		}
		infos = append(infos, info)
	}
	return infos
}

// nameColumn and ageColumn are the columns of a version that has none of its own.
var (
	nameColumn = eraseColumn(catalog.NameColumn[Object]())
	ageColumn  = eraseColumn(dateColumn(catalog.AgeColumn[Object]()))
)

// dateColumn gives the age column the type that custom resources have for it.
func dateColumn(c catalog.Column[Object]) catalog.Column[Object] {
	c.Type = "date"
	return c
}

func eraseColumn(c catalog.Column[Object]) catalog.ColumnInfo {
	return catalog.Resource[Object]{Columns: []catalog.Column[Object]{c}}.Info().Columns[0]
}

// equal reports whether two objects have the same fields, apart from the metadata.
func (o *Object) equal(other *Object) bool {
	a, errA := o.JSON()
	b, errB := other.JSON()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}

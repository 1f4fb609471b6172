package catalog

import (
	"context"
	"math"
	"reflect"
	"strings"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is implemented by every type of the catalog: a Kubernetes object with a protobuf encoding.
type Object interface {
	runtime.Object
	metav1.Object
	Marshal() ([]byte, error)
	MarshalTo([]byte) (int, error)
	MarshalToSizedBuffer([]byte) (int, error)
	Unmarshal([]byte) error
	Size() int
}

// Info is a resource as the server reads it: the declaration with its type erased. Resource documents its fields.
// Functions are never nil except where noted.
type Info struct {
	GVK                         schema.GroupVersionKind
	GVR                         schema.GroupVersionResource
	ListKind                    string // the kind of lists: the kind with "List" appended, unless a definition says otherwise
	Singular                    string
	Short, Categories           []string
	Namespaced                  bool
	Verbs                       []string
	DiscoveryVerbs              []string // those that discovery lists: Verbs, unless some are served for those who know of them only
	CreateForbidden             string   // why no object can be created now; empty if objects can
	StorageName, StorageVersion string
	StoredAsJSON                bool
	Virtual, Expires, Uncached  bool
	Deprecated                  string // a warning to send with every response; empty if there is none
	Unenforced                  string // what objects request that skiff does not implement yet; empty if nothing
	AnyFinalizer                bool
	CreateOnUpdate              bool
	UnconditionalUpdate         bool
	OrphanByDefault, HasSpec    bool
	StatusOnCreate, Generations bool // Generations is set if metadata.generation counts changes
	// JSONOnly is set for kinds without a Go type of their own: clients get and send them as JSON or YAML, and patch them by anything but strategic merges.
	JSONOnly bool
	Complete bool
	Missing  string

	New     func() runtime.Object // returns an Object, except for a Virtual resource, whose objects may lack metadata
	Name    func(name string, prefix bool) []string
	Default func(runtime.Object)
	// UnmarshalStored decodes a stored value that is not protobuf. It is nil if the value is the JSON of the type.
	UnmarshalStored func(value []byte, obj Object) error
	PrepareCreate   func(Object, Request)
	PrepareUpdate   func(new, old Object)
	Changed         func(new, old Object) bool
	Validate        func(runtime.Object) field.ErrorList
	ValidateUpdate  func(ctx context.Context, new, old Object) field.ErrorList
	// Initialize takes the place of ValidateUpdate for objects that still wait for their initializers; nil if the same rules apply to them.
	Initialize func(new, old Object) field.ErrorList
	// RulesRun returns, once, what the CEL rules of an object's kind cost in its last validation; nil if none have run. It is nil for kinds without such rules.
	RulesRun      func(Object) *RulesRun
	Warnings      func(new, old Object) []string
	Grace         func(obj Object, asked *int64) int64 // nil if objects are deleted at once
	Deletion      DeletionInfo
	EndsTokens    bool
	KeepDecoded   bool
	Critical      func(Object) bool // nil: never
	RowConditions func(Object) []metav1.TableRowCondition
	Arrange       func(rows []RowInfo) // nil if the rows are in the order of the list
	ResetFields   []string

	// Normalized returns stored messages as the kind's schema of today has them: pruned, with defaults, and in the version of this Info, with the epoch of
	// that schema. It is nil for kinds whose schema does not change while the server runs. Epoch is a number that changes with the schema.
	Normalized func(ctx context.Context, messages [][]byte) (epoch uint64, normalized [][]byte, err error)
	Epoch      func() uint64
	// FromNormalized returns the object of a message that Normalized has returned with the epoch; nil if Normalized is.
	FromNormalized func(message []byte, epoch uint64) (Object, error)

	// Converts reports whether the content of objects differs between the versions of the kind, so that a webhook converts it now; nil: never. The errors of
	// webhooks are *ConversionErrors.
	Converts func() bool
	// Convert returns an object of any version of the kind in the version of this Info; nil if Converts is.
	Convert func(context.Context, Object) (Object, error)
	// ToStorage returns an object in the version in which it is to be stored; nil if there is only one.
	ToStorage func(context.Context, Object) (Object, error)
	// AsStored returns the object of a stored message in the version in which it is stored; nil if Converts is.
	AsStored func(message []byte) (Object, error)

	// The functions below are set for kinds with a status subresource.
	ZeroStatus          func(Object)          // drops the status
	CopyStatus          func(to, from Object) // replaces the status
	RestoreAllButStatus func(new, old Object) // restores everything of old but status and metadata

	Status       *EditInfo // nil if there is no status subresource; also the first of Edits
	Edits        []*EditInfo
	Scale        *ScaleInfo // nil if there is none
	Subresources []Subresource
	Fields       []FieldInfo
	Columns      []ColumnInfo // their cells are those of the stored form

	// Stored is the resource that stores this one: itself, unless this is a View.
	Stored     *Info
	ToStored   func(Object) Object // identity unless a View
	FromStored func(Object) Object
}

// From returns an object that is stored, or is in another version of the kind, in the version of this Info. The conversion webhook of a custom resource is
// called in the context.
func (i *Info) From(ctx context.Context, obj Object) (Object, error) {
	if i.Convert != nil && i.Converts() {
		return i.Convert(ctx, obj)
	}
	return i.FromStored(obj), nil
}

// ConversionError says that an object could not be converted between versions of its kind.
type ConversionError struct{ Err error }

// Error implements error.
func (e *ConversionError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ConversionError) Unwrap() error { return e.Err }

// DeletionInfo is a Deletion with its type erased. Its functions are nil where the declaration has none.
type DeletionInfo struct {
	ReturnsObject, NoDependents bool
	Forbidden                   func(Object) string
	Finalizing                  func(Object) bool
	Mark                        func(Object)
	Warnings                    func(*metav1.DeleteOptions) []string
}

// EditInfo is an Edit with its type erased.
type EditInfo struct {
	Name           string
	Verbs          []string
	PrepareUpdate  func(new, old Object)
	ValidateUpdate func(ctx context.Context, new, old Object) field.ErrorList
	Warnings       func(new, old Object) []string
	ResetFields    []string
}

// ScaleInfo is a Scale with its type erased.
type ScaleInfo struct {
	Path []string // of the replicas in the object
	// Get returns UnsetReplicas for an object that has none.
	Get func(Object) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus, error)
	Set func(obj Object, replicas int32) error

	// What is said of an object without replicas to those who read its scale, and to those who write it and set none; nil where objects always have some.
	ErrMissing, ErrEmpty error
}

// UnsetReplicas is what the scale of an object without replicas has for them until somebody sets some.
const UnsetReplicas int32 = math.MinInt32

// FieldInfo is a Field with its type erased.
type FieldInfo struct {
	Name  string
	Value func(Object) string
}

// ColumnInfo is a Column with its type erased.
type ColumnInfo struct {
	metav1.TableColumnDefinition
	Timed bool
	Cell  func(obj Object, now time.Time) any
	Age   func(obj Object) metav1.Time // nil unless the cell is the time since Age
}

// StorageKind returns the kind under which objects are stored: the resource's kind with its storage version.
func (i *Info) StorageKind() schema.GroupVersionKind {
	kind := i.GVK
	kind.Version = i.StorageVersion
	return kind
}

// Declaration is any Resource or View, whatever its type.
type Declaration interface{ Info() *Info }

// Info returns the declaration with its type erased.
func (r Resource[T]) Info() *Info {
	i := &Info{
		GVK:      schema.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind},
		GVR:      schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Plural},
		ListKind: r.Kind + "List",
		Singular: orElse(r.Singular, strings.ToLower(r.Kind)), Short: r.Short, Categories: r.Categories,
		Namespaced: r.Namespaced, Verbs: r.Verbs, StorageName: orElse(r.StorageName, r.Plural), StorageVersion: orElse(r.StorageVersion, r.Version),
		StoredAsJSON: r.StoredAsJSON, Virtual: r.Virtual, Expires: r.Expires, Uncached: r.Uncached, Deprecated: r.Deprecated, Unenforced: r.Unenforced, AnyFinalizer: r.AnyFinalizer, CreateOnUpdate: r.CreateOnUpdate, UnconditionalUpdate: r.UnconditionalUpdate,
		OrphanByDefault: r.OrphanByDefault, StatusOnCreate: r.StatusOnCreate, Generations: r.Changed != nil,
		HasSpec:  hasField[T]("Spec"),
		Complete: r.Complete, Missing: r.Missing,

		New:            func() runtime.Object { return any(new(T)).(runtime.Object) },
		Name:           r.Name,
		Default:        erase1(r.Default),
		PrepareUpdate:  erase2(r.PrepareUpdate),
		Changed:        func(Object, Object) bool { return false },
		ValidateUpdate: eraseCheck(r.ValidateUpdate),
		Warnings:       eraseWarnings(r.Warnings),
		PrepareCreate:  func(Object, Request) {},
		Validate:       func(runtime.Object) field.ErrorList { return nil },
		RowConditions:  func(Object) []metav1.TableRowCondition { return nil },
		Arrange:        eraseArrange(r.Arrange),
		ResetFields:    r.ResetFields,
		Subresources:   r.Subresources,
		Deletion:       eraseDeletion(r.Deletion),
		EndsTokens:     r.EndsTokens,
		KeepDecoded:    r.KeepDecoded,
		ToStored:       func(o Object) Object { return o },
		FromStored:     func(o Object) Object { return o },
	}
	if len(i.Verbs) == 0 {
		i.Verbs = AllVerbs
	}
	if r.PrepareCreate != nil {
		i.PrepareCreate = func(o Object, req Request) { r.PrepareCreate(any(o).(*T), req) }
	}
	if r.Changed != nil {
		i.Changed = func(new, old Object) bool { return r.Changed(any(new).(*T), any(old).(*T)) }
	}
	if r.Initialize != nil {
		i.Initialize = func(new, old Object) field.ErrorList { return r.Initialize(any(new).(*T), any(old).(*T)) }
	}
	if r.Validate != nil {
		i.Validate = func(o runtime.Object) field.ErrorList { return r.Validate(any(o).(*T)) }
	}
	if r.UnmarshalStored != nil {
		i.UnmarshalStored = func(value []byte, o Object) error { return r.UnmarshalStored(value, any(o).(*T)) }
	}
	if r.Grace != nil {
		i.Grace = func(o Object, asked *int64) int64 { return r.Grace(any(o).(*T), asked) }
	}
	if r.Critical != nil {
		i.Critical = func(o Object) bool { return r.Critical(any(o).(*T)) }
	}
	if r.RowConditions != nil {
		i.RowConditions = func(o Object) []metav1.TableRowCondition { return r.RowConditions(any(o).(*T)) }
	}
	if r.Status != nil {
		status := eraseEdit(*r.Status)
		status.Name = "status"
		if i.HasSpec {
			status.ResetFields = append([]string{"spec"}, status.ResetFields...)
		}
		i.Status = status
		i.ZeroStatus, i.CopyStatus, i.RestoreAllButStatus = statusFunctions[T]()
		i.Edits = append(i.Edits, status)
		i.ResetFields = append([]string{"status"}, i.ResetFields...)
	}
	for _, e := range r.Edits {
		i.Edits = append(i.Edits, eraseEdit(e))
	}
	if s := r.Scale; s != nil {
		i.Scale = &ScaleInfo{
			Path: []string{"spec", "replicas"},
			Get: func(o Object) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus, error) {
				spec, status := s.Get(any(o).(*T))
				return spec, status, nil
			},
			Set: func(o Object, n int32) error {
				s.Set(any(o).(*T), n)
				return nil
			},
		}
	}
	for _, f := range r.Fields {
		i.Fields = append(i.Fields, FieldInfo{Name: f.Name, Value: func(o Object) string { return f.Value(any(o).(*T)) }})
	}
	columns := r.Columns
	if len(columns) == 0 {
		columns = []Column[T]{NameColumn[T](), CreatedAtColumn[T]()}
	}
	for _, c := range columns {
		column := ColumnInfo{
			TableColumnDefinition: metav1.TableColumnDefinition{
				Name: c.Name, Type: orElse(c.Type, "string"), Format: c.Format, Description: c.Description, Priority: c.Priority},
			Timed: c.Timed,
			Cell:  func(o Object, now time.Time) any { return c.Cell(any(o).(*T), now) },
		}
		if c.Age != nil {
			column.Age = func(o Object) metav1.Time { return c.Age(any(o).(*T)) }
		}
		i.Columns = append(i.Columns, column)
	}
	i.DiscoveryVerbs = i.Verbs
	i.Stored = i
	return i
}

// View serves the objects of another resource under a second group version, in the form T. It declares only what
// differs; everything after conversion (strategy, columns, selectors, storage) is the stored resource's.
type View[T, S any] struct {
	Resource[T]              // the names; Default and, if set, Validate and ValidateUpdate apply to the form T
	Of          func() *Info // returns the stored resource
	ToStored    func(*T) *S  // must keep every field, also those that the form S has no field for
	FromStored  func(*S) *T  // must keep every field, also those that the form T has no field for
}

// Info returns the view with its types erased.
func (v View[T, S]) Info() *Info {
	i := v.Resource.Info()
	i.Stored = v.Of()
	i.Columns = i.Stored.Columns
	i.ToStored = func(o Object) Object { return any(v.ToStored(any(o).(*T))).(Object) }
	i.FromStored = func(o Object) Object { return any(v.FromStored(any(o).(*S))).(Object) }
	return i
}

// CreatedAtColumn returns the column with the time when the object was created.
func CreatedAtColumn[T any]() Column[T] {
	return Column[T]{Name: "Created At", Type: "date", Description: metaDoc["creationTimestamp"],
		Cell: func(obj *T, _ time.Time) any {
			return meta(obj).GetCreationTimestamp().UTC().Format(time.RFC3339)
		}}
}

func eraseDeletion[T any](d Deletion[T]) DeletionInfo {
	i := DeletionInfo{ReturnsObject: d.ReturnsObject, NoDependents: d.NoDependents, Warnings: d.Warnings}
	if d.Forbidden != nil {
		i.Forbidden = func(o Object) string { return d.Forbidden(any(o).(*T)) }
	}
	if d.Finalizing != nil {
		i.Finalizing = func(o Object) bool { return d.Finalizing(any(o).(*T)) }
	}
	if d.Mark != nil {
		i.Mark = func(o Object) { d.Mark(any(o).(*T)) }
	}
	return i
}

func eraseEdit[T any](e Edit[T]) *EditInfo {
	i := &EditInfo{Name: e.Name, Verbs: e.Verbs, ResetFields: e.ResetFields,
		PrepareUpdate: erase2(e.PrepareUpdate), ValidateUpdate: eraseCheck(e.ValidateUpdate), Warnings: eraseWarnings(e.Warnings)}
	if len(i.Verbs) == 0 {
		i.Verbs = []string{"get", "patch", "update"}
	}
	return i
}

func erase1[T any](f func(*T)) func(runtime.Object) {
	if f == nil {
		return func(runtime.Object) {}
	}
	return func(o runtime.Object) { f(any(o).(*T)) }
}

func erase2[T any](f func(new, old *T)) func(new, old Object) {
	if f == nil {
		return func(Object, Object) {}
	}
	return func(new, old Object) { f(any(new).(*T), any(old).(*T)) }
}

func eraseCheck[T any](f func(new, old *T) field.ErrorList) func(ctx context.Context, new, old Object) field.ErrorList {
	if f == nil {
		return func(context.Context, Object, Object) field.ErrorList { return nil }
	}
	return func(_ context.Context, new, old Object) field.ErrorList { return f(any(new).(*T), any(old).(*T)) }
}

func eraseWarnings[T any](f func(new, old *T) []string) func(new, old Object) []string {
	if f == nil {
		return func(Object, Object) []string { return nil }
	}
	return func(new, old Object) []string {
		before, _ := any(old).(*T) // nil on create
		return f(any(new).(*T), before)
	}
}

func hasField[T any](name string) bool {
	_, ok := reflect.TypeFor[T]().FieldByName(name)
	return ok
}

func orElse(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

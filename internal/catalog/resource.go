package catalog

import (
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Resource declares one API resource whose Go type is T, a v1 type of k8s.io/api. That type is both what
// travels on the wire and what is stored.
//
// Every function is optional unless its comment says otherwise. Functions that take two objects get the new one first.
type Resource[T any] struct {
	Group, Version string // Group is "" for the core group
	Kind, Plural   string
	Singular       string // the lower-case kind if empty
	Short          []string
	Categories     []string
	Namespaced     bool
	Verbs          []string // AllVerbs if empty
	StorageName    string   // the part of storage keys between /registry/ and the namespace or name; Plural if empty
	StorageVersion string   // the version objects are stored under; Version if empty. Upstream stores new kinds under an older version so that it can be downgraded
	StoredAsJSON   bool     // whether objects are stored as JSON and not as protobuf, as upstream stores kinds of its extension servers
	Virtual        bool     // whether objects are never stored: the server answers requests itself (reviews, bindings)
	Expires        bool     // whether objects expire --event-ttl after their last write
	Uncached       bool     // whether objects are read from the store and not kept in memory: for a kind with many objects that nothing in the server watches; its Fields must be unmodified strings of the object
	Stored         *Info    // set by View: the resource that stores this one
	Deprecated     string   // a warning sent with every response, also to reads: what to use instead
	Unenforced     string   // what objects request that skiff does not implement yet, such as "NetworkPolicies": responses to writes carry a warning that names it

	// UnmarshalStored decodes a stored value that is not protobuf. Without it the value is the JSON of the type.
	UnmarshalStored func(value []byte, obj *T) error

	// Name returns what is wrong with a name (a prefix, if the server will append to it). Required unless Virtual.
	// k8s.io/apimachinery/pkg/api/validation has the usual ones, such as NameIsDNSSubdomain.
	Name func(name string, prefix bool) []string

	// Default fills in what the client left out, exactly as upstream's v1 defaults do. It runs on every decoded
	// request body and on every object read from storage, and must be idempotent and cheap.
	Default func(*T)

	// PrepareCreate clears what a client may not set and sets what the server decides. The server itself sets
	// metadata (name, uid, creationTimestamp, generation) and zeroes Status unless StatusOnCreate.
	PrepareCreate func(*T, Request)
	// PrepareUpdate restores what a client may not change through the main endpoint. The server itself restores
	// metadata and Status, and sets generation.
	PrepareUpdate func(new, old *T)
	// Changed reports whether the desired state differs, which increments metadata.generation. With Changed set the
	// generation starts at 1; without it the server does not set generation. SpecChanged is the usual one.
	Changed func(new, old *T) bool

	// Validate returns what is wrong with a new object besides its ObjectMeta, with upstream's paths and messages.
	Validate func(*T) field.ErrorList
	// ValidateUpdate returns what is wrong with an update besides its ObjectMeta. It must also include the checks of
	// Validate that upstream makes on update; the server does not call Validate then.
	ValidateUpdate func(new, old *T) field.ErrorList
	// Initialize prepares an update of an object that still waits for its initializers, and returns what is wrong with it besides its ObjectMeta. Without it
	// ValidateUpdate does.
	Initialize func(new, old *T) field.ErrorList
	// Warnings returns warnings for the client, sent in Warning headers; old is nil on create.
	Warnings func(new, old *T) []string

	AnyFinalizer        bool // whether finalizers need not be qualified names: upstream does not apply that rule to all kinds
	CreateOnUpdate      bool // whether PUT on a name that does not exist creates the object
	UnconditionalUpdate bool // whether PUT without a resourceVersion is allowed
	OrphanByDefault     bool // whether deletion without a propagation policy orphans dependents

	// Grace returns the grace period in seconds for deleting the object, given the requested one (nil if none). Objects of a
	// resource without Grace are deleted at once.
	Grace func(obj *T, asked *int64) int64

	// Deletion is what deleting an object does that it does not do to objects of other kinds.
	Deletion Deletion[T]
	// EndsTokens says that deleting an object ends the service account tokens that are bound to it: a deletion is answered when the very next
	// request with such a token is refused.
	EndsTokens bool
	// KeepDecoded says that most requests read objects of this kind, so that the server keeps them decoded.
	KeepDecoded bool
	// Critical reports that writes of an object keep nodes or the control plane alive: they go on until the database is full, while others are
	// refused before.
	Critical func(*T) bool

	// Status declares the status subresource: T must have a field named Status. Everything except Status and ObjectMeta is
	// restored from the old object before the edit's PrepareUpdate runs.
	Status         *Edit[T]
	StatusOnCreate bool // whether a client may set status when it creates the object (nodes)
	// Edits are further subresources that update a part of the same object (pods/resize, namespaces/finalize).
	// Nothing is restored before their PrepareUpdate runs.
	Edits []Edit[T]
	Scale *Scale[T]
	// Subresources are the subresources that the server implements elsewhere (pods/log, pods/binding): declared here for discovery.
	Subresources []Subresource

	// ResetFields are the dotted paths that the main endpoint ignores ("status" is implied by Status), for managed fields.
	ResetFields []string

	// Fields are the fields that a field selector may name besides metadata.name and metadata.namespace.
	Fields []Field[T]
	// Columns are the columns of the table that kubectl get shows; Name and Created At if empty.
	Columns []Column[T]
	// Arrange may reorder the rows of a list's table and change their cells. It is not called for the table of
	// a single object or of a watch event.
	Arrange func(rows []Row[T])
	// RowConditions returns the conditions of a row, such as Completed for finished pods.
	RowConditions func(*T) []metav1.TableRowCondition

	// Complete is set, for docs/status.md, if defaults, validation and columns all match upstream's. If it is not,
	// Missing says in a few words what does not match.
	Complete bool
	Missing  string
}

// Deletion is what is particular about deleting objects of a kind. All parts are optional.
type Deletion[T any] struct {
	ReturnsObject bool // the answer is the object; for most kinds it is a Status
	NoDependents  bool // no object has an owner of this kind, so that a propagation policy means nothing
	// Forbidden returns why an object must not be deleted; empty if it may be.
	Forbidden func(*T) string
	// Finalizing reports whether something beside metadata.finalizers, such as a namespace's spec.finalizers, keeps a deleted object from being removed.
	Finalizing func(*T) bool
	// Mark sets what changes, beside the metadata, in an object whose deletion begins.
	Mark func(*T)
	// Warnings returns what a client is warned of that deletes with the given options.
	Warnings func(*metav1.DeleteOptions) []string
}

// AllVerbs are the verbs of a stored resource that does not declare its own.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Request is the part of a create request that PrepareCreate may depend on.
type Request struct {
	User authenticationv1.UserInfo
	Now  time.Time
}

// Edit is a subresource that updates one part of an object.
type Edit[T any] struct {
	Name  string   // "status" if empty
	Verbs []string // get, patch, update if empty
	// PrepareUpdate restores what this endpoint may not change.
	PrepareUpdate  func(new, old *T)
	ValidateUpdate func(new, old *T) field.ErrorList
	Warnings       func(new, old *T) []string
	// ResetFields are the dotted paths this endpoint ignores; for status, "spec" is implied if T has a Spec.
	ResetFields []string
}

// Scale is the scale subresource of a resource that has replicas.
type Scale[T any] struct {
	// Get returns spec and status of the scale; the server fills in its metadata.
	Get func(*T) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus)
	Set func(obj *T, replicas int32)
}

// Subresource is a subresource that the server implements elsewhere.
type Subresource struct {
	Name  string
	Kind  string
	Group string // the kind's group in discovery; the resource's group if empty
	// Version is the kind's version in discovery; the resource's version if empty.
	Version string
	Verbs   []string
}

// Field is a field that a field selector may name.
type Field[T any] struct {
	Name  string
	Value func(*T) string
}

// Column is one column of a table.
type Column[T any] struct {
	Name        string
	Type        string // OpenAPI type: string (if empty), integer, number, boolean
	Format      string // "name" for the object's name
	Description string
	Priority    int32 // 0 is always shown, 1 only with -o wide
	Timed       bool  // whether the cell depends on now, so that it cannot be cached
	Cell        func(obj *T, now time.Time) any
	// Age is set if the cell is Since(Age(obj), now): it can then be rendered without the object.
	Age func(obj *T) metav1.Time
}

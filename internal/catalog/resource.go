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
	StorageName    string   // what stands between /registry/ and the name or namespace in storage; Plural if empty
	StorageVersion string   // the version objects are stored under, if not Version: upstream stores new kinds so that it can go back
	Virtual        bool     // never stored: the server answers it (reviews, bindings)
	Expires        bool     // objects live for --event-ttl after their last write
	Uncached       bool     // objects are read from the store and not kept in memory: for a kind that has many and that nothing in the server follows; its Fields are strings of the object as they are
	Stored         *Info    // set by View: the resource that stores this one
	Deprecated     string   // a warning that goes with every answer, reads included: what to use instead
	Unenforced     string   // what objects ask for that nothing in skiff does yet, such as "NetworkPolicies": writes are answered with a warning that names it

	// Name says what is wrong with a name (a prefix, if the server will append to it). Required unless Virtual.
	// k8s.io/apimachinery/pkg/api/validation has the usual ones, such as NameIsDNSSubdomain.
	Name func(name string, prefix bool) []string

	// Default fills in what the client left out, exactly as upstream's v1 defaults do. It runs on every decoded
	// request body and on every object read from storage, and must be idempotent and cheap.
	Default func(*T)

	// PrepareCreate clears what a client may not set and sets what the server decides. The server itself deals with
	// metadata (name, uid, creationTimestamp, generation) and zeroes Status unless StatusOnCreate.
	PrepareCreate func(*T, Request)
	// PrepareUpdate restores what a client may not change through the main endpoint. Metadata, Status and generation
	// are dealt with by the server.
	PrepareUpdate func(new, old *T)
	// Changed reports whether the desired state differs, which raises metadata.generation. With Changed set the
	// generation starts at 1; without it the server leaves generation alone. SpecChanged is the usual one.
	Changed func(new, old *T) bool

	// Validate returns what is wrong with a new object besides its ObjectMeta, with upstream's paths and messages.
	Validate func(*T) field.ErrorList
	// ValidateUpdate returns what is wrong with an update besides its ObjectMeta. It must also include the checks of
	// Validate that upstream makes on update; the server does not call Validate then.
	ValidateUpdate func(new, old *T) field.ErrorList
	// Warnings are returned to the client in Warning headers; old is nil on create.
	Warnings func(new, old *T) []string

	AnyFinalizer        bool // finalizers need not say whose they are, as everywhere else: upstream has a second rule that not all kinds are held to
	CreateOnUpdate      bool // PUT on a name that does not exist creates it
	UnconditionalUpdate bool // PUT without a resourceVersion is allowed
	OrphanByDefault     bool // deletion without a propagation policy orphans dependents

	// Grace returns the grace period in seconds for deleting the object, given the one asked for (nil if none). A
	// resource without Grace is deleted at once.
	Grace func(obj *T, asked *int64) int64

	// Status declares the status subresource: T has a field called Status. Everything but Status and ObjectMeta is
	// restored from the old object before the edit's own PrepareUpdate runs.
	Status         *Edit[T]
	StatusOnCreate bool // a client may set status when it creates the object (nodes)
	// Edits are further subresources that update a part of the same object (pods/resize, namespaces/finalize).
	// Nothing is restored before their PrepareUpdate runs.
	Edits []Edit[T]
	Scale *Scale[T]
	// Subresources are those the server answers by other means (pods/log, pods/binding): declared here for discovery.
	Subresources []Subresource

	// ResetFields are the dotted paths that the main endpoint ignores ("status" is implied by Status), for managed fields.
	ResetFields []string

	// Fields a field selector may name beside metadata.name and metadata.namespace.
	Fields []Field[T]
	// Columns of the table that kubectl get shows; Name and Created At if empty.
	Columns []Column[T]
	// Arrange sees the rows of a list's table together: it may put them in another order and change their cells. The table of
	// one object, or of a change, is made without it.
	Arrange func(rows []Row[T])
	// RowConditions marks rows, as Completed does for finished pods.
	RowConditions func(*T) []metav1.TableRowCondition

	// Complete says, for docs/status.md, that defaults, validation and columns all match upstream's. If false,
	// Missing says in a few words what does not.
	Complete bool
	Missing  string
}

// AllVerbs is what a stored resource offers unless it says otherwise.
var AllVerbs = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

// Request is what a strategy may know of the request that creates an object.
type Request struct {
	User authenticationv1.UserInfo
	Now  time.Time
}

// Edit is an endpoint that updates one part of an object.
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

// Subresource is an endpoint the server answers by means of its own.
type Subresource struct {
	Name  string
	Kind  string
	Group string // of the kind, as discovery shows it; empty if the resource's own
	// Version of the kind; empty if the resource's own.
	Version string
	Verbs   []string
}

// Field is something a field selector may name.
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
	Timed       bool  // the cell depends on now, so it cannot be kept
	Cell        func(obj *T, now time.Time) any
	// Age, if set, says that the cell is Since(Age(obj), now): it can then be rendered without the object.
	Age func(obj *T) metav1.Time
}

package request

import (
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/codec"
)

// WriteOptions are the parameters that creates, updates and patches share.
type WriteOptions struct {
	DryRun     bool
	Manager    string
	Strictness codec.Strictness
	Force      *bool
}

// MetaKind returns a kind of the group meta.k8s.io, such as DeleteOptions.
func MetaKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: metav1.GroupName, Kind: kind}
}

// ParseWriteOptions reads and validates write options. kind is what errors call them, such as CreateOptions; patch is the type of a patch, empty for
// other writes.
func ParseWriteOptions(q url.Values, kind string, patch types.PatchType) (WriteOptions, error) {
	o := WriteOptions{Strictness: codec.Warn}
	if len(q) == 0 && patch != types.ApplyYAMLPatchType {
		return o, nil
	}
	o.DryRun, o.Manager = DryRun(q["dryRun"]), q.Get("fieldManager")
	if s := q.Get("fieldValidation"); s != "" {
		o.Strictness = codec.Strictness(s)
	}
	if f := q.Get("force"); f != "" {
		b := ParseFlag(f)
		o.Force = &b
	}
	var errs field.ErrorList
	if kind == "PatchOptions" {
		errs = validation.ValidatePatchOptions(&metav1.PatchOptions{DryRun: q["dryRun"], FieldManager: o.Manager, FieldValidation: q.Get("fieldValidation"), Force: o.Force}, patch)
	} else {
		errs = validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: q["dryRun"], FieldManager: o.Manager, FieldValidation: q.Get("fieldValidation")})
	}
	if len(errs) > 0 {
		return o, apierrors.NewInvalid(MetaKind(kind), "", errs)
	}
	return o, nil
}

// ParseListOptions reads the parameters of lists and watches.
func ParseListOptions(q url.Values) (*metav1.ListOptions, error) {
	o := &metav1.ListOptions{}
	if len(q) == 0 {
		return o, nil
	}
	o.LabelSelector, o.FieldSelector = q.Get("labelSelector"), q.Get("fieldSelector")
	o.ResourceVersion, o.ResourceVersionMatch = q.Get("resourceVersion"), metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	o.Continue = q.Get("continue")
	var err error
	if o.Limit, err = ParseInt(q, "limit"); err != nil {
		return nil, err
	}
	if v := q.Get("timeoutSeconds"); v != "" {
		n, err := ParseInt(q, "timeoutSeconds")
		if err != nil {
			return nil, err
		}
		o.TimeoutSeconds = &n
	}
	o.AllowWatchBookmarks = ParseFlag(q.Get("allowWatchBookmarks"))
	if v := q.Get("sendInitialEvents"); v != "" {
		b := ParseFlag(v)
		o.SendInitialEvents = &b
	}
	return o, nil
}

// ParseFlag reads a boolean parameter: every value but "", "false" and "0" is true.
func ParseFlag(s string) bool { return s != "" && s != "false" && s != "0" }

// ParseInt reads an integer parameter; 0 if there is none.
func ParseInt(q url.Values, name string) (int64, error) {
	if !q.Has(name) {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(err.Error())
	}
	return n, nil
}

// DryRun reads the values of the parameter dryRun, of which All is the only valid one.
func DryRun(values []string) bool { return len(values) > 0 && values[0] == metav1.DryRunAll }

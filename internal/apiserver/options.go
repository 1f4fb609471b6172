package apiserver

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

// writeOptions are the parameters that creates, updates and patches share.
type writeOptions struct {
	dryRun     bool
	manager    string
	strictness codec.Strictness
	force      *bool
}

func metaKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: metav1.GroupName, Kind: kind}
}

// parseWriteOptions reads and checks them. kind names them in errors; patch is the patch type, if it is one.
func parseWriteOptions(q url.Values, kind string, patch types.PatchType) (writeOptions, error) {
	o := writeOptions{strictness: codec.Warn}
	if len(q) == 0 && patch != types.ApplyYAMLPatchType {
		return o, nil
	}
	o.dryRun, o.manager = dryRun(q["dryRun"]), q.Get("fieldManager")
	if s := q.Get("fieldValidation"); s != "" {
		o.strictness = codec.Strictness(s)
	}
	if f := q.Get("force"); f != "" {
		b := parseFlag(f)
		o.force = &b
	}
	var errs field.ErrorList
	if kind == "PatchOptions" {
		errs = validation.ValidatePatchOptions(&metav1.PatchOptions{DryRun: q["dryRun"], FieldManager: o.manager, FieldValidation: q.Get("fieldValidation"), Force: o.force}, patch)
	} else {
		errs = validation.ValidateCreateOptions(&metav1.CreateOptions{DryRun: q["dryRun"], FieldManager: o.manager, FieldValidation: q.Get("fieldValidation")})
	}
	if len(errs) > 0 {
		return o, apierrors.NewInvalid(metaKind(kind), "", errs)
	}
	return o, nil
}

// parseListOptions reads the parameters of lists and watches.
func parseListOptions(q url.Values) (*metav1.ListOptions, error) {
	o := &metav1.ListOptions{}
	if len(q) == 0 {
		return o, nil
	}
	o.LabelSelector, o.FieldSelector = q.Get("labelSelector"), q.Get("fieldSelector")
	o.ResourceVersion, o.ResourceVersionMatch = q.Get("resourceVersion"), metav1.ResourceVersionMatch(q.Get("resourceVersionMatch"))
	o.Continue = q.Get("continue")
	var err error
	if o.Limit, err = parseInt(q, "limit"); err != nil {
		return nil, err
	}
	if v := q.Get("timeoutSeconds"); v != "" {
		n, err := parseInt(q, "timeoutSeconds")
		if err != nil {
			return nil, err
		}
		o.TimeoutSeconds = &n
	}
	o.AllowWatchBookmarks = parseFlag(q.Get("allowWatchBookmarks"))
	if v := q.Get("sendInitialEvents"); v != "" {
		b := parseFlag(v)
		o.SendInitialEvents = &b
	}
	return o, nil
}

func parseFlag(s string) bool { return s != "" && s != "false" && s != "0" }

func parseInt(q url.Values, name string) (int64, error) {
	if !q.Has(name) {
		return 0, nil
	}
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(err.Error())
	}
	return n, nil
}

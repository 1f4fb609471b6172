package expressions

import (
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// The names of the variables that expressions of admission see.
const (
	Object          = "object"
	OldObject       = "oldObject"
	Params          = "params"
	Request         = "request"
	NamespaceObject = "namespaceObject"
	Authorizer      = "authorizer"
	RequestResource = "authorizer.requestResource"
	Variables       = "variables"
)

const variablesType = "kubernetes.variables"

var (
	text     = apiservercel.StringType
	number   = apiservercel.IntType
	texts    = apiservercel.NewListType(text, -1)
	instants = apiservercel.TimestampType
)

// RequestType returns the type of the variable request.
func RequestType() *apiservercel.DeclType {
	kind := structure("kubernetes.GroupVersionKind", required("group", text), required("version", text), required("kind", text))
	resource := structure("kubernetes.GroupVersionResource", required("group", text), required("version", text), required("resource", text))
	user := structure("kubernetes.UserInfo", optional("username", text), optional("uid", text), optional("groups", texts),
		optional("extra", apiservercel.NewMapType(text, texts, -1)))
	return structure("kubernetes.AdmissionRequest",
		required("kind", kind), required("resource", resource), optional("subResource", text),
		required("requestKind", kind), required("requestResource", resource), optional("requestSubResource", text),
		required("name", text), optional("namespace", text), required("operation", text), required("userInfo", user),
		optional("dryRun", apiservercel.BoolType), optional("options", apiservercel.DynType))
}

// NamespaceType returns the type of the variable namespaceObject.
func NamespaceType() *apiservercel.DeclType {
	labels := apiservercel.NewMapType(text, text, -1)
	condition := structure("kubernetes.NamespaceCondition", required("status", text), required("type", text),
		required("lastTransitionTime", instants), required("message", text), required("reason", text))
	return structure("kubernetes.Namespace",
		required("metadata", structure("kubernetes.NamespaceMetadata",
			required("name", text), required("generateName", text), required("namespace", text), required("labels", labels), required("annotations", labels),
			required("UID", text), // upstream's spelling: metadata.uid does not compile
			required("creationTimestamp", instants), required("deletionGracePeriodSeconds", number), required("deletionTimestamp", instants),
			required("generation", number), required("resourceVersion", text), required("finalizers", texts))),
		required("spec", structure("kubernetes.NamespaceSpec", required("finalizers", texts))),
		required("status", structure("kubernetes.NamespaceStatus",
			required("conditions", apiservercel.NewListType(condition, -1)), required("phase", text))))
}

func structure(name string, fields ...*apiservercel.DeclField) *apiservercel.DeclType {
	byName := make(map[string]*apiservercel.DeclField, len(fields))
	for _, f := range fields {
		byName[f.Name] = f
	}
	return apiservercel.NewObjectType(name, byName)
}

func required(name string, t *apiservercel.DeclType) *apiservercel.DeclField {
	return apiservercel.NewDeclField(name, t, true, nil, nil)
}

func optional(name string, t *apiservercel.DeclType) *apiservercel.DeclField {
	return apiservercel.NewDeclField(name, t, false, nil, nil)
}

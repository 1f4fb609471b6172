package admissiontest

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/authn"
	"skiff/internal/catalog"
	"skiff/internal/catalog/all"
)

// Create returns the attributes of the creation of an object by the administrator. Tests change what they want different.
func Create(obj catalog.Object) *admission.Attributes {
	return attributes(admission.Create, obj, nil)
}

// Update returns the attributes of an update of an object.
func Update(obj, old catalog.Object) *admission.Attributes {
	return attributes(admission.Update, obj, old)
}

// Delete returns the attributes of the deletion of an object.
func Delete(old catalog.Object) *admission.Attributes { return attributes(admission.Delete, nil, old) }

func attributes(op admission.Operation, obj, old catalog.Object) *admission.Attributes {
	of := obj
	if of == nil {
		of = old
	}
	return &admission.Attributes{Info: Info(of), Operation: op, Namespace: of.GetNamespace(), Name: of.GetName(), Object: obj, Old: old,
		User: authn.Admin(), Warn: func(string) {}}
}

// Info returns the stored resource whose Go type is obj's.
func Info(obj catalog.Object) *catalog.Info {
	for _, info := range all.Resources() {
		if info.Stored == info && reflect.TypeOf(info.New()) == reflect.TypeOf(obj) {
			return info
		}
	}
	panic(fmt.Sprintf("no resource has objects of type %T", obj))
}

// Subresource turns a write into one to the named subresource of of's resource.
func Subresource(a *admission.Attributes, of catalog.Object, name string) *admission.Attributes {
	a.Info, a.Subresource = Info(of), name
	return a
}

// Through runs the plugin's Admit and Validate on a write and returns the first refusal.
func Through(t testing.TB, p admission.Plugin, a *admission.Attributes) error {
	t.Helper()
	chain := admission.NewChain(p)
	stage := func(string) {}
	if err := chain.Admit(context.Background(), a, stage); err != nil {
		return err
	}
	return chain.Validate(context.Background(), a, stage)
}

// Expect fails the test unless the error has the wanted text; an empty text wants no error.
func Expect(t testing.TB, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want != "":
		t.Errorf("no refusal, want %s", want)
	case err != nil && err.Error() != want:
		t.Errorf("refused with  %v\nwant          %s", err, want)
	}
}

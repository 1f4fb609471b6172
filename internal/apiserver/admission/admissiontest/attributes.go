// Package admissiontest makes writes for tests of admission plugins and takes them through one.
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

// Create is the creation of an object by the administrator. Tests change what they want different.
func Create(obj catalog.Object) *admission.Attributes {
	return attributes(admission.Create, obj, nil)
}

// Update is a change of an object.
func Update(obj, old catalog.Object) *admission.Attributes {
	return attributes(admission.Update, obj, old)
}

// Delete is the deletion of an object.
func Delete(old catalog.Object) *admission.Attributes { return attributes(admission.Delete, nil, old) }

func attributes(op admission.Operation, obj, old catalog.Object) *admission.Attributes {
	of := obj
	if of == nil {
		of = old
	}
	return &admission.Attributes{Info: Info(of), Operation: op, Namespace: of.GetNamespace(), Name: of.GetName(), Object: obj, Old: old,
		User: authn.Admin(), Warn: func(string) {}}
}

// Info finds the resource whose objects are of obj's type.
func Info(obj catalog.Object) *catalog.Info {
	for _, info := range all.Resources() {
		if info.Stored == info && reflect.TypeOf(info.New()) == reflect.TypeOf(obj) {
			return info
		}
	}
	panic(fmt.Sprintf("no resource has objects of type %T", obj))
}

// Subresource makes of a write one to a subresource of the resource whose objects are of of's type.
func Subresource(a *admission.Attributes, of catalog.Object, name string) *admission.Attributes {
	a.Info, a.Subresource = Info(of), name
	return a
}

// Through takes a write through a plugin, as far as the first refusal.
func Through(t testing.TB, p admission.Plugin, a *admission.Attributes) error {
	t.Helper()
	chain := admission.NewChain(p)
	stage := func(string) {}
	if err := chain.Admit(context.Background(), a, stage); err != nil {
		return err
	}
	return chain.Validate(context.Background(), a, stage)
}

// Expect compares an error with the text that is wanted, or with none.
func Expect(t testing.TB, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want != "":
		t.Errorf("no refusal, want %s", want)
	case err != nil && err.Error() != want:
		t.Errorf("refused with  %v\nwant          %s", err, want)
	}
}

package oidc

import (
	"encoding/json"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/lazy"

	"skiff/internal/apiserver/authn"
)

// claimsValue returns the variable "claims" of expressions. A claim is decoded when an expression first reads it.
func claimsValue(c claims) *lazy.MapValue {
	m := lazy.NewMapValue(types.NewObjectType("kubernetes.claims"))
	for name, encoded := range c {
		m.Append(name, func(*lazy.MapValue) ref.Val {
			var value any
			if err := json.Unmarshal(encoded, &value); err != nil {
				return types.NewErr("claim %q failed to unmarshal: %w", name, err)
			}
			return nativeValue(value)
		})
	}
	return m
}

// userValue returns the variable "user" of expressions.
func userValue(user *authn.User) *lazy.MapValue {
	extra := make(map[string][]string, len(user.Extra))
	for key, values := range user.Extra {
		extra[key] = values
	}
	m := lazy.NewMapValue(types.NewObjectType("kubernetes.UserInfo"))
	for name, value := range map[string]any{"username": user.Username, "uid": user.UID, "groups": user.Groups, "extra": extra} {
		m.Append(name, func(*lazy.MapValue) ref.Val { return nativeValue(value) })
	}
	return m
}

func nativeValue(value any) ref.Val { return escapable(types.DefaultTypeAdapter.NativeToValue(value)) }

// escapable returns a value whose fields can be selected by names that are not identifiers, in CEL's escaped form: claims.a.b__dot__c is
// the field "b.c" of claims.a, at any depth.
func escapable(value ref.Val) ref.Val {
	switch v := value.(type) {
	case traits.Mapper:
		return escapableMap{v}
	case traits.Lister:
		return escapableList{v}
	}
	return value
}

type escapableMap struct{ traits.Mapper }

func (m escapableMap) Find(key ref.Val) (ref.Val, bool) {
	if name, ok := key.(types.String); ok {
		if unescaped, ok := cel.Unescape(string(name)); ok {
			key = types.String(unescaped)
		}
	}
	value, ok := m.Mapper.Find(key)
	return escapable(value), ok
}

type escapableList struct{ traits.Lister }

func (l escapableList) Get(index ref.Val) ref.Val { return escapable(l.Lister.Get(index)) }

package admission

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// Rooted is implemented by objects that have no Go type, those of custom resources: they are maps and lists.
type Rooted interface {
	runtime.Object
	// Root returns the object with apiVersion, kind and metadata. What is below the root must not be changed.
	Root() (map[string]any, error)
	// SetRoot sets the object, which owns the map then. It drops fields that the object's schema does not have, and returns their paths if report is set.
	SetRoot(root map[string]any, report bool) (unknown []string, err error)
}

// Same reports whether two objects of the same type are equal.
func Same(a, b runtime.Object) bool {
	x, rooted := a.(Rooted)
	if !rooted {
		return apiequality.Semantic.DeepEqual(a, b)
	}
	y, rooted := b.(Rooted)
	if !rooted {
		return false
	}
	left, err := x.Root()
	right, otherErr := y.Root()
	return err == nil && otherErr == nil && apiequality.Semantic.DeepEqual(left, right)
}

package patchlimits

import (
	"sync"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

const (
	// Operations bounds the operations of a JSON patch.
	Operations = 10000
	// Depth bounds how deeply a patch may be nested: the cost of applying it grows with the square of the depth.
	Depth = 500
	// copied bounds what the copy operations of a patch copy.
	copied = 3 << 20
)

// BoundCopies sets the limit, a variable of the library, that keeps a short patch from making a huge object by copying it into itself. It must be called
// before a patch is applied.
var BoundCopies = sync.OnceFunc(func() { jsonpatch.AccumulatedCopySizeLimit = copied })

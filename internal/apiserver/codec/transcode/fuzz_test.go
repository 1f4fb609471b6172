package transcode

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// Whatever the bytes: no panic, and the same JSON as by way of the object, or an error in both.
func FuzzAppendJSON(f *testing.F) {
	types := everyType()
	r := filler{rand.New(rand.NewPCG(1, 2))}
	for i, of := range types {
		obj := reflect.New(of)
		r.fill(obj.Elem(), 2)
		message, err := obj.Interface().(generated).Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(i), message)
	}
	f.Fuzz(func(t *testing.T, i uint16, message []byte) {
		check(t, types[int(i)%len(types)], message)
	})
}

package transcode

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// FuzzAppendJSON checks for any bytes that there is no panic, and that the JSON is that of the reference, or both fail.
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

package catalog

import "reflect"

// statusFunctions returns the functions of Info that concern the status, for a Go type with a field named Status.
func statusFunctions[T any]() (zero func(Object), copyStatus, restoreAllButStatus func(to, from Object)) {
	kind := reflect.TypeFor[T]()
	status := -1
	var others []int // the fields that a write of the status restores
	for f := range kind.NumField() {
		switch kind.Field(f).Name {
		case "Status":
			status = f
		case "TypeMeta", "ObjectMeta":
		default:
			others = append(others, f)
		}
	}
	if status < 0 {
		panic(kind.Name() + " is declared with a status subresource and has no field Status")
	}
	copyFields := func(to, from Object, fields ...int) {
		x, y := reflect.ValueOf(to).Elem(), reflect.ValueOf(from).Elem()
		for _, f := range fields {
			x.Field(f).Set(y.Field(f))
		}
	}
	return func(obj Object) { reflect.ValueOf(obj).Elem().Field(status).SetZero() },
		func(to, from Object) { copyFields(to, from, status) },
		func(to, from Object) { copyFields(to, from, others...) }
}

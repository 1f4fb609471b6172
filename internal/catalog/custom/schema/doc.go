// Package schema is what the schema of one version of a CustomResourceDefinition does to objects: it removes unknown fields, sets defaults,
// validates creates and updates (types, list types, metadata of embedded resources, CEL rules), and reads scale, printer columns and
// selectable fields from JSON paths.
//
// A Schema holds only the encoded version of its definition until it is used. The first use compiles what is needed; Drop releases it.
//
// Most objects are valid, so each of them first passes checks that only say yes or "not sure": check.go for types and values, listtypes.go
// for list types. Only when one of them is not sure do upstream's validators run, which say what is wrong, in upstream's words, and which
// errors an update may ratchet. The checks must therefore never accept what upstream refuses; FuzzSchema compares the two.
//
// CEL rules are compiled and walked here, and not by upstream's Validator, because its adapter of schemas builds a map of all properties
// whenever a rule selects a field.
//
// The package is pure: it must not import other rooms, net/http or a store, and keeps no state besides what it compiled.
package schema

// Package guards has the checks of who may write an object that go beyond authorization and admission: they compare what a user writes with what the
// user may do otherwise. Upstream has them in the storage of these resources. They are asked for each create and update, after mutating admission and
// before validation: see verbs.WriteGuard. Which there are, and in which order, is one list: Register.
//
// It must not import front, nonresource, subresources or the API server itself.
package guards

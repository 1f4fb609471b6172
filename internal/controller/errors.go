package controller

import (
	"errors"
	"slices"
)

// Errors returns the single errors of what was done together.
func Errors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // only what was joined is taken apart
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Errors(e)...)
	}
	return all
}

// Without leaves out errors of which nobody need hear.
func Without(err error, ignore func(error) bool) error {
	return errors.Join(slices.DeleteFunc(Errors(err), ignore)...)
}

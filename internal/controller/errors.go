package controller

import (
	"errors"
	"slices"
)

// Errors returns the single errors of a joined error.
func Errors(err error) []error {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error }) //nolint:errorlint // wrapped errors stay whole
	if !ok {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, Errors(e)...)
	}
	return all
}

// FilterOut removes the errors for which ignore returns true from a joined error.
func FilterOut(err error, ignore func(error) bool) error {
	return errors.Join(slices.DeleteFunc(Errors(err), ignore)...)
}

package catalog

import "time"

// RulesRun is a run of the CEL rules of a kind on an object.
type RulesRun struct {
	Definition string // of the kind
	Start      time.Time
	Took       time.Duration
	Cost       int64 // in the units of the budget that the rules of an object share
}

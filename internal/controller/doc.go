// Package controller is what control loops share. A loop says what it watches, which key a change concerns, and what it decides about a
// key; everything else is done here: queueing, trying again, carrying decisions out, waiting until the caches know of it, telling
// the journey why, recording events, metrics.
//
// A loop is a folder beside this file. Its heart is a pure function from what was observed to a Decision; Loop.Look reads the informers'
// caches and calls it. Loops never write to the API themselves and never keep state that could not be observed again.
package controller

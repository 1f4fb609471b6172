// Package authentication declares the questions "who am I?" and "whose token is this?". They are answered by the server and never
// stored.
package authentication

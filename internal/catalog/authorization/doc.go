// Package authorization declares the questions "may I?", "may they?" and "what may I?". They are answered by the server and never
// stored.
package authorization

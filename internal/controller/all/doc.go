// Package all lists the control loops of a cluster by the names that --controllers takes. The cluster builds the chosen loops from it and runs
// them with controller.Manager.
//
// It must not import the API server, its store or its cache, or another component.
package all

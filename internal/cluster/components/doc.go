// Package components makes the components that run in the API server's process: the control loops, the scheduler and hollow nodes. Each gets a client with the
// user and the permissions that it would have in a process of its own. Package cluster and skifftest both start components by it.
//
// It must not import the API server, its store or its cache: it gets the server as a client.Source.
package components

// Command events creates Events as kubelets and controllers write them, and measures how fast a server creates and lists them.
//
//	events --kubeconfig FILE [--events N] [--from N] [--workers N] [--list]
//
// The Events are in namespace events and stay there. Like kbench it prints a line per measurement: name, value, unit.
//
// It must not import the API server of skiff, its store or its cache: it measures any server over the network.
package main

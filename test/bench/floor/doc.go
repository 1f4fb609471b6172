// Command floor is a server that does nothing but send: it shows how fast an API server could be if it cost nothing, as kbench measures it on
// this machine.
//
//	floor --kubeconfig FILE [--burst N] [--objects N] [--streams N]
//
// It answers the requests of `kbench --only create,get,list,watch`. A created object is sent back as it came and stored nowhere; every get
// returns the same pod, and lists, of --objects pods, are encoded beforehand. Every change is accepted without being parsed, and after --burst of
// them each watcher is sent as many events, encoded beforehand, in one write: with as many as kbench makes (200) that is the least work that a
// client can have with an event.
//
// It must not import the API server of skiff, its store or its cache: it is what they are compared with.
package main

// Package initializers does what the guide wants from initializers, in four ways: with initializers, with webhooks under both failure policies, and with
// policies. A proxy is injected into pods that expose port 80 or have an annotation, a volume with test certificates into all pods of one namespace, and a
// Secret whose values are shorter than 20 characters is refused. Its own test does that on a server with imaginary nodes, test/node on a real one.
//
// It must not import skiff's internal packages: it is a client like any other.
package initializers

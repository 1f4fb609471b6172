// Package config configures package flowcontrol from FlowSchema and PriorityLevelConfiguration objects. It follows them, hands levels and schemas to the Controller
// whenever they change, and writes into the status of a FlowSchema whether its priority level exists. It also keeps the objects that every cluster has: mandatory
// ones are restored, suggested ones are created, and updated unless an administrator has changed them.
//
// Which priority levels a request can have is decided here, which one it gets and when it executes in flowcontrol.
//
// It must not import the API server's root package, its store or its cache: objects are read and written through Store.
package config

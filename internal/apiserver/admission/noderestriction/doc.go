// Package noderestriction is the admission plugin NodeRestriction: a kubelet may write only its own Node, the pods bound to it, and what
// belongs to these. The node authorizer decides first, by the object's name; this plugin decides by what authorization cannot see, the
// content of the write.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package noderestriction

// Package why says why an object is as it is, for `skiff why`: the reason in a sentence, and below it the evidence.
//
// It reads what any client can: the object, its Events, the definitions of webhooks and APIs, and its journey from the server, with the failures that the
// server remembers (package journey). Of all that it makes a subject; a cause looks at the subject and returns what it found. To explain something more,
// add a cause to the list of causes and a situation to that of the tests, which must have one for each: it makes the real thing on a real server.
//
// It must not import any part of a cluster: it talks to the API.
package why

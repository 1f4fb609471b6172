// Package catalogtest plays stories: YAML files of steps that were played against a real upstream API server, whose
// answers were recorded. Run plays the same steps through the catalog's declarations alone, with no server, and
// compares.
//
// A story is a file testdata/stories/NAME.yaml of documents separated by "---" lines. Each document begins with a comment
// line that says what to do with the object below it:
//
//	# create                  POST the object
//	# update                  read the object of that kind and name, apply the document to it as a JSON merge patch, PUT it
//	# update status           the same through a subresource (status, finalize, approval, resize, …)
//
// What stands after the verb and a colon is a remark ("# create: everything wrong at once"). A step that fails does not end
// the story. Namespaced objects live in the namespace "story", which the recorder creates and empties.
//
// The answers are in NAME.golden, written by `go run ./test/record FILE.yaml…` from an upstream server.
package catalogtest

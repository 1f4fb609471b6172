// Package catalogtest replays stories: YAML files of steps that were run against a real upstream API server, whose
// answers were recorded. Run applies the same steps to the catalog's declarations alone, without a server, and
// compares. Only tests import it.
//
// A story is a file testdata/stories/NAME.yaml of documents separated by "---" lines. Each document begins with a comment
// line that says what to do with the object below it:
//
//	# create                  POST the object
//	# update                  read the object of that kind and name, apply the document to it as a JSON merge patch, PUT it
//	# update status           the same through a subresource (status, finalize, approval, resize, …)
//
// The text after the verb and a colon is a remark ("# create: everything wrong at once"). A step that fails does not end
// the story. Namespaced objects are in the namespace "story", which the recorder creates and empties.
//
// The answers are in NAME.golden, written by `go run ./test/record FILE.yaml…` from an upstream server.
//
// It must not import any package of skiff outside the catalog.
package catalogtest

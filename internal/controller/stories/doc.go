// Package stories tests control loops with text files: the objects that exist, and what the loop decides about one of them.
//
//	# A Job that wants two pods at a time and has none starts two.
//	Job pi
//	  spec: {parallelism: 2, completions: 5, ...}
//	decide pi at 10s
//	----
//	create Pod default/pi-*
//	...
//
// Above the line are objects, one per header "Kind [namespace/]name [of Kind/name]" with their YAML indented below (an object "of" another is
// controlled by it), and last the key that is reconciled, at a time after Epoch. The objects are put into the informers' caches; fields that
// are not given have simple defaults (namespace default, uid and resourceVersion, created at Epoch). "then failed: TEXT" after decide calls
// Decision.Then with that error. Below the line is what the loop decides. An empty line ends a story.
//
// With -update the tests write what the loops decide into the files. Review the difference before it is committed.
//
// It must not import the API server, its store or its cache, or another component: stories need nothing but a loop.
package stories

// Command pack writes what skiff is built with: see internal/bundle/build/build.sh.
//
//	pack tree DIR OUT                 a directory as a compressed archive, the same for the same files
//	pack file FILE OUT                a file, compressed
//	pack image DIR NAME OUT           an image built from a directory, as an archive
//	pack notices MODULES OUT FILE...  the licences of modules (lines of path, version and directory) and further texts
//
// It must not import the API server, its store or its cache, nor any component.
package main

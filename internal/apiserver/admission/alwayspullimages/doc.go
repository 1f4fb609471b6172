// Package alwayspullimages is the admission plugin AlwaysPullImages: every container of a pod has the imagePullPolicy Always, so that an image that is on a
// node already runs only for those who may pull it. An update that names no new image is left as it is.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package alwayspullimages

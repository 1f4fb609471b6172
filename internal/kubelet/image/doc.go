// Package image sees to it that the images of containers are there before the containers are made: it pulls them as their policies say, with every
// secret that fits, does not try too often what keeps failing, and says in events what it does, in Kubernetes' words.
package image

// Package resourceclaim is the resourceclaim-controller. It creates the ResourceClaims that pods ask for by template and notes their names in the pods'
// status (pods.go), and takes pods that will not run any more from the claims that are reserved for them, so that the devices are free again (claims.go).
//
// The key of a pod is its name after "pods/", which no claim's name has. Claims of pods that are gone are deleted by the garbage collector; those of pods
// that have ended and still exist, here.
//
// What differs from upstream:
//   - The name of a generated claim is its generateName and a hash of the pod's uid, so that a claim is not created twice.
//   - The names are noted by a strategic merge patch rather than by an apply as ResourceClaimController.
//   - PodGroups are not served, and so are no claims for them: upstream has them off.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package resourceclaim

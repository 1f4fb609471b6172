// Package deployment rolls out pod templates. A Deployment keeps a ReplicaSet for each template that it had; rolling out is scaling the one of
// the current template up and the others down, by the rules of the Deployment's strategy. The pods themselves are the ReplicaSets' business:
// this loop sees only what their status says.
//
// A look makes a plan (plan.go): copies of what was observed, changed to what should be. What is written follows from the differences, so
// each object is written at most once in a look. Which changes are made is decided in decide.go (what kind of look it is), rolling.go,
// recreate.go and scale.go (how many replicas each set gets), newset.go and history.go (templates and revisions), status.go and progress.go.
package deployment

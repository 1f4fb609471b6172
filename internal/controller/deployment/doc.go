// Package deployment rolls out pod templates. A Deployment keeps a ReplicaSet for each template that it had; rolling out is scaling the one of
// the current template up and the others down, by the rules of the Deployment's strategy. The ReplicaSets manage the pods: this loop reads
// only their status.
//
// A reconcile makes a plan (plan.go): copies of what was observed, changed to what should be. What is written follows from the differences, so
// each object is written at most once in a reconcile. Which changes are made is decided in decide.go (which kind of reconcile it is),
// rolling.go, recreate.go and scale.go (how many replicas each set gets), newset.go and history.go (templates and revisions), status.go and
// progress.go.
//
// It must not import the API server, its store or its cache, or another component: components meet only at the API, through client.
package deployment

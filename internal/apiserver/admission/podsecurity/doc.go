// Package podsecurity is the admission plugin PodSecurity, which enforces the Pod Security Standards. The labels
// pod-security.kubernetes.io/enforce, audit and warn of a namespace, or the defaults of the configuration, name a level (privileged,
// baseline, restricted) and a version of it.
//
// Pods that violate the enforced level are refused; pods and workloads that violate the warn level are answered with a warning. A namespace
// with invalid labels is refused, and one whose enforced level becomes stricter is answered with warnings that name the pods in it that
// violate the new level.
//
// What each level forbids is decided by k8s.io/pod-security-admission/policy. Its package admission is not used: it brings
// k8s.io/component-base/metrics.
//
// What differs from upstream: there is no audit log, so violations of the audit level are counted in pod_security_evaluations_total and
// written nowhere.
//
// It must not import the API server's root package, its store, its cache or another plugin: it reads through objects.Reader.
package podsecurity

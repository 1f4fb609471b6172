// Package podtolerationrestriction is the admission plugin PodTolerationRestriction: pods get the default tolerations of their namespace and may have only those of its
// whitelist. Both are annotations of the namespace (scheduler.alpha.kubernetes.io/defaultTolerations and tolerationsWhitelist); for namespaces without them the
// plugin's configuration has them. Pods that are not BestEffort also tolerate memory pressure.
//
// It must not import the API server's root package, its store, its cache or another plugin.
package podtolerationrestriction

// Package pod declares pods, and what all resources with a pod template need: workload resources default and validate the
// template they embed with DefaultTemplate, ValidateTemplate and TemplateWarnings, so that a template is refused for the same
// reasons as the pods that would be created from it.
//
// Package volume validates the sources of volumes; here volumes only matter for what containers mount.
//
// The API server applies these declarations to every request for pods: it defaults, prepares and validates objects with them
// before they are stored.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package pod

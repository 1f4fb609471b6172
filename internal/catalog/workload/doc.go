// Package workload is what the kinds that create pods from a template share: their table columns, the rules that tie a selector
// to a template, numbers that may be percentages, counts in a status.
//
// Packages of the catalog call it when they validate a request or fill a table.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package workload

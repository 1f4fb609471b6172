// Package quantity holds the rules that all resources with amounts share: which resource names exist (cpu, memory,
// hugepages-2Mi, example.com/gpu), where each may be used, and which amounts of it are valid. Pods, limit ranges, quotas,
// nodes, claims and runtime classes validate theirs here, so that one name means the same everywhere.
//
// It must not import any package of skiff outside the catalog, nor net/http or etcd's packages.
package quantity

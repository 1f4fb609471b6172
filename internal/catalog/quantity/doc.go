// Package quantity holds what every resource that speaks of amounts shares: which resource names exist (cpu, memory,
// hugepages-2Mi, example.com/gpu), where each may be used, and which amounts of it make sense. Pods, limit ranges, quotas,
// nodes, claims and runtime classes check theirs here, so that one name means the same everywhere.
package quantity

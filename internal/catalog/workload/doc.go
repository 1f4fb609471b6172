// Package workload is what the kinds that make pods from a template share: their table columns, the rules that tie a selector to a
// template, numbers that may be percentages, counts in a status. Only catalog packages use it.
package workload

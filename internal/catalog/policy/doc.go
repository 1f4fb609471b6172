// Package policy declares pod disruption budgets, which say how many pods of an application may be away at a time.
package policy

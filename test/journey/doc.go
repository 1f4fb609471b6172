// Package journey tests journeys over a whole cluster: every component that does something tells, and what it tells joins into one tree.
package journey

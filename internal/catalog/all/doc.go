// Package all lists every resource of the catalog, in the order in which discovery shows groups. To have a new group served,
// add its package here.
package all

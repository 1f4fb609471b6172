//go:build !linux

package etcd

// trimResident is for Linux, where etcd maps the database with all its pages.
func trimResident(string) {}

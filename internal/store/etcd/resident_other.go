//go:build !linux

package etcd

// trimResident does nothing: only on Linux etcd maps the database with all its pages.
func trimResident(string) {}

package stats

import "time"

// Machine is what the node runs on.
type Machine interface {
	BootTime() time.Time
	// Memory is how many bytes of memory and of swap there are, and how many were set aside for huge pages.
	Memory() (total, swap, huge uint64)
	// FileSystem is the one that a directory is in.
	FileSystem(dir string) (FileSystem, error)
	// Network is what went through the node's interfaces, without those that lead to pods.
	Network() (Network, error)
	// Tasks are how many processes and threads there are, and how many there may be.
	Tasks() (running, limit int64, err error)
}

// FileSystem is the room in a file system, in bytes. Free is more than what is Available where some is kept for root.
type FileSystem struct {
	Capacity, Free, Available uint64
	Inodes, InodesFree        uint64
}

// Network is the interfaces of the node; Default leads out of it.
type Network struct {
	Default    string
	Interfaces []Interface
}

// Interface is what went through an interface.
type Interface struct {
	Name                                 string
	RxBytes, RxErrors, TxBytes, TxErrors uint64
}

package overlay

// Ports returns the UDP ports on which a backend receives packets from other nodes.
func Ports(backend string) []uint16 {
	switch backend {
	case HostGW:
		return nil
	case UDP:
		return []uint16{defaultUDPPort}
	}
	return []uint16{defaultVXLANPort}
}

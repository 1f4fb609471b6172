package cluster

import "testing"

func TestConnectionLimits(t *testing.T) {
	for _, test := range []struct {
		config            ServingConfig
		total, perAddress int
	}{
		{ServingConfig{MaxConnections: 32768}, 32768, 512},
		{ServingConfig{MaxConnections: 1000}, 1000, 256},
		{ServingConfig{MaxConnections: 1000, MaxConnectionsPerAddress: 10}, 1000, 10},
	} {
		if total, perAddress := test.config.connectionLimits(); total != test.total || perAddress != test.perAddress {
			t.Errorf("%d and %d: %d and %d", test.config.MaxConnections, test.config.MaxConnectionsPerAddress, total, perAddress)
		}
	}
	if total, perAddress := (&ServingConfig{}).connectionLimits(); total < 1 || total > maxConnections || perAddress < minPerAddress {
		t.Errorf("by default %d and %d", total, perAddress)
	}
}

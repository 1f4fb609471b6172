package endpoints

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func addresses(n int) []corev1.EndpointAddress {
	var out []corev1.EndpointAddress
	for i := range n {
		out = append(out, corev1.EndpointAddress{IP: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255)})
	}
	return out
}

// Endpoints hold a thousand addresses; ready ones come first, and every subset gets its share.
func TestTruncate(t *testing.T) {
	type size struct{ ready, notReady int }
	for _, c := range []struct {
		name      string
		have      []size
		want      []size
		truncated bool
	}{
		{"all fit", []size{{500, 500}}, []size{{500, 500}}, false},
		{"ready ones only", []size{{1200, 300}}, []size{{1000, 0}}, true},
		{"what is left for the others", []size{{900, 300}}, []size{{900, 100}}, true},
		{"in proportion", []size{{800, 0}, {400, 10}}, []size{{667, 0}, {333, 0}}, true},
		{"the last gets what is left", []size{{1, 0}, {1, 0}, {1200, 0}}, []size{{1, 0}, {1, 0}, {998, 0}}, true},
		{"others in proportion", []size{{500, 600}, {300, 300}}, []size{{500, 134}, {300, 66}}, true},
	} {
		var subsets []corev1.EndpointSubset
		for _, s := range c.have {
			subsets = append(subsets, corev1.EndpointSubset{Addresses: addresses(s.ready), NotReadyAddresses: addresses(s.notReady)})
		}
		got, truncated := truncate(subsets)
		if truncated != c.truncated {
			t.Errorf("%s: truncated is %v", c.name, truncated)
		}
		for i, s := range got {
			if (size{len(s.Addresses), len(s.NotReadyAddresses)}) != c.want[i] {
				t.Errorf("%s: subset %d has %d and %d, not %v", c.name, i, len(s.Addresses), len(s.NotReadyAddresses), c.want[i])
			}
		}
	}
}

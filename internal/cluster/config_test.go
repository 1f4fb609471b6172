package cluster

import (
	"slices"
	"testing"

	"skiff/internal/controller"
)

// Hollow nodes have enough addresses for their pods, unless somebody wants others.
func TestPodCIDRs(t *testing.T) {
	for _, test := range []struct {
		hollow int
		loops  controller.Config
		want   string
	}{
		{0, controller.Config{}, DefaultPodCIDR},
		{100, controller.Config{}, DefaultPodCIDR},
		{1000, controller.Config{}, WidePodCIDR},
		{1000, controller.Config{NodeCIDRMaskSizeIPv4: 27}, DefaultPodCIDR},
		{100, controller.Config{NodeCIDRMaskSizeIPv4: 20}, WidePodCIDR},
		{1, controller.Config{NodeCIDRMaskSizeIPv4: 12}, WidePodCIDR},
		{5000, controller.Config{ClusterCIDRs: []string{"10.1.0.0/16"}}, "10.1.0.0/16"},
	} {
		c := Config{HollowNodes: test.hollow, Loops: test.loops}
		if err := c.Complete(); err != nil {
			t.Fatal(err)
		}
		if got := c.Loops.ClusterCIDRs; !slices.Equal(got, []string{test.want}) {
			t.Errorf("%d hollow nodes, %+v: %v", test.hollow, test.loops, got)
		}
	}
}

package cluster

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kubeletConfiguration is what the kubelet serves at /configz: the fields of a KubeletConfiguration that apply to it.
type kubeletConfiguration struct {
	metav1.TypeMeta
	Address                  string   `json:"address"`
	Port                     int      `json:"port"`
	ClusterDNS               []string `json:"clusterDNS,omitempty"`
	ClusterDomain            string   `json:"clusterDomain"`
	ContainerRuntimeEndpoint string   `json:"containerRuntimeEndpoint"`
	CgroupRoot               string   `json:"cgroupRoot"`
	MaxPods                  int      `json:"maxPods"`
	PodPidsLimit             int64    `json:"podPidsLimit"`
	PodLogsDir               string   `json:"podLogsDir"`
	FailSwapOn               bool     `json:"failSwapOn"`
	FailCgroupV1             bool     `json:"failCgroupV1"`
}

// configuration returns the kubelet's configuration, as /configz serves it.
func (n *node) configuration(a nodeAccess) kubeletConfiguration {
	c, endpoint := n.options.Config, n.options.Config.RuntimeEndpoint
	if n.runtime != nil {
		endpoint = n.runtime.Endpoint()
	}
	return kubeletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		Address:  "0.0.0.0", Port: c.Port, ClusterDNS: dnsAddress(a.ServiceCIDRs), ClusterDomain: a.Domain, ContainerRuntimeEndpoint: endpoint,
		CgroupRoot: n.paths.cgroup, MaxPods: cmp.Or(c.MaxPods, 110), PodPidsLimit: podPidsLimit, PodLogsDir: n.paths.podLogs,
	}
}

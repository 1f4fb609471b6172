package usage

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Reading is what a node and its containers have used until a time.
type Reading struct {
	Node       Count
	Containers []ContainerCount
}

// ContainerCount is what a container of a pod has used.
type ContainerCount struct {
	Namespace, Pod, Container string
	Count
}

// Count is what a group of processes has used until a time.
type Count struct {
	At      time.Time
	Started time.Time     // zero if not known
	CPU     time.Duration // CPU time since it was started
	Memory  uint64        // bytes of its working set
	// Rate is set by nodes that know it themselves, in billionths of a core; CPU does not count then.
	Rate *uint64
}

// maxSummary bounds how much of a kubelet's answer is read: a node with 500 containers sends 1 MB.
const maxSummary = 16 << 20

// ReadSummary reads a kubelet's answer to /stats/summary?only_cpu_and_memory=true. Containers without counts, such as those that have just ended, are left out.
func ReadSummary(r io.Reader) (*Reading, error) {
	limited := &io.LimitedReader{R: r, N: maxSummary}
	var s summary
	if err := json.NewDecoder(limited).Decode(&s); err != nil {
		if limited.N == 0 {
			return nil, fmt.Errorf("the kubelet's answer to /stats/summary is longer than %d bytes", maxSummary)
		}
		return nil, fmt.Errorf("failed to read the kubelet's answer to /stats/summary: %w", err)
	}
	reading := &Reading{}
	node, ok := s.Node.count()
	if !ok {
		return nil, fmt.Errorf("the kubelet's answer to /stats/summary has no CPU time and memory of the node")
	}
	reading.Node = node
	for _, pod := range s.Pods {
		for _, c := range pod.Containers {
			if count, ok := c.count(); ok {
				reading.Containers = append(reading.Containers, ContainerCount{pod.Ref.Namespace, pod.Ref.Name, c.Name, count})
			}
		}
	}
	return reading, nil
}

// summary has the parts of a stats.Summary that count here.
type summary struct {
	Node usageStats `json:"node"`
	Pods []struct {
		Ref struct {
			Name      string `json:"name"`
			Namespace string `json:"namespace"`
		} `json:"podRef"`
		Containers []struct {
			Name string `json:"name"`
			usageStats
		} `json:"containers"`
	} `json:"pods"`
}

type usageStats struct {
	StartTime time.Time `json:"startTime"`
	CPU       *struct {
		Time        time.Time `json:"time"`
		Nanoseconds *uint64   `json:"usageCoreNanoSeconds"`
	} `json:"cpu"`
	Memory *struct {
		WorkingSet *uint64 `json:"workingSetBytes"`
	} `json:"memory"`
}

func (u usageStats) count() (Count, bool) {
	if u.CPU == nil || u.CPU.Nanoseconds == nil || u.Memory == nil || u.Memory.WorkingSet == nil {
		return Count{}, false
	}
	return Count{At: u.CPU.Time, Started: u.StartTime, CPU: time.Duration(*u.CPU.Nanoseconds), Memory: *u.Memory.WorkingSet}, true
}

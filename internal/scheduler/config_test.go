package scheduler

import (
	"strings"
	"testing"
	"time"
)

const configHead = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestDefaultConfig(t *testing.T) {
	c, err := DefaultConfig()
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Profiles) != 1 || c.Profiles[0].SchedulerName != "default-scheduler" || c.Profiles[0].Preemption != defaultPreemptionArgs {
		t.Errorf("profiles: %+v", c.Profiles)
	}
	if c.PodInitialBackoff != time.Second || c.PodMaxBackoff != 10*time.Second || c.PodMaxInUnschedulable != 5*time.Minute || c.LeaderElection.Elect {
		t.Errorf("%+v", c)
	}
}

func TestLoadConfig(t *testing.T) {
	c, err := LoadConfig([]byte(configHead + `
parallelism: 4
percentageOfNodesToScore: 30
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 60
leaderElection: {leaseDuration: 30s, resourceName: mine}
profiles:
- schedulerName: one
  percentageOfNodesToScore: 100
  plugins: {score: {disabled: [{name: ImageLocality}], enabled: [{name: NodeResourcesFit, weight: 7}]}}
- schedulerName: two
  pluginConfig: [{name: DefaultPreemption, args: {minCandidateNodesPercentage: 50}}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if c.PercentageOfNodesToScore != 30 || c.PodInitialBackoff != 2*time.Second || c.PodMaxBackoff != time.Minute {
		t.Errorf("%+v", c)
	}
	if e := c.LeaderElection; !e.Elect || e.LeaseDuration != 30*time.Second || e.RenewDeadline != 10*time.Second || e.Name != "mine" || e.ResourceNamespace != "kube-system" {
		t.Errorf("leader election: %+v", e)
	}
	if len(c.Profiles) != 2 || c.Profiles[0].SchedulerName != "one" || *c.Profiles[0].PercentageOfNodesToScore != 100 {
		t.Fatalf("profiles: %+v", c.Profiles)
	}
	weights := map[string]int64{}
	for _, s := range c.Profiles[0].Scores {
		weights[s.Name()] = s.Weight
	}
	if _, there := weights["ImageLocality"]; there || weights["NodeResourcesFit"] != 7 || weights["TaintToleration"] != 3 {
		t.Errorf("weights: %v", weights)
	}
	if c.Profiles[1].Preemption != (PreemptionArgs{50, 100}) {
		t.Errorf("preemption: %+v", c.Profiles[1].Preemption)
	}
}

func TestBadConfigs(t *testing.T) {
	for config, want := range map[string]string{
		"kind: Pod":                                                       `must be a KubeSchedulerConfiguration`,
		configHead + "profile: []":                                        `unknown field "profile"`,
		configHead + "parallelism: 0":                                     `parallelism: Invalid value: 0: should be an integer value greater than zero`,
		configHead + "percentageOfNodesToScore: 101":                      `percentageOfNodesToScore: Invalid value: 101: not in valid range [0-100]`,
		configHead + "podInitialBackoffSeconds: 0":                        `podInitialBackoffSeconds: Invalid value: 0: must be greater than 0`,
		configHead + "podInitialBackoffSeconds: 11":                       `podMaxBackoffSeconds: Invalid value: 10: must be greater than or equal to PodInitialBackoffSeconds`,
		configHead + "profiles: [{}, {schedulerName: a}]":                 `profiles[0].schedulerName: Required value`,
		configHead + "extenders: [{urlPrefix: http://x}]":                 `extenders: Forbidden: this scheduler calls no extenders`,
		configHead + "leaderElection: {resourceLock: other}":              `leaderElection.resourceLock: Invalid value: "other": resourceLock value must be "leases"`,
		configHead + "leaderElection: {leaseDuration: 5s}":                "leaderElection.leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`",
		configHead + "profiles: [{schedulerName: a}, {schedulerName: a}]": `profiles[1].schedulerName: Duplicate value: "profiles[0].schedulerName"`,
		configHead + "profiles: [{pluginConfig: [{name: DefaultPreemption, args: {minCandidateNodesPercentage: 101}}]}]": `minCandidateNodesPercentage: Invalid value: 101: not in valid range [0, 100]`,
		configHead + "profiles: [{plugins: {filter: {enabled: [{name: NoSuchPlugin}]}}}]":                                `NoSuchPlugin`,
	} {
		if _, err := LoadConfig([]byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwhich should say %s", config, err, want)
		}
	}
}

// A scheduler cannot run with plugins that do not exist, or without a bind plugin.
func TestUselessProfiles(t *testing.T) {
	for config, want := range map[string]string{
		"profiles: [{plugins: {bind: {disabled: [{name: DefaultBinder}]}}}]":     "at least one bind plugin is needed",
		"profiles: [{plugins: {queueSort: {disabled: [{name: PrioritySort}]}}}]": "queue sort",
		"profiles: [{plugins: {multiPoint: {disabled: [{name: '*'}]}}}]":         "",
	} {
		c, err := LoadConfig([]byte(configHead + config))
		if err == nil {
			_, err = newProfile(c.Profiles[0], 0, &numbering{}, &evictions{}, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngives %v\nwhich should say %s", config, err, want)
		}
	}
}

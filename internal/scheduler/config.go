package scheduler

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	configv1alpha1 "k8s.io/component-base/config/v1alpha1"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"sigs.k8s.io/yaml"

	"skiff/internal/client"
	"skiff/internal/scheduling"
)

// Config configures a scheduler. DefaultConfig, LoadConfig and LoadPolicy return one.
type Config struct {
	// Profiles holds one profile per schedulerName.
	Profiles []Profile
	// PercentageOfNodesToScore is the share of nodes that is searched for a pod in clusters of 100 and more; 0: the larger the cluster, the smaller.
	PercentageOfNodesToScore int32
	// PodInitialBackoff is the back-off of a pod after a failed attempt; it doubles each time, up to PodMaxBackoff.
	PodInitialBackoff, PodMaxBackoff time.Duration
	// PodMaxInUnschedulable is how long a pod stays unschedulable before it is retried without an event that may help.
	PodMaxInUnschedulable time.Duration
	LeaderElection        client.Election
}

// Profile holds the plugins for the pods of one schedulerName.
type Profile struct {
	*scheduling.Profile
	Preemption PreemptionArgs
}

// PreemptionArgs bound how many nodes preemption dry-runs on: the larger of the two, or all if there are fewer.
type PreemptionArgs struct {
	MinCandidateNodesPercentage, MinCandidateNodesAbsolute int32
}

var defaultPreemptionArgs = PreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}

// DefaultConfig returns kube-scheduler's defaults, without leader election: a scheduler beside its API server has no rival.
func DefaultConfig() (Config, error) {
	return newConfig(&schedv1.KubeSchedulerConfiguration{})
}

// LoadConfig parses a KubeSchedulerConfiguration, v1, as JSON or YAML. Unknown fields are errors.
func LoadConfig(data []byte) (Config, error) {
	var in schedv1.KubeSchedulerConfiguration
	if err := yaml.UnmarshalStrict(data, &in); err != nil {
		return Config{}, fmt.Errorf("failed to parse the scheduler configuration: %w", err)
	}
	if in.APIVersion != schedv1.SchemeGroupVersion.String() || in.Kind != "KubeSchedulerConfiguration" {
		return Config{}, fmt.Errorf("the scheduler's configuration must be a KubeSchedulerConfiguration of %s, not %q of %q", schedv1.SchemeGroupVersion, in.Kind, in.APIVersion)
	}
	if in.LeaderElection.LeaderElect == nil {
		elect := true
		in.LeaderElection.LeaderElect = &elect
	}
	return newConfig(&in)
}

// LoadPolicy parses a policy file, which configured the predicates and priorities of early schedulers. Its one profile has the given name, or the
// default scheduler's if that is empty.
func LoadPolicy(schedulerName string, data []byte) (Config, error) {
	if schedulerName == "" {
		schedulerName = defaultSchedulerName
	}
	c, err := DefaultConfig()
	if err != nil {
		return Config{}, err
	}
	p, err := scheduling.NewPolicyProfile(schedulerName, data)
	if err != nil {
		return Config{}, fmt.Errorf("failed to parse the scheduler policy: %w", err)
	}
	c.Profiles = []Profile{{p, defaultPreemptionArgs}}
	return c, nil
}

const defaultSchedulerName = "default-scheduler"

func newConfig(in *schedv1.KubeSchedulerConfiguration) (Config, error) {
	c := Config{PodInitialBackoff: time.Second, PodMaxBackoff: 10 * time.Second, PodMaxInUnschedulable: maxUnschedulable, LeaderElection: loadElection(in.LeaderElection)}
	if in.PercentageOfNodesToScore != nil {
		c.PercentageOfNodesToScore = *in.PercentageOfNodesToScore
	}
	if in.PodInitialBackoffSeconds != nil {
		c.PodInitialBackoff = time.Duration(*in.PodInitialBackoffSeconds) * time.Second
	}
	if in.PodMaxBackoffSeconds != nil {
		c.PodMaxBackoff = time.Duration(*in.PodMaxBackoffSeconds) * time.Second
	}
	profiles := in.Profiles
	if len(profiles) == 0 {
		profiles = []schedv1.KubeSchedulerProfile{{}}
	}
	if len(profiles) == 1 && profiles[0].SchedulerName == nil {
		name := defaultSchedulerName
		profiles[0].SchedulerName = &name
	}
	if errs := validate(in, profiles, c); len(errs) > 0 {
		return Config{}, errs.ToAggregate()
	}
	for i := range profiles {
		p, err := scheduling.NewProfile(profiles[i])
		if err != nil {
			return Config{}, err
		}
		args, err := preemptionArgs(field.NewPath("profiles").Index(i), profiles[i])
		if err != nil {
			return Config{}, err
		}
		c.Profiles = append(c.Profiles, Profile{p, args})
	}
	return c, nil
}

func loadElection(from configv1alpha1.LeaderElectionConfiguration) client.Election {
	l := client.DefaultElection("kube-scheduler")
	l.Elect = from.LeaderElect != nil && *from.LeaderElect
	for to, d := range map[*time.Duration]time.Duration{&l.LeaseDuration: from.LeaseDuration.Duration, &l.RenewDeadline: from.RenewDeadline.Duration, &l.RetryPeriod: from.RetryPeriod.Duration} {
		if d != 0 {
			*to = d
		}
	}
	if from.ResourceNamespace != "" {
		l.ResourceNamespace = from.ResourceNamespace
	}
	if from.ResourceName != "" {
		l.Name = from.ResourceName
	}
	return l
}

func validate(in *schedv1.KubeSchedulerConfiguration, profiles []schedv1.KubeSchedulerProfile, c Config) (errs field.ErrorList) {
	if in.ClientConnection.Burst < 0 {
		errs = append(errs, field.Invalid(field.NewPath("clientConnection", "burst"), in.ClientConnection.Burst, "must be non-negative"))
	}
	errs = append(errs, validateElection(&c.LeaderElection, field.NewPath("leaderElection"), in.LeaderElection.ResourceLock)...)
	if in.Parallelism != nil && *in.Parallelism <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("parallelism"), *in.Parallelism, "should be an integer value greater than zero"))
	}
	names := map[string]int{}
	for i := range profiles {
		path := field.NewPath("profiles").Index(i)
		name := profiles[i].SchedulerName
		if name == nil || *name == "" {
			errs = append(errs, field.Required(path.Child("schedulerName"), ""))
		} else if first, ok := names[*name]; ok {
			errs = append(errs, field.Duplicate(path.Child("schedulerName"), field.NewPath("profiles").Index(first).Child("schedulerName").String()))
		} else {
			names[*name] = i
		}
		errs = append(errs, validatePercentage(path.Child("percentageOfNodesToScore"), profiles[i].PercentageOfNodesToScore)...)
	}
	errs = append(errs, validatePercentage(field.NewPath("percentageOfNodesToScore"), in.PercentageOfNodesToScore)...)
	if c.PodInitialBackoff <= 0 {
		errs = append(errs, field.Invalid(field.NewPath("podInitialBackoffSeconds"), *in.PodInitialBackoffSeconds, "must be greater than 0"))
	}
	if c.PodMaxBackoff < c.PodInitialBackoff {
		errs = append(errs, field.Invalid(field.NewPath("podMaxBackoffSeconds"), int64(c.PodMaxBackoff/time.Second), "must be greater than or equal to PodInitialBackoffSeconds"))
	}
	if len(in.Extenders) > 0 {
		errs = append(errs, field.Forbidden(field.NewPath("extenders"), "this scheduler calls no extenders"))
	}
	return errs
}

func validatePercentage(path *field.Path, p *int32) field.ErrorList {
	if p != nil && (*p < 0 || *p > 100) {
		return field.ErrorList{field.Invalid(path, *p, "not in valid range [0-100]")}
	}
	return nil
}

func validateElection(l *client.Election, path *field.Path, lock string) (errs field.ErrorList) {
	if !l.Elect {
		return nil
	}
	if lock != "" && lock != "leases" {
		errs = append(errs, field.Invalid(path.Child("resourceLock"), lock, `resourceLock value must be "leases"`))
	}
	positive := func(child string, d time.Duration) {
		if d <= 0 {
			errs = append(errs, field.Invalid(path.Child(child), d.String(), "must be greater than zero"))
		}
	}
	positive("leaseDuration", l.LeaseDuration)
	positive("renewDeadline", l.RenewDeadline)
	positive("retryPeriod", l.RetryPeriod)
	if l.LeaseDuration <= l.RenewDeadline {
		errs = append(errs, field.Invalid(path.Child("leaseDuration"), l.RenewDeadline.String(), "must be greater than `RenewDeadline`"))
	}
	return errs
}

// preemptionArgs returns the arguments of DefaultPreemption, which is not among the plugins of package scheduling.
func preemptionArgs(path *field.Path, p schedv1.KubeSchedulerProfile) (PreemptionArgs, error) {
	args := defaultPreemptionArgs
	for i, config := range p.PluginConfig {
		if config.Name != defaultPreemption {
			continue
		}
		path = path.Child("pluginConfig").Index(i).Child("args")
		var in schedv1.DefaultPreemptionArgs
		if from, ok := config.Args.Object.(*schedv1.DefaultPreemptionArgs); ok {
			in = *from
		} else if len(config.Args.Raw) > 0 {
			if err := yaml.UnmarshalStrict(config.Args.Raw, &in); err != nil {
				return args, field.Invalid(path, json.RawMessage(config.Args.Raw), err.Error())
			}
		}
		if in.MinCandidateNodesPercentage != nil {
			args.MinCandidateNodesPercentage = *in.MinCandidateNodesPercentage
		}
		if in.MinCandidateNodesAbsolute != nil {
			args.MinCandidateNodesAbsolute = *in.MinCandidateNodesAbsolute
		}
	}
	var errs []error
	if n := args.MinCandidateNodesPercentage; n < 0 || n > 100 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesPercentage"), n, "not in valid range [0, 100]"))
	}
	if n := args.MinCandidateNodesAbsolute; n < 0 {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesAbsolute"), n, "not in valid range [0, inf)"))
	}
	if args == (PreemptionArgs{}) {
		errs = append(errs, field.Invalid(path.Child("minCandidateNodesPercentage"), 0, "cannot be zero at the same time as minCandidateNodesAbsolute"),
			field.Invalid(path.Child("minCandidateNodesAbsolute"), 0, "cannot be zero at the same time as minCandidateNodesPercentage"))
	}
	return args, errors.Join(errs...)
}

package kubectl

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// kind is the kind of object that run creates.
type kind string

const (
	pod                   kind = "Pod"
	deployment            kind = "Deployment"
	job                   kind = "Job"
	cronJob               kind = "CronJob"
	replicationController kind = "ReplicationController"
)

// generators are the values of --generator: those that kubectl has had over the years. Their objects are always of the API version that is
// served today.
var generators = map[string]kind{
	"run/v1":                  replicationController,
	"run-pod/v1":              pod,
	"deployment/v1beta1":      deployment,
	"deployment/apps.v1beta1": deployment,
	"deployment/apps.v1":      deployment,
	"job/v1":                  job,
	"job/v2alpha1":            job,
	"cronjob/v1":              cronJob,
	"cronjob/v1beta1":         cronJob,
	"cronjob/v2alpha1":        cronJob,
	"scheduledjob/v2alpha1":   cronJob,
}

// request is the command line of run.
type request struct {
	image     string
	name      string // "" if it was left out
	restart   string // "" if it was not given
	generator string
	schedule  string
	replicas  int // 1 if it was not given
	stdin     bool
	// guide says that a flag was given that only the guide's run has.
	guide bool
}

// plan is what a request leads to.
type plan struct {
	kind    kind
	name    string
	restart corev1.RestartPolicy
	// upstream says that upstream's run does the same for the request, and is run.
	upstream bool
}

// infer decides what a request creates. A command line that upstream's run accepts means what it means there, a pod, unless it gives --restart:
// from that, and for every other command line, the guide infers the kind.
func infer(r request) (plan, error) {
	restart := corev1.RestartPolicy(r.restart)
	if r.restart != "" && !slices.Contains([]corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}, restart) {
		return plan{}, fmt.Errorf("invalid restart policy: %s, valid values are: Always, OnFailure, Never", r.restart)
	}
	p := plan{name: r.name, restart: restart}
	var err error
	if p.name == "" {
		if p.name, err = nameOf(r.image); err != nil {
			return plan{}, err
		}
	}
	switch {
	case r.generator != "":
		var known bool
		if p.kind, known = generators[r.generator]; !known {
			return plan{}, fmt.Errorf("generator %q not found: there are %s", r.generator, strings.Join(generatorNames(), ", "))
		}
	case r.schedule != "":
		p.kind = cronJob
	case restart == corev1.RestartPolicyNever:
		p.kind = pod
	case restart == corev1.RestartPolicyOnFailure:
		p.kind = job
	case restart == "" && r.name != "" && !r.guide:
		p.kind, p.upstream = pod, true
		return p, nil
	default:
		p.kind = deployment
	}
	p.upstream = p.kind == pod && r.name != "" && !r.guide && restart != ""
	return p, p.complete(r)
}

// complete fills in the restart policy and checks what the API would refuse.
func (p *plan) complete(r request) error {
	policies := map[kind][]corev1.RestartPolicy{ // the first is the default
		pod:                   {corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
		deployment:            {corev1.RestartPolicyAlways},
		replicationController: {corev1.RestartPolicyAlways},
		job:                   {corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
		cronJob:               {corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever},
	}[p.kind]
	if p.restart == "" {
		p.restart = policies[0]
	}
	scales := p.kind == deployment || p.kind == replicationController
	switch {
	case !slices.Contains(policies, p.restart):
		return fmt.Errorf("--restart=%s cannot be had of a %s", p.restart, p.kind)
	case r.schedule != "" && p.kind != cronJob:
		return fmt.Errorf("--schedule cannot be had of a %s", p.kind)
	case r.schedule == "" && p.kind == cronJob:
		return fmt.Errorf("--schedule is required for a %s", p.kind)
	case r.replicas < 0:
		return fmt.Errorf("--replicas must not be negative, found %d", r.replicas)
	case !scales && r.replicas != 1 && r.generator == "":
		return fmt.Errorf("--restart=%s requires that --replicas=1, found %d", p.restart, r.replicas)
	case !scales && r.replicas != 1:
		return fmt.Errorf("--generator=%s requires that --replicas=1, found %d", r.generator, r.replicas)
	case r.stdin && r.replicas != 1:
		return fmt.Errorf("-i/--stdin requires that replicas is 1, found %d", r.replicas)
	}
	return nil
}

func generatorNames() []string {
	var names []string
	for name := range generators {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// checkImage refuses what is not a valid image reference.
func checkImage(image string) error {
	if image == "" {
		return fmt.Errorf("--image is required")
	}
	if !reference.ReferenceRegexp.MatchString(image) {
		return fmt.Errorf("invalid image name %q: %w", image, reference.ErrReferenceInvalidFormat)
	}
	return nil
}

// nameOf returns the name of an object that was given none, from its image: registry.example.com/team/web_server:1.27 is web-server.
func nameOf(image string) (string, error) {
	parts := reference.ReferenceRegexp.FindStringSubmatch(image)
	if parts == nil {
		return "", checkImage(image)
	}
	base := parts[1][strings.LastIndex(parts[1], "/")+1:]
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(base))
	const longest = 63
	name = strings.Trim(name[:min(len(name), longest)], "-")
	if name == "" {
		return "", fmt.Errorf("NAME is required for run: none can be made of the image %q", image)
	}
	return name, nil
}

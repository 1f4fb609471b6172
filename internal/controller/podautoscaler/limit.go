package podautoscaler

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	"k8s.io/utils/ptr"
)

// limited is a number of replicas, and why it is not another.
type limited struct {
	replicas        int32
	reason, message string
}

const (
	mayGrowBy = 2 // without a behavior, a target may grow to so many times its replicas at once,
	mayGrowTo = 4 // or to so many
)

var (
	tooFast = [2]limited{
		{reason: "ScaleDownLimit", message: "the desired replica count is decreasing faster than the maximum scale rate"},
		{reason: "ScaleUpLimit", message: "the desired replica count is increasing faster than the maximum scale rate"},
	}
	tooFew      = limited{reason: "TooFewReplicas", message: "the desired replica count is less than the minimum replica count"}
	tooMany     = limited{reason: "TooManyReplicas", message: "the desired replica count is more than the maximum replica count"}
	withinRange = limited{reason: "DesiredWithinRange", message: "the desired count is within the acceptable range"}
)

func (l limited) at(replicas int32) limited {
	l.replicas = replicas
	return l
}

// limit returns the number of replicas that a proposal comes to: what was proposed lately may hold it back, and then the autoscaler's bounds and rates.
func (e *evaluation) limit(current, proposed int32) int32 {
	stable := e.stabilize(current, proposed)
	if stable.replicas == proposed {
		e.condition(autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size")
	} else {
		e.condition(autoscalingv2.AbleToScale, true, stable.reason, stable.message)
	}
	bound := e.bound(current, stable.replicas)
	e.condition(autoscalingv2.ScalingLimited, bound.replicas != stable.replicas, bound.reason, bound.message)
	return bound.replicas
}

// windows returns for how long past proposals hold back scaling up and down.
func (e *evaluation) windows() (up, down time.Duration) {
	down = e.stabilization
	if b := e.hpa.Spec.Behavior; b != nil {
		seconds := func(rules *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
			if rules == nil || rules.StabilizationWindowSeconds == nil {
				return otherwise
			}
			return time.Duration(*rules.StabilizationWindowSeconds) * time.Second
		}
		up, down = seconds(b.ScaleUp, 0), seconds(b.ScaleDown, down)
	}
	return up, down
}

// stabilize lets a target grow only to the smallest number that was proposed within the window of scaling up, and shrink only to the largest one within
// that of scaling down. It notes the proposal.
func (e *evaluation) stabilize(current, proposed int32) limited {
	up, down := e.windows()
	lowest, highest := proposed, proposed
	for _, p := range e.history.proposals {
		if p.at.After(e.now.Add(-up)) {
			lowest = min(lowest, p.number)
		}
		if p.at.After(e.now.Add(-down)) {
			highest = max(highest, p.number)
		}
	}
	e.history.propose(proposed, e.now, e.now.Add(-max(up, down)))
	if e.hpa.Spec.Behavior != nil && proposed >= current {
		return limited{min(max(current, lowest), highest), "ScaleUpStabilized", "recent recommendations were lower than current one, applying the lowest recent recommendation"}
	}
	held := limited{highest, "ScaleDownStabilized", "recent recommendations were higher than current one, applying the highest recent recommendation"}
	if e.hpa.Spec.Behavior != nil {
		held.replicas = min(max(current, lowest), highest)
	}
	return held
}

// bound brings a number of replicas between the autoscaler's minimum and maximum, and to what its behavior allows at once.
func (e *evaluation) bound(current, wanted int32) limited {
	if e.hpa.Spec.Behavior == nil {
		return e.boundByDefault(current, wanted)
	}
	switch {
	case wanted > current:
		most, why := e.hpa.Spec.MaxReplicas, tooMany
		if rate := max(e.mostAtOnce(current), current); rate < most {
			most, why = rate, tooFast[1]
		}
		if wanted > most {
			return why.at(most)
		}
	case wanted < current:
		least, why := e.minReplicas(), tooFew
		if rate := min(e.leastAtOnce(current), current); rate > least {
			least, why = rate, tooFast[0]
		}
		if wanted < least {
			return why.at(least)
		}
	}
	return withinRange.at(wanted)
}

func (e *evaluation) boundByDefault(current, wanted int32) limited {
	most, why := e.hpa.Spec.MaxReplicas, tooMany
	if rate := int32(min(max(mayGrowBy*int64(current), mayGrowTo), math.MaxInt32)); rate < most {
		most, why = rate, tooFast[1]
	}
	if least := e.minReplicas(); wanted < least {
		return tooFew.at(least)
	}
	if wanted > most {
		return why.at(most)
	}
	return withinRange.at(wanted)
}

// mostAtOnce returns how many replicas the policies of scaling up allow now.
func (e *evaluation) mostAtOnce(current int32) int32 {
	return e.allowed(current, e.hpa.Spec.Behavior.ScaleUp, true, func(start float64, p autoscalingv2.HPAScalingPolicy) float64 {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return math.Ceil(start * (1 + float64(p.Value)/100)) // up, or one replica could never grow
		}
		return start + float64(p.Value)
	})
}

// leastAtOnce returns how few replicas the policies of scaling down allow now.
func (e *evaluation) leastAtOnce(current int32) int32 {
	return e.allowed(current, e.hpa.Spec.Behavior.ScaleDown, false, func(start float64, p autoscalingv2.HPAScalingPolicy) float64 {
		if p.Type == autoscalingv2.PercentScalingPolicy {
			return math.Trunc(start * (1 - float64(p.Value)/100))
		}
		return start - float64(p.Value)
	})
}

// allowed returns the number that rules allow, of those that their policies allow: the one that changes most, or least. Each policy counts from the
// replicas at the start of its period.
func (e *evaluation) allowed(current int32, rules *autoscalingv2.HPAScalingRules, up bool, policy func(start float64, p autoscalingv2.HPAScalingPolicy) float64) int32 {
	choice := autoscalingv2.MaxChangePolicySelect
	if rules != nil {
		choice = ptr.Deref(rules.SelectPolicy, choice)
	}
	if rules == nil || choice == autoscalingv2.DisabledPolicySelect || len(rules.Policies) == 0 {
		return current
	}
	largest := up == (choice != autoscalingv2.MinChangePolicySelect)
	chosen := math.NaN()
	for _, p := range rules.Policies {
		since := e.now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		start := current - sumAfter(e.history.ups, since) + sumAfter(e.history.downs, since)
		allows := policy(float64(start), p)
		switch {
		case math.IsNaN(chosen):
			chosen = allows
		case largest:
			chosen = max(chosen, allows)
		default:
			chosen = min(chosen, allows)
		}
	}
	return int32(max(min(chosen, math.MaxInt32), math.MinInt32))
}

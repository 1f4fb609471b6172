package servicecidr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applymetav1 "k8s.io/client-go/applyconfigurations/meta/v1"
	applynetworkingv1 "k8s.io/client-go/applyconfigurations/networking/v1"

	"skiff/internal/client"
	"skiff/internal/controller"
)

const (
	// finalizer keeps a deleted ServiceCIDR until it is no longer in use.
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// deletionGrace is how long a deleted ServiceCIDR is kept at least, so that API servers have stopped allocating addresses from it.
	deletionGrace = 10 * time.Second
)

// observed holds the state that a decision is made from. all and addresses are set only if the ServiceCIDR is being deleted.
type observed struct {
	cidr      *networkingv1.ServiceCIDR
	all       []*networkingv1.ServiceCIDR // including this one
	addresses []*networkingv1.IPAddress   // the addresses of Services
}

// decide makes a ServiceCIDR ready, or finalizes a deleted one.
func decide(seen observed, now time.Time) controller.Decision {
	cidr := seen.cidr
	if cidr.DeletionTimestamp == nil {
		return makeReady(cidr, now)
	}
	if !slices.Contains(cidr.Finalizers, finalizer) {
		return controller.Nothing
	}
	if inUse(seen) {
		return controller.Decision{Actions: setCondition(cidr, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionFalse,
			Reason:  networkingv1.ServiceCIDRReasonTerminating,
			Message: "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR"}, now)}
	}
	if left := cidr.DeletionTimestamp.Add(deletionGrace).Sub(now); left > 0 {
		return controller.Decision{RequeueAfter: left}
	}
	return controller.Decision{Actions: []controller.Action{changeFinalizer(cidr, "$deleteFromPrimitiveList/finalizers")}}
}

func makeReady(cidr *networkingv1.ServiceCIDR, now time.Time) controller.Decision {
	var actions []controller.Action
	if !slices.Contains(cidr.Finalizers, finalizer) {
		actions = append(actions, changeFinalizer(cidr, "finalizers"))
	}
	ready := setCondition(cidr, metav1.Condition{Type: networkingv1.ServiceCIDRConditionReady, Status: metav1.ConditionTrue, Message: "Kubernetes Service CIDR is ready"}, now)
	if len(ready) == 0 {
		return controller.Decision{Actions: actions}
	}
	return controller.Decision{Actions: append(actions, ready...), Then: func(err error) controller.Decision {
		if !errors.As(err, new(conditionError)) {
			return controller.Decision{Err: err}
		}
		return controller.Decision{Err: err, Actions: []controller.Action{
			controller.Event(cidr, corev1.EventTypeWarning, "KubernetesServiceCIDRError", "The ServiceCIDR Status can not be set to Ready=True")}}
	}}
}

// conditionError is the error of setting a condition.
type conditionError struct{ error }

// Unwrap returns the API's error.
func (e conditionError) Unwrap() error { return e.error }

// changeFinalizer adds or removes the finalizer, without touching those of others.
func changeFinalizer(cidr *networkingv1.ServiceCIDR, directive string) controller.Action {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": cidr.UID, directive: []string{finalizer}}})
	if err != nil {
		panic(fmt.Sprintf("failed to encode finalizer patch: %v", err))
	}
	return controller.Patch(cidr, "", types.StrategicMergePatchType, patch)
}

// setCondition sets a condition, unless it is set already.
func setCondition(cidr *networkingv1.ServiceCIDR, want metav1.Condition, now time.Time) []controller.Action {
	if has := apimeta.FindStatusCondition(cidr.Status.Conditions, want.Type); has != nil && has.Status == want.Status && has.Reason == want.Reason && has.Message == want.Message {
		return nil
	}
	name := cidr.Name
	return []controller.Action{controller.Call(fmt.Sprintf("apply ServiceCIDR %s status %s=%s %s: %s", name, want.Type, want.Status, want.Reason, want.Message),
		func(ctx context.Context, c *client.Client) error {
			condition := applymetav1.Condition().WithType(want.Type).WithStatus(want.Status).WithReason(want.Reason).WithMessage(want.Message).WithLastTransitionTime(metav1.NewTime(now))
			_, err := c.Kubernetes().NetworkingV1().ServiceCIDRs().ApplyStatus(ctx,
				applynetworkingv1.ServiceCIDR(name).WithStatus(applynetworkingv1.ServiceCIDRStatus().WithConditions(condition)),
				metav1.ApplyOptions{FieldManager: loopName, Force: true})
			if err != nil {
				return conditionError{err}
			}
			return nil
		})}
}

// inUse reports whether some Service would be left with an address that no ServiceCIDR contains. It is not in use if others contain all of its ranges.
func inUse(seen observed) bool {
	within := func(p netip.Prefix) bool {
		return slices.ContainsFunc(seen.all, func(other *networkingv1.ServiceCIDR) bool {
			return other.Name != seen.cidr.Name && containsPrefix(other, p)
		})
	}
	ranges := prefixes(seen.cidr)
	if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return !within(p) }) {
		return false
	}
	return slices.ContainsFunc(seen.addresses, func(a *networkingv1.IPAddress) bool {
		ip, err := netip.ParseAddr(a.Name)
		return err == nil && containsAddress(seen.cidr, ip) && !slices.ContainsFunc(seen.all, func(other *networkingv1.ServiceCIDR) bool {
			return other.Name != seen.cidr.Name && containsAddress(other, ip)
		})
	})
}

func prefixes(cidr *networkingv1.ServiceCIDR) (all []netip.Prefix) {
	for _, text := range cidr.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

func containsPrefix(cidr *networkingv1.ServiceCIDR, p netip.Prefix) bool {
	return slices.ContainsFunc(prefixes(cidr), func(outer netip.Prefix) bool { return outer.Overlaps(p) && outer.Bits() <= p.Bits() })
}

// containsAddress reports whether an address is one that Services may get from a ServiceCIDR: not the network address, nor in IPv4 the broadcast address.
func containsAddress(cidr *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes(cidr), func(p netip.Prefix) bool {
		return p.Contains(ip) && ip != p.Addr() && (!ip.Is4() || p.Contains(ip.Next()))
	})
}

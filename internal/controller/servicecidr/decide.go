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
	// finalizer keeps a ServiceCIDR that is in use from going.
	finalizer = "networking.k8s.io/service-cidr-finalizer"
	// deletionGrace is how long a deleted ServiceCIDR is kept at least, so that no API server gives out an address of it any more when it goes.
	deletionGrace = 10 * time.Second
)

// observed is what a decision depends on. What is beside the ServiceCIDR is there only if that is being deleted.
type observed struct {
	cidr      *networkingv1.ServiceCIDR
	all       []*networkingv1.ServiceCIDR // this one included
	addresses []*networkingv1.IPAddress   // of Services
}

// decide makes a ServiceCIDR ready, or lets one go that was deleted.
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

// conditionError says that a condition could not be set.
type conditionError struct{ error }

// Unwrap returns the API's error.
func (e conditionError) Unwrap() error { return e.error }

// changeFinalizer adds the finalizer, or takes it away, without touching those of others.
func changeFinalizer(cidr *networkingv1.ServiceCIDR, directive string) controller.Action {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": cidr.UID, directive: []string{finalizer}}})
	if err != nil {
		panic(fmt.Sprintf("a patch of plain data: %v", err))
	}
	return controller.Patch(cidr, "", types.StrategicMergePatchType, patch)
}

// setCondition sets a condition, unless it is there already.
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

// inUse says whether some Service would be left with an address that no ServiceCIDR contains. That is not so if all of its ranges are within
// others.
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
	return slices.ContainsFunc(prefixes(cidr), func(own netip.Prefix) bool { return own.Overlaps(p) && own.Bits() <= p.Bits() })
}

// containsAddress says whether Services may have an address of a ServiceCIDR: not that of a network, nor in IPv4 that for broadcasts.
func containsAddress(cidr *networkingv1.ServiceCIDR, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes(cidr), func(p netip.Prefix) bool {
		return p.Contains(ip) && ip != p.Addr() && (!ip.Is4() || p.Contains(ip.Next()))
	})
}

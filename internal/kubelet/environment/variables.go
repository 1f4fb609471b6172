package environment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Source is where the ConfigMaps and secrets that a pod names come from. What does not exist is an apierrors.IsNotFound error.
type Source interface {
	ConfigMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*corev1.Secret, error)
}

// Node is what containers may learn about their node.
type Node struct {
	IPs         []string            // its addresses, the first is the main one
	Allocatable corev1.ResourceList // the limits of containers that have none
}

// Input is all that a container's variables depend on.
type Input struct {
	Pod       *corev1.Pod
	Container *corev1.Container // one of the pod's: init, ephemeral or plain
	Source    Source
	Services  []*corev1.Service // of the pod's namespace and of default; more do no harm
	Node      Node
	PodIPs    []string

	// VolumePath finds the directory of one of the pod's volumes on the node, for variables taken from files in it.
	VolumePath func(volume string) (string, error)
}

// Variables returns the variables of a container: those of its envFrom in order of names, its env as declared, then those of services. A name
// stands only once; env wins over envFrom, a later one over an earlier one, and either over services.
func Variables(ctx context.Context, in Input) ([]*runtimeapi.KeyValue, error) {
	if in.Pod.Spec.EnableServiceLinks == nil {
		return nil, errors.New("nil pod.spec.enableServiceLinks encountered, cannot construct envvars")
	}
	services := serviceVariables(in.Services, in.Pod.Namespace, *in.Pod.Spec.EnableServiceLinks)
	objects := objects{ctx: ctx, in: &in, configMaps: map[string]*corev1.ConfigMap{}, secrets: map[string]*corev1.Secret{}}
	values, err := objects.from()
	if err != nil {
		return nil, err
	}
	order := slices.Sorted(maps.Keys(values))
	for _, v := range in.Container.Env {
		value, set, err := objects.value(&v, lookup(values, services))
		if err != nil {
			return nil, err
		}
		if !set {
			continue
		}
		if _, again := values[v.Name]; !again {
			order = append(order, v.Name)
		}
		values[v.Name] = value
	}
	result := make([]*runtimeapi.KeyValue, 0, len(order)+len(services))
	for _, name := range order {
		result = append(result, &runtimeapi.KeyValue{Key: name, Value: []byte(values[name])})
	}
	for _, name := range slices.Sorted(maps.Keys(services)) {
		if _, hidden := values[name]; !hidden {
			result = append(result, &runtimeapi.KeyValue{Key: name, Value: []byte(services[name])})
		}
	}
	return result, nil
}

// objects are the ConfigMaps and secrets that a container's variables name, each fetched once, so that a container sees one version of it.
type objects struct {
	ctx        context.Context
	in         *Input
	configMaps map[string]*corev1.ConfigMap
	secrets    map[string]*corev1.Secret
}

// from collects the variables of envFrom. Every key is taken as it is: names are checked where ConfigMaps and prefixes enter the API.
func (o *objects) from() (map[string]string, error) {
	values := map[string]string{}
	for _, from := range o.in.Container.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			m, err := o.configMap(from.ConfigMapRef.Name, optional(from.ConfigMapRef.Optional))
			if err != nil {
				return nil, err
			}
			for key, value := range m.Data {
				values[from.Prefix+key] = value
			}
		case from.SecretRef != nil:
			s, err := o.secret(from.SecretRef.Name, optional(from.SecretRef.Optional))
			if err != nil {
				return nil, err
			}
			for key, value := range s.Data {
				values[from.Prefix+key] = string(value)
			}
		}
	}
	return values, nil
}

// value returns the value of one declared variable; set is false for one whose optional source has nothing.
func (o *objects) value(v *corev1.EnvVar, known func(string) string) (value string, set bool, err error) {
	if v.Value != "" || v.ValueFrom == nil {
		return Expand(v.Value, known), true, nil
	}
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		value, err = o.in.field(from.FieldRef)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err = o.in.resource(from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref, may := from.ConfigMapKeyRef, optional(from.ConfigMapKeyRef.Optional)
		m, err := o.configMap(ref.Name, may)
		if err != nil {
			return "", false, err
		}
		value, ok := m.Data[ref.Key]
		if !ok && !may {
			return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, o.in.Pod.Namespace, ref.Name)
		}
		return value, ok, nil
	case from.SecretKeyRef != nil:
		ref, may := from.SecretKeyRef, optional(from.SecretKeyRef.Optional)
		s, err := o.secret(ref.Name, may)
		if err != nil {
			return "", false, err
		}
		value, ok := s.Data[ref.Key]
		if !ok && !may {
			return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, o.in.Pod.Namespace, ref.Name)
		}
		return string(value), ok, nil
	case from.FileKeyRef != nil:
		return o.in.fileKey(from.FileKeyRef)
	}
	return "", true, nil
}

// configMap fetches a ConfigMap once. An optional one that does not exist is empty.
func (o *objects) configMap(name string, may bool) (*corev1.ConfigMap, error) {
	if m, ok := o.configMaps[name]; ok {
		return m, nil
	}
	m, err := o.in.Source.ConfigMap(o.ctx, o.in.Pod.Namespace, name)
	if err != nil {
		if may && apierrors.IsNotFound(err) {
			return &corev1.ConfigMap{}, nil // not kept: the next one to name it may insist
		}
		return nil, err
	}
	o.configMaps[name] = m
	return m, nil
}

func (o *objects) secret(name string, may bool) (*corev1.Secret, error) {
	if s, ok := o.secrets[name]; ok {
		return s, nil
	}
	s, err := o.in.Source.Secret(o.ctx, o.in.Pod.Namespace, name)
	if err != nil {
		if may && apierrors.IsNotFound(err) {
			return &corev1.Secret{}, nil
		}
		return nil, err
	}
	o.secrets[name] = s
	return s, nil
}

func optional(b *bool) bool { return b != nil && *b }

// SortIPs picks, from the addresses a runtime reports in any order, the one of the node's main family and then the one of the other.
func (n Node) SortIPs(ips []string) []string {
	first4 := true
	if len(n.IPs) > 0 {
		if main, err := netip.ParseAddr(n.IPs[0]); err == nil {
			first4 = main.Unmap().Is4()
		}
	}
	var sorted []string
	for _, want4 := range []bool{first4, !first4} {
		for _, s := range ips {
			if ip, err := netip.ParseAddr(s); err == nil && ip.Unmap().Is4() == want4 {
				sorted = append(sorted, ip.Unmap().String())
				break
			}
		}
	}
	return sorted
}

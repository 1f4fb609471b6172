package environment

import (
	"net"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// apiService is the one service, of namespace default, whose variables every container gets, links or not: programs find the API by them.
const apiService = "kubernetes"

// serviceVariables returns the variables that tell containers of a namespace where services are.
func serviceVariables(services []*corev1.Service, namespace string, links bool) map[string]string {
	seen := map[string]*corev1.Service{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == corev1.ClusterIPNone || len(s.Spec.Ports) == 0 {
			continue
		}
		switch {
		case s.Namespace == metav1.NamespaceDefault && s.Name == apiService:
			if seen[s.Name] == nil { // one of that name in the pod's own namespace hides it
				seen[s.Name] = s
			}
		case s.Namespace == namespace && links:
			seen[s.Name] = s
		}
	}
	m := map[string]string{}
	for _, s := range seen {
		addService(m, s)
	}
	return m
}

func addService(m map[string]string, s *corev1.Service) {
	prefix := variableName(s.Name)
	m[prefix+"_SERVICE_HOST"] = s.Spec.ClusterIP
	m[prefix+"_SERVICE_PORT"] = strconv.Itoa(int(s.Spec.Ports[0].Port))
	for i, p := range s.Spec.Ports {
		port, protocol := strconv.Itoa(int(p.Port)), string(p.Protocol)
		if protocol == "" {
			protocol = string(corev1.ProtocolTCP)
		}
		if p.Name != "" {
			m[prefix+"_SERVICE_PORT_"+variableName(p.Name)] = port
		}
		url := strings.ToLower(protocol) + "://" + net.JoinHostPort(s.Spec.ClusterIP, port)
		if i == 0 {
			m[prefix+"_PORT"] = url
		}
		link := prefix + "_PORT_" + port + "_" + strings.ToUpper(protocol)
		m[link] = url
		m[link+"_PROTO"] = strings.ToLower(protocol)
		m[link+"_PORT"] = port
		m[link+"_ADDR"] = s.Spec.ClusterIP
	}
}

func variableName(name string) string { return strings.ToUpper(strings.ReplaceAll(name, "-", "_")) }

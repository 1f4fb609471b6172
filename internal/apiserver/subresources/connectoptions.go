package subresources

import (
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/request"
	"skiff/internal/apiserver/verbs"
)

// admitConnect takes a connection through admission. options are those of the connection, which webhooks may change.
func admitConnect(rq *verbs.Request, options runtime.Object) error {
	attributes := rq.AdmissionAttributes(admission.Connect, nil, nil, false)
	attributes.Connection = options
	if err := rq.API.Admission.Admit(rq.Ctx, attributes, rq.Trace.Stage); err != nil {
		return err
	}
	return rq.API.Admission.Validate(rq.Ctx, attributes, rq.Trace.Stage)
}

// streamOptions returns the options of exec, attach or port forwarding that the parameters of a request ask for.
func streamOptions(subresource string, query url.Values) runtime.Object {
	flag := func(name string) bool { return request.ParseFlag(query.Get(name)) }
	switch subresource {
	case "exec":
		return &corev1.PodExecOptions{Stdin: flag("stdin"), Stdout: flag("stdout"), Stderr: flag("stderr"), TTY: flag("tty"), Container: query.Get("container"), Command: query["command"]}
	case "attach":
		return &corev1.PodAttachOptions{Stdin: flag("stdin"), Stdout: flag("stdout"), Stderr: flag("stderr"), TTY: flag("tty"), Container: query.Get("container")}
	}
	options := &corev1.PodPortForwardOptions{}
	for _, list := range query["ports"] {
		for text := range strings.SplitSeq(list, ",") {
			if port, err := strconv.ParseUint(text, 10, 16); err == nil { // of others the kubelet says what is wrong
				options.Ports = append(options.Ports, int32(port))
			}
		}
	}
	return options
}

// parametersOf returns the parameters that ask for options.
func parametersOf(options runtime.Object) url.Values {
	query := url.Values{}
	common := func(stdin, stdout, stderr, tty bool, container string) {
		for name, set := range map[string]bool{"stdin": stdin, "stdout": stdout, "stderr": stderr, "tty": tty} {
			if set {
				query.Set(name, "true")
			}
		}
		if container != "" {
			query.Set("container", container)
		}
	}
	switch o := options.(type) {
	case *corev1.PodExecOptions:
		common(o.Stdin, o.Stdout, o.Stderr, o.TTY, o.Container)
		if len(o.Command) > 0 {
			query["command"] = o.Command
		}
	case *corev1.PodAttachOptions:
		common(o.Stdin, o.Stdout, o.Stderr, o.TTY, o.Container)
	case *corev1.PodPortForwardOptions:
		for _, port := range o.Ports {
			query.Add("ports", strconv.Itoa(int(port)))
		}
	}
	return query
}

// proxyOptions returns the options of a proxy request to a pod, service or node, and where the path is in them.
func proxyOptions(rq *verbs.Request) (options runtime.Object, path *string) {
	switch rq.Route.Plural {
	case "pods":
		o := &corev1.PodProxyOptions{Path: proxiedPath(rq)}
		return o, &o.Path
	case "services":
		o := &corev1.ServiceProxyOptions{Path: proxiedPath(rq)}
		return o, &o.Path
	}
	o := &corev1.NodeProxyOptions{Path: proxiedPath(rq)}
	return o, &o.Path
}

// Sample is an operator as operators are: on controller-runtime, with a kind of its own in two versions. For each Site it keeps a ConfigMap of its pages and
// a Deployment of web servers, and lists all sites in a ConfigMap of its own namespace.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	v1 "sample/api/v1"
	"sample/api/v1alpha1"
)

// sites is the resource of Sites.
var sites = schema.GroupResource{Group: v1.GroupVersion.Group, Resource: "sites"}

func main() {
	namespace := flag.String("namespace", "default", "namespace in which the operator runs")
	name := flag.String("name", "sample", "name of the operator's Service, Secret, webhook configurations, Lease and list of sites")
	flag.Parse()
	ctrl.SetLogger(klog.Background())
	if err := run(ctrl.SetupSignalHandler(), *namespace, *name); err != nil {
		fmt.Fprintln(os.Stderr, "sample:", err)
		os.Exit(1)
	}
}

// run runs the operator until the context ends.
func run(ctx context.Context, namespace, name string) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return err
	}
	certificate, bundle, err := ensureCertificate(ctx, direct, namespace, name)
	if err != nil {
		return err
	}
	if err := publishCertificate(ctx, direct, namespace, name, bundle); err != nil {
		return err
	}

	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:                        scheme,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        ":8081",
		LeaderElection:                true,
		LeaderElectionNamespace:       namespace,
		LeaderElectionID:              name,
		LeaderElectionReleaseOnCancel: true,
		WebhookServer: webhook.NewServer(webhook.Options{Port: 9443, TLSOpts: []func(*tls.Config){func(c *tls.Config) {
			c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }
		}}}),
	})
	if err != nil {
		return err
	}
	if err := manager.AddReadyzCheck("webhooks", manager.GetWebhookServer().StartedChecker()); err != nil {
		return err
	}
	if err := ctrl.NewWebhookManagedBy(manager, &v1.Site{}).WithDefaulter(webhooks{}).WithValidator(webhooks{}).Complete(); err != nil {
		return err
	}
	if err := (&reconciler{Client: manager.GetClient(), directory: client.ObjectKey{Namespace: namespace, Name: name}}).register(manager); err != nil {
		return err
	}
	return manager.Start(ctx)
}

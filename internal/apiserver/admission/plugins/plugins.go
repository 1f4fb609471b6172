package plugins

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/clock"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/alwaysadmit"
	"skiff/internal/apiserver/admission/alwaysdeny"
	"skiff/internal/apiserver/admission/alwayspullimages"
	"skiff/internal/apiserver/admission/certificateapproval"
	"skiff/internal/apiserver/admission/certificatesigning"
	"skiff/internal/apiserver/admission/certificatesubjectrestriction"
	"skiff/internal/apiserver/admission/clustertrustbundleattest"
	"skiff/internal/apiserver/admission/configfile"
	"skiff/internal/apiserver/admission/defaultingressclass"
	"skiff/internal/apiserver/admission/defaultstorageclass"
	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/admission/denyserviceexternalips"
	"skiff/internal/apiserver/admission/eventratelimit"
	"skiff/internal/apiserver/admission/extendedresourcetoleration"
	"skiff/internal/apiserver/admission/imagepolicywebhook"
	"skiff/internal/apiserver/admission/initialization"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/apiserver/admission/limitpodhardantiaffinitytopology"
	"skiff/internal/apiserver/admission/limitranger"
	"skiff/internal/apiserver/admission/namespaceautoprovision"
	"skiff/internal/apiserver/admission/namespaceexists"
	"skiff/internal/apiserver/admission/namespacelifecycle"
	"skiff/internal/apiserver/admission/nodedeclaredfeaturevalidator"
	"skiff/internal/apiserver/admission/noderestriction"
	"skiff/internal/apiserver/admission/ownerreferencespermissionenforcement"
	"skiff/internal/apiserver/admission/persistentvolumeclaimresize"
	"skiff/internal/apiserver/admission/podgroupprotection"
	"skiff/internal/apiserver/admission/podnodeselector"
	"skiff/internal/apiserver/admission/podresizevalidator"
	"skiff/internal/apiserver/admission/podsecurity"
	"skiff/internal/apiserver/admission/podtolerationrestriction"
	"skiff/internal/apiserver/admission/podtopologylabels"
	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/mutating"
	"skiff/internal/apiserver/admission/policy/validating"
	"skiff/internal/apiserver/admission/priority"
	"skiff/internal/apiserver/admission/resourcequota"
	"skiff/internal/apiserver/admission/runtimeclass"
	"skiff/internal/apiserver/admission/serviceaccount"
	"skiff/internal/apiserver/admission/storageobjectinuseprotection"
	"skiff/internal/apiserver/admission/taintnodesbycondition"
	"skiff/internal/apiserver/admission/webhook"
	"skiff/internal/apiserver/admission/webhook/client"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects"
)

// Options hold what plugins need besides the server's objects.
type Options struct {
	// Authorizer is the API server's authorizer.
	Authorizer authz.Authorizer
	// Tolerations are the default tolerationSeconds for nodes that are not ready or unreachable.
	Tolerations defaulttolerationseconds.Options
	// ConfigFile is the path of an AdmissionConfiguration; empty if there is none.
	ConfigFile string
	// Metrics is where plugins register their metrics; nil registers none.
	Metrics prometheus.Registerer
	// Policies are the options of policies in CEL for what is not built in. Their authorizer and metrics are those above.
	Policies policy.Options
	// ResolveService returns HOST:PORT at which a port of a service is reached, for webhooks; if nil, a ready endpoint of its EndpointSlices.
	ResolveService client.Resolve
	// Dial connects to webhook servers; directly if nil.
	Dial client.Dial
	// Usage has what containers have used, for InitialResources; nil if that is not known.
	Usage initialresources.History
	// InitialResources are the flags of InitialResources.
	InitialResources initialresources.Options
	// CreateNamespace creates a namespace through admission, for NamespaceAutoProvision.
	CreateNamespace namespaceautoprovision.Create
	// Mapper returns the resources of a kind, for OwnerReferencesPermissionEnforcement.
	Mapper ownerreferencespermissionenforcement.Mapper
	// Stopping ends when the server stops: plugins close their connections. It may be nil.
	Stopping context.Context
	// Log gets a line for what a person would want to know; nil logs nothing.
	Log *slog.Logger

	// The others are read from ConfigFile.
	podSecurity     podsecurity.Config
	podNodeSelector podnodeselector.Config
	podTolerations  podtolerationrestriction.Config
	events          eventratelimit.Config
	images          imagepolicywebhook.Config
	estimates       initialresources.Config
	credentials     map[string]*client.Credentials // by plugin
}

// registration declares a plugin of Kubernetes.
type registration struct {
	name             string
	enabledByDefault bool
	newPlugin        func(objects.Store, Options) admission.Plugin
}

// ordered lists all plugins of Kubernetes, and one that it had once, in the order in which they run: those that call webhooks and the quota come last.
var ordered = []registration{
	{"AlwaysAdmit", false, func(objects.Store, Options) admission.Plugin { return alwaysadmit.New() }},
	{"NamespaceAutoProvision", false, func(s objects.Store, o Options) admission.Plugin {
		return namespaceautoprovision.New(s, o.CreateNamespace)
	}},
	{"NamespaceLifecycle", true, func(s objects.Store, _ Options) admission.Plugin { return namespacelifecycle.New(namespaces(s)) }},
	{"NamespaceExists", false, func(s objects.Store, _ Options) admission.Plugin { return namespaceexists.New(s) }},
	{"LimitPodHardAntiAffinityTopology", false, func(objects.Store, Options) admission.Plugin { return limitpodhardantiaffinitytopology.New() }},
	{initialresources.Name, false, func(_ objects.Store, o Options) admission.Plugin { return initialresources.New(o.Usage, o.estimates) }}, // until v1.10
	{"LimitRanger", true, func(s objects.Store, _ Options) admission.Plugin { return limitranger.New(s) }},
	{"ServiceAccount", true, func(s objects.Store, _ Options) admission.Plugin { return serviceaccount.New(s) }},
	{"NodeRestriction", false, func(s objects.Store, o Options) admission.Plugin { return noderestriction.New(s, o.Authorizer) }},
	{"TaintNodesByCondition", true, func(objects.Store, Options) admission.Plugin { return taintnodesbycondition.New() }},
	{"AlwaysPullImages", false, func(objects.Store, Options) admission.Plugin { return alwayspullimages.New() }},
	{imagepolicywebhook.Name, false, func(_ objects.Store, o Options) admission.Plugin {
		return imagepolicywebhook.New(o.images, clock.RealClock{}, o.Stopping, o.Log)
	}},
	{podsecurity.Name, true, func(s objects.Store, o Options) admission.Plugin { return podsecurity.New(s, o.podSecurity, o.Metrics) }},
	{podnodeselector.Name, false, func(s objects.Store, o Options) admission.Plugin { return podnodeselector.New(s, o.podNodeSelector) }},
	{"Priority", true, func(s objects.Store, _ Options) admission.Plugin { return priority.New(s) }},
	{"DefaultTolerationSeconds", true, func(_ objects.Store, o Options) admission.Plugin { return defaulttolerationseconds.New(o.Tolerations) }},
	{podtolerationrestriction.Name, false, func(s objects.Store, o Options) admission.Plugin {
		return podtolerationrestriction.New(s, o.podTolerations)
	}},
	{eventratelimit.Name, false, func(_ objects.Store, o Options) admission.Plugin {
		return eventratelimit.New(o.events, clock.RealClock{})
	}},
	{"ExtendedResourceToleration", false, func(objects.Store, Options) admission.Plugin { return extendedresourcetoleration.New() }},
	{"DefaultStorageClass", true, func(s objects.Store, _ Options) admission.Plugin { return defaultstorageclass.New(s) }},
	{"StorageObjectInUseProtection", true, func(objects.Store, Options) admission.Plugin { return storageobjectinuseprotection.New() }},
	{"PodGroupProtection", true, func(objects.Store, Options) admission.Plugin { return podgroupprotection.New() }},
	{"OwnerReferencesPermissionEnforcement", false, func(_ objects.Store, o Options) admission.Plugin {
		return ownerreferencespermissionenforcement.New(o.Authorizer, o.Mapper)
	}},
	{"PersistentVolumeClaimResize", true, func(s objects.Store, _ Options) admission.Plugin { return persistentvolumeclaimresize.New(s) }},
	{"RuntimeClass", true, func(s objects.Store, _ Options) admission.Plugin { return runtimeclass.New(s) }},
	{"CertificateApproval", true, func(_ objects.Store, o Options) admission.Plugin { return certificateapproval.New(o.Authorizer) }},
	{"CertificateSigning", true, func(_ objects.Store, o Options) admission.Plugin { return certificatesigning.New(o.Authorizer) }},
	{"ClusterTrustBundleAttest", true, func(_ objects.Store, o Options) admission.Plugin { return clustertrustbundleattest.New(o.Authorizer) }},
	{"CertificateSubjectRestriction", true, func(objects.Store, Options) admission.Plugin { return certificatesubjectrestriction.New() }},
	{"DefaultIngressClass", true, func(s objects.Store, _ Options) admission.Plugin { return defaultingressclass.New(s) }},
	{"DenyServiceExternalIPs", false, func(objects.Store, Options) admission.Plugin { return denyserviceexternalips.New() }},
	{"PodTopologyLabels", true, func(s objects.Store, _ Options) admission.Plugin { return podtopologylabels.New(s) }},
	{"NodeDeclaredFeatureValidator", true, func(s objects.Store, _ Options) admission.Plugin { return nodedeclaredfeaturevalidator.New(s) }},
	{"PodResizeValidator", true, func(s objects.Store, _ Options) admission.Plugin { return podresizevalidator.New(s) }},
	{mutating.Name, true, func(s objects.Store, o Options) admission.Plugin { return mutating.New(s, o.policies()) }},
	{webhook.MutatingName, true, func(s objects.Store, o Options) admission.Plugin {
		return webhook.NewMutating(o.webhooks(s, webhook.MutatingName))
	}},
	{admission.InitializersPlugin, true, func(s objects.Store, o Options) admission.Plugin { return initialization.New(s, o.Authorizer) }}, // until v1.13
	{validating.Name, true, func(s objects.Store, o Options) admission.Plugin { return validating.New(s, o.policies()) }},
	{webhook.ValidatingName, true, func(s objects.Store, o Options) admission.Plugin {
		return webhook.NewValidating(o.webhooks(s, webhook.ValidatingName))
	}},
	{"ResourceQuota", true, func(s objects.Store, _ Options) admission.Plugin { return resourcequota.New(s) }},
	{"AlwaysDeny", false, func(objects.Store, Options) admission.Plugin { return alwaysdeny.New() }},
}

// Names returns the plugins in order, for the help of the flags.
func Names() []string { return names(func(registration) bool { return true }) }

// On returns the plugins that are enabled by default, in order.
func On() []string { return names(func(p registration) bool { return p.enabledByDefault }) }

func names(which func(registration) bool) []string {
	var list []string
	for _, p := range ordered {
		if which(p) {
			list = append(list, p.name)
		}
	}
	return list
}

// New returns the enabled plugins in order. enable and disable are the flags --enable-admission-plugins and --disable-admission-plugins.
func New(enable, disable []string, s objects.Store, o Options) ([]admission.Plugin, error) {
	if err := check(enable, disable); err != nil {
		return nil, err
	}
	var enabled []registration
	for _, p := range ordered {
		if p.enabledByDefault && !slices.Contains(disable, p.name) || slices.Contains(enable, p.name) {
			enabled = append(enabled, p)
		}
	}
	if err := o.readConfig(enabled); err != nil {
		return nil, err
	}
	var plugins []admission.Plugin
	for _, p := range enabled {
		if o.Log != nil && slices.Contains(deprecated, p.name) {
			o.Log.Warn("the admission plugin is deprecated: remove it from --enable-admission-plugins", "plugin", p.name)
		}
		plugins = append(plugins, p.newPlugin(s, o))
	}
	return plugins, nil
}

// deprecated are the plugins that upstream has deprecated.
var deprecated = []string{"AlwaysAdmit", "AlwaysDeny"}

// policies returns the options of policies in CEL.
func (o *Options) policies() policy.Options {
	p := o.Policies
	p.Authorizer, p.Metrics = o.Authorizer, o.Metrics
	return p
}

// webhooks returns the options of a plugin that calls webhooks.
func (o Options) webhooks(s objects.Store, name string) webhook.Options {
	return webhook.Options{Store: s, Authorizer: o.Authorizer, Resolve: o.ResolveService, Dial: o.Dial, Credentials: o.credentials[name], Metrics: o.Metrics,
		Stopping: o.Stopping, Log: o.Log}
}

// Configurable returns the plugins that take a configuration, for the help of the flags.
func Configurable() []string { return slices.Sorted(maps.Keys((&Options{}).parsers())) }

// parsers returns what reads the configurations of the plugins that take one.
func (o *Options) parsers() map[string]func(configfile.Configuration) error {
	o.credentials = map[string]*client.Credentials{}
	credentials := func(name string) func(configfile.Configuration) error {
		return func(c configfile.Configuration) (err error) {
			o.credentials[name], err = webhook.ParseConfig(c.Text)
			return err
		}
	}
	return map[string]func(configfile.Configuration) error{
		webhook.MutatingName:          credentials(webhook.MutatingName),
		webhook.ValidatingName:        credentials(webhook.ValidatingName),
		podsecurity.Name:              parser(podsecurity.ParseConfig, &o.podSecurity),
		podnodeselector.Name:          parser(podnodeselector.ParseConfig, &o.podNodeSelector),
		podtolerationrestriction.Name: parser(podtolerationrestriction.ParseConfig, &o.podTolerations),
		eventratelimit.Name:           parser(eventratelimit.ParseConfig, &o.events),
		imagepolicywebhook.Name: func(c configfile.Configuration) (err error) {
			o.images, err = imagepolicywebhook.ParseConfig(c.Text, c.Dir, imagepolicywebhook.Dial(o.Dial))
			return err
		},
		initialresources.Name: func(c configfile.Configuration) (err error) {
			o.estimates, err = initialresources.ParseConfig(c.Text, o.InitialResources)
			return err
		},
	}
}

// parser returns what reads a configuration that names no files.
func parser[C any](parse func([]byte) (C, error), into *C) func(configfile.Configuration) error {
	return func(c configfile.Configuration) (err error) {
		*into, err = parse(c.Text)
		return err
	}
}

// readConfig reads the plugins' configurations from ConfigFile. Those of plugins that are not enabled must be right, too, if they are there.
func (o *Options) readConfig(enabled []registration) error {
	parsers := o.parsers()
	exists := func(name string) bool { _, ok := find(name); return ok }
	configurable := func(name string) bool { return parsers[name] != nil }
	configurations, err := configfile.Read(o.ConfigFile, exists, configurable)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(parsers)) {
		c, configured := configurations[name]
		if !configured && !slices.ContainsFunc(enabled, func(p registration) bool { return p.name == name }) {
			continue
		}
		switch err := parsers[name](c); {
		case err != nil && configured:
			return fmt.Errorf("admission configuration %s: plugin %q: %s: %w", o.ConfigFile, name, c.At, err)
		case err != nil:
			return fmt.Errorf("admission plugin %q, which --admission-control-config-file does not configure: %w", name, err)
		}
	}
	return nil
}

func check(enable, disable []string) error {
	var errs []error
	for _, name := range enable {
		if _, ok := find(name); !ok {
			errs = append(errs, fmt.Errorf("enable-admission-plugins plugin %q is unknown", name))
		}
	}
	var both []string
	for _, name := range disable {
		if _, ok := find(name); !ok {
			errs = append(errs, fmt.Errorf("disable-admission-plugins plugin %q is unknown", name))
		}
		if slices.Contains(enable, name) {
			both = append(both, name)
		}
	}
	if len(both) > 0 {
		slices.Sort(both)
		errs = append(errs, fmt.Errorf("%v in enable-admission-plugins and disable-admission-plugins overlapped", slices.Compact(both)))
	}
	return utilerrors.NewAggregate(errs)
}

func find(name string) (registration, bool) {
	at := slices.IndexFunc(ordered, func(p registration) bool { return p.name == name })
	if at < 0 {
		return registration{}, false
	}
	return ordered[at], true
}

// namespaces returns the function that NamespaceLifecycle finds namespaces with.
func namespaces(r objects.Reader) namespacelifecycle.Namespaces {
	resource := corev1.Resource("namespaces")
	return func(ctx context.Context, name string, fresh bool) (*corev1.Namespace, error) {
		if !fresh {
			namespace, _ := r.Get(resource, "", name).(*corev1.Namespace)
			return namespace, nil
		}
		obj, err := r.Fresh(ctx, resource, "", name)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		namespace, _ := obj.(*corev1.Namespace)
		return namespace, err
	}
}

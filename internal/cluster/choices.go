package cluster

import (
	"skiff/internal/apiserver"
	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/admission/initialresources"
	"skiff/internal/apiserver/admission/plugins"
	authnconfig "skiff/internal/apiserver/authn/config"
	"skiff/internal/apiserver/authn/oidc"
	"skiff/internal/apiserver/authz"
	authzconfig "skiff/internal/apiserver/authz/config"
	"skiff/internal/controller/all"
)

// What flags can be set to, and what they are by default, for those who only parse flags and import no component.

// Version is the version of Kubernetes that skiff is.
const Version = apiserver.Version

// DefaultAuthentication returns how a cluster recognizes its users unless flags say otherwise.
func DefaultAuthentication() authnconfig.Options {
	o := authnconfig.Default()
	o.EnableBootstrapTokenAuth = true
	o.ServiceAccountIssuers = []string{"https://kubernetes.default.svc." + clusterDomain}
	return o
}

// SigningAlgorithms returns the algorithms with which ID tokens may be signed.
func SigningAlgorithms() []string { return oidc.Algorithms() }

// AuthorizationModes returns all values of --authorization-mode.
func AuthorizationModes() []string { return authz.Modes() }

// DefaultAuthorization returns the authorization of a cluster that is closed by default.
func DefaultAuthorization() authzconfig.Options {
	o := authzconfig.Default()
	o.Modes = []string{authz.ModeNode, authz.ModeRBAC}
	return o
}

// AdmissionPlugins returns the names of all admission plugins.
func AdmissionPlugins() []string { return plugins.Names() }

// ConfigurableAdmissionPlugins returns the names of the admission plugins that take a configuration.
func ConfigurableAdmissionPlugins() []string { return plugins.Configurable() }

// DefaultAdmissionPlugins returns the admission plugins that are on unless flags turn them off, as in Kubernetes.
func DefaultAdmissionPlugins() []string { return plugins.On() }

// DefaultAdmission returns the admission plugins that skiff has on besides DefaultAdmissionPlugins: kubelets may write only their own objects.
func DefaultAdmission() []string { return []string{"NodeRestriction"} }

// DefaultInitialResources returns how the admission plugin InitialResources estimates.
func DefaultInitialResources() *initialresources.Options {
	o := initialresources.Defaults
	return &o
}

// DefaultTolerations returns for how long pods that do not say so stay on nodes that are not ready or unreachable.
func DefaultTolerations() *defaulttolerationseconds.Options {
	o := defaulttolerationseconds.Defaults
	return &o
}

// ControllerNames returns the names of all control loops, as --controllers takes them.
func ControllerNames() []string { return all.Names() }

package plugins_test

import (
	"slices"
	"testing"

	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/defaulttolerationseconds"
	"skiff/internal/apiserver/admission/plugins"
	"skiff/internal/apiserver/authz"
	"skiff/internal/apiserver/objects/objectstest"
)

var options = plugins.Options{Authorizer: authz.AlwaysAllow{}, Tolerations: defaulttolerationseconds.Defaults}

// The order is upstream's.
var on = []string{"NamespaceLifecycle", "LimitRanger", "ServiceAccount", "TaintNodesByCondition", "PodSecurity", "Priority", "DefaultTolerationSeconds", "DefaultStorageClass",
	"StorageObjectInUseProtection", "RuntimeClass", "CertificateApproval", "CertificateSigning", "ClusterTrustBundleAttest", "CertificateSubjectRestriction", "DefaultIngressClass",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"}

func TestEnabledPlugins(t *testing.T) {
	for _, c := range []struct {
		name            string
		enable, disable []string
		want            []string
		err             string
	}{
		{"by default", nil, nil, on, ""},
		{"one more, in its place", []string{"NodeRestriction"}, nil, slices.Insert(slices.Clone(on), 3, "NodeRestriction"), ""},
		{"one that is on anyway", []string{"Priority"}, nil, on, ""},
		{"some less", nil, []string{"LimitRanger", "ResourceQuota"}, slices.DeleteFunc(slices.Clone(on), func(n string) bool { return n == "LimitRanger" || n == "ResourceQuota" }), ""},
		{"one less that is not there", nil, []string{"PodTopologyLabels"}, on, ""},
		{"unknown names", []string{"Nonsense"}, []string{"Rubbish"}, nil, `[enable-admission-plugins plugin "Nonsense" is unknown, disable-admission-plugins plugin "Rubbish" is unknown]`},
		{"names of what is not there yet", []string{"AlwaysPullImages"}, nil, nil, `enable-admission-plugins plugin "AlwaysPullImages" is not available in skiff yet`},
		{"both", []string{"Priority", "LimitRanger"}, []string{"Priority", "LimitRanger"}, nil,
			`[LimitRanger Priority] in enable-admission-plugins and disable-admission-plugins overlapped`},
	} {
		t.Run(c.name, func(t *testing.T) {
			list, err := plugins.New(c.enable, c.disable, objectstest.New(), options)
			admissiontest.Expect(t, err, c.err)
			var names []string
			for _, p := range list {
				names = append(names, p.Name())
			}
			if !slices.Equal(names, c.want) {
				t.Errorf("on are %v\nwant   %v", names, c.want)
			}
		})
	}
	if !slices.Equal(plugins.On(), on) {
		t.Errorf("the help says %v", plugins.On())
	}
	if !slices.Equal(plugins.Names(), slices.Insert(slices.Clone(on), 3, "NodeRestriction")) {
		t.Errorf("there are %v", plugins.Names())
	}
}

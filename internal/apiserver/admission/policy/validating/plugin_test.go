package validating_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"skiff/internal/apiserver/admission"
	"skiff/internal/apiserver/admission/admissiontest"
	"skiff/internal/apiserver/admission/policy"
	"skiff/internal/apiserver/admission/policy/validating"
	"skiff/internal/apiserver/objects/objectstest"
	"skiff/internal/catalog/all"
)

var (
	policies = admissionregistrationv1.Resource("validatingadmissionpolicies")
	bindings = admissionregistrationv1.Resource("validatingadmissionpolicybindings")
)

// onAll is the part of a policy that matches every write.
const onAll = `
  matchConstraints: {resourceRules: [{apiGroups: ["*"], apiVersions: ["*"], operations: ["*"], resources: ["*", "*/*"]}]}
`

// newStore returns a store with two namespaces and some objects to refer to.
func newStore(t testing.TB) *objectstest.Store {
	t.Helper()
	store := objectstest.New()
	for name, labels := range map[string]string{"ns": "{env: prod}", "other": "{env: test}"} {
		store.Put(corev1.Resource("namespaces"), admissiontest.Parse(t, &corev1.Namespace{}, "{metadata: {name: "+name+", labels: "+labels+"}}"))
	}
	for _, m := range []string{"{namespace: ns, name: limit, labels: {limit: 'yes'}}", "{namespace: other, name: limit}", "{namespace: ns, name: second, labels: {limit: 'yes'}}"} {
		store.Put(corev1.Resource("configmaps"), admissiontest.Parse(t, &corev1.ConfigMap{}, "{metadata: "+m+", data: {max: '1'}}"))
	}
	store.Put(rbacv1.Resource("clusterroles"), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "role"}})
	return store
}

// put stores a policy called p and a binding of it called b with the given specs, after their defaults.
func put(t testing.TB, store *objectstest.Store, spec, binding string) {
	t.Helper()
	p := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, "metadata: {name: p}\nspec:"+spec)
	b := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "metadata: {name: b}\nspec: {policyName: p, "+binding+"}")
	admissiontest.Info(p).Default(p)
	admissiontest.Info(b).Default(b)
	store.Put(policies, p)
	store.Put(bindings, b)
}

func configMap(namespace, name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"a": "b"}}, Data: map[string]string{"k": "v"}}
}

const denied = `configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: `

func TestValidate(t *testing.T) {
	const deny = "validationActions: [Deny]"
	long := strings.Repeat("x", 5*1024+1)
	for _, c := range []struct {
		name, spec, binding, want string
		write                     *admission.Attributes // of the ConfigMap c in ns if nil
	}{
		{name: "allowed", spec: onAll + "  validations: [{expression: 'true'}]", binding: deny},
		{name: "the expression", spec: onAll + "  validations: [{expression: ' object.metadata.name == \"d\" '}]", binding: deny,
			want: denied + `failed expression: object.metadata.name == "d"`},
		{name: "a message", spec: onAll + "  validations: [{expression: 'false', message: ' nope '}]", binding: deny, want: denied + "nope"},
		{name: "a message expression", spec: onAll + "  validations: [{expression: 'false', message: nope, messageExpression: 'object.kind + \" \" + request.namespace'}]",
			binding: deny, want: denied + "ConfigMap ns"},
		{name: "a failing message expression", spec: onAll + "  validations: [{expression: 'false', message: nope, messageExpression: 'object.nonsense'}]", binding: deny, want: denied + "nope"},
		{name: "an empty message expression", spec: onAll + "  validations: [{expression: 'false', messageExpression: '\" \"'}]", binding: deny, want: denied + "failed expression: false"},
		{name: "a message expression of two lines", spec: onAll + "  validations: [{expression: 'false', message: nope, messageExpression: '\"a\\nb\"'}]", binding: deny, want: denied + "nope"},
		{name: "a message expression that is too long", spec: onAll + "  validations: [{expression: 'false', message: nope, messageExpression: '\"" + long + "\"'}]",
			binding: deny, want: denied + "nope"},
		{name: "a message expression that asks the authorizer", binding: deny, want: denied + "nope",
			spec: onAll + "  validations: [{expression: 'false', message: nope, messageExpression: 'string(authorizer.path(\"/x\").check(\"get\").allowed())'}]"},
		{name: "the first of two", spec: onAll + "  validations: [{expression: 'false', message: one}, {expression: 'false', message: two}]", binding: deny, want: denied + "one"},
		{name: "a runtime error", spec: onAll + "  validations: [{expression: 'object.data.nonsense == 1'}]", binding: deny,
			want: denied + "expression 'object.data.nonsense == 1' resulted in error: no such key: nonsense"},
		{name: "an ignored runtime error", spec: onAll + "  failurePolicy: Ignore\n  validations: [{expression: 'object.data.nonsense == 1'}]", binding: deny},
		{name: "what does not compile", spec: onAll + "  validations: [{expression: 'nonsense'}]", binding: deny,
			want: denied + "compilation error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'nonsense' (in container '')\n | nonsense\n | ^"},
		{name: "no boolean", spec: onAll + "  validations: [{expression: '1'}]", binding: deny, want: denied + "compilation error: must evaluate to bool but got int"},
		{name: "variables", spec: onAll + "  variables: [{name: who, expression: object.metadata.name}, {name: long, expression: size(variables.who) > 1}]\n  validations: [{expression: variables.long}]",
			binding: deny, want: denied + "failed expression: variables.long"},
		{name: "a variable that fails", spec: onAll + "  variables: [{name: who, expression: object.nonsense}]\n  validations: [{expression: variables.who == 1}]", binding: deny,
			want: denied + "expression 'variables.who == 1' resulted in error: composited variable \"who\" fails to evaluate: no such key: nonsense"},
		{name: "a variable that reads itself", spec: onAll + "  variables: [{name: who, expression: dyn(variables).who}]\n  validations: [{expression: variables.who == 1}]", binding: deny,
			want: denied + "expression 'variables.who == 1' resulted in error: composited variable \"who\" fails to evaluate: composited variable \"who\" fails to evaluate: it refers to itself"},
		{name: "a variable that nothing reads", spec: onAll + "  variables: [{name: who, expression: object.nonsense}]\n  validations: [{expression: 'true'}]", binding: deny},
		{name: "a condition that does not hold", spec: onAll + "  matchConditions: [{name: m, expression: \"request.name != 'c'\"}]\n  validations: [{expression: 'false'}]", binding: deny},
		{name: "a condition that fails", spec: onAll + "  matchConditions: [{name: m, expression: object.nonsense}, {name: n, expression: 'true'}]\n  validations: [{expression: 'true'}]",
			binding: deny, want: denied + "compilation error: must evaluate to bool but got dyn"},
		{name: "conditions do not see the namespace", spec: onAll + "  matchConditions: [{name: m, expression: namespaceObject == null}]\n  validations: [{expression: 'false', message: nope}]",
			binding: deny, want: denied + "nope"},
		{name: "the namespace", spec: onAll + "  validations: [{expression: \"namespaceObject.metadata.labels.env == 'test'\", messageExpression: \"namespaceObject.metadata.name + ' is ' + namespaceObject.metadata.labels['env']\"}]",
			binding: deny, want: denied + "ns is prod"},
		{name: "the request", spec: onAll + `  validations: [{expression: "request.userInfo.username == 'admin' && request.operation == 'CREATE' && request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps' && request.requestKind.version == 'v1' && request.name == 'c' && !request.dryRun && object.apiVersion == 'v1' && oldObject == null", messageExpression: "string(request.userInfo.username)"}]`,
			binding: deny, want: denied + "kubernetes-admin"},
		{name: "the authorizer", spec: onAll + `  validations: [{expression: "authorizer.requestResource.check('create').allowed()"}, {expression: "authorizer.group('').resource('pods').namespace('ns').name('x').check('breakglass').allowed()"}, {expression: "authorizer.serviceAccount('ns', 'x').path('/healthz').check('get').allowed()", message: nope}]`,
			binding: deny, want: denied + `failed expression: authorizer.requestResource.check('create').allowed()`},
		{name: "an exempt resource name", binding: deny, want: "",
			spec: `
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}], excludeResourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [configmaps], resourceNames: [c]}]}
  validations: [{expression: 'false'}]`},
		{name: "a resource name", binding: deny, want: denied + "failed expression: false",
			spec: `
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], resourceNames: [b, c], scope: Namespaced}]}
  validations: [{expression: 'false'}]`},
		{name: "of the cluster only", binding: deny,
			spec: `
  matchConstraints: {resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps], scope: Cluster}]}
  validations: [{expression: 'false'}]`},
		{name: "labels of the namespace", spec: onAll + "  validations: [{expression: 'false'}]", binding: deny + ", matchResources: {namespaceSelector: {matchLabels: {env: test}}}"},
		{name: "labels of the object", spec: onAll + "  validations: [{expression: 'false'}]", binding: deny + ", matchResources: {objectSelector: {matchLabels: {a: c}}}"},
		{name: "matching labels", spec: onAll + "  validations: [{expression: 'false'}]", binding: deny + ", matchResources: {objectSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {env: prod}}}",
			want: denied + "failed expression: false"},
		{name: "other resources", spec: onAll + "  validations: [{expression: 'false'}]", binding: deny + ", matchResources: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: ['*']}]}"},
		{name: "a namespace that is gone", write: admissiontest.Create(configMap("gone", "c")), spec: onAll + "  validations: [{expression: 'true'}]",
			binding: deny + ", matchResources: {namespaceSelector: {matchLabels: {env: prod}}}", want: denied + `failed to configure binding: namespaces "gone" not found`},
		{name: "params", spec: onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: \"size(object.data) < int(params.data.max) && params.kind == 'ConfigMap'\"}]",
			binding: deny + ", paramRef: {name: limit, parameterNotFoundAction: Deny}", want: denied + "failed expression: size(object.data) < int(params.data.max) && params.kind == 'ConfigMap'"},
		{name: "params by selector", spec: onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: \"params.metadata.name == 'limit'\", messageExpression: string(params.metadata.name)}]",
			binding: deny + ", paramRef: {selector: {matchLabels: {limit: 'yes'}}, parameterNotFoundAction: Deny}", want: denied + "second"},
		{name: "params of another namespace", spec: onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'false', messageExpression: string(params.metadata.namespace)}]",
			binding: deny + ", paramRef: {name: limit, namespace: other, parameterNotFoundAction: Deny}", want: denied + "other"},
		{name: "no params", spec: onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'true'}]",
			binding: deny + ", paramRef: {name: none, parameterNotFoundAction: Deny}",
			want:    denied + "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"},
		{name: "no params are fine", spec: onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'false'}]",
			binding: deny + ", paramRef: {name: none, parameterNotFoundAction: Allow}"},
		{name: "a binding without params", spec: onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: params != null}]", binding: deny,
			want: denied + "failed expression: params != null"},
		{name: "params of the cluster in a namespace", spec: onAll + "  paramKind: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}\n  validations: [{expression: 'true'}]",
			binding: deny + ", paramRef: {name: role, namespace: ns, parameterNotFoundAction: Deny}",
			want:    denied + "failed to configure binding: paramRef.namespace must not be provided for a cluster-scoped `paramKind`"},
		{name: "params of the cluster", spec: onAll + "  paramKind: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole}\n  validations: [{expression: 'false', messageExpression: string(params.kind)}]",
			binding: deny + ", paramRef: {name: role, parameterNotFoundAction: Deny}", want: denied + "ClusterRole"},
		{name: "params in a namespace for the cluster", write: admissiontest.Create(&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "c"}}),
			spec:    onAll + "  paramKind: {apiVersion: v1, kind: ConfigMap}\n  validations: [{expression: 'true'}]",
			binding: deny + ", paramRef: {name: limit, parameterNotFoundAction: Deny}",
			want: `clusterroles.rbac.authorization.k8s.io "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: failed to configure binding: ` +
				"cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"},
		{name: "params of an unknown kind", spec: onAll + "  paramKind: {apiVersion: example.com/v1, kind: Limit}\n  validations: [{expression: 'true'}]",
			binding: deny + ", paramRef: {name: x, parameterNotFoundAction: Allow}",
			want:    `configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Limit'`},
		{name: "deletion", write: admissiontest.Delete(configMap("ns", "c")), spec: onAll + "  validations: [{expression: 'object != null || oldObject.data.k != \"v\"', message: nope}]",
			binding: deny, want: denied + "nope"},
		{name: "update", write: admissiontest.Update(configMap("ns", "c"), configMap("ns", "c")), spec: onAll + "  validations: [{expression: 'object != oldObject', message: same}]",
			binding: deny, want: denied + "same"},
		{name: "a policy", write: admissiontest.Create(&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "x"}}),
			spec: onAll + "  validations: [{expression: 'false'}]", binding: deny},
		{name: "an evaluation that costs too much", binding: deny,
			spec: onAll + "  validations: [{expression: \"[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))\"}]",
			want: denied + "expression '[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a+b+c+d+e+f > 0))))))' resulted in error: operation cancelled: actual cost limit exceeded"},
	} {
		t.Run(c.name, func(t *testing.T) {
			store := newStore(t)
			p := validating.New(store, policy.Options{Authorizer: admissiontest.Allow{Verb: "breakglass", Name: "x"}})
			put(t, store, c.spec, c.binding)
			write := c.write
			if write == nil {
				write = admissiontest.Create(configMap("ns", "c"))
			}
			err := admissiontest.Through(t, p, write)
			admissiontest.Expect(t, err, c.want)
			if err != nil && !apierrors.IsInvalid(err) {
				t.Errorf("the reason is %s", apierrors.ReasonForError(err))
			}
		})
	}
}

func TestReasons(t *testing.T) {
	for reason, code := range map[metav1.StatusReason]int32{metav1.StatusReasonForbidden: 403, metav1.StatusReasonUnauthorized: 401,
		metav1.StatusReasonRequestEntityTooLarge: 413, metav1.StatusReasonInvalid: 422} {
		store := newStore(t)
		p := validating.New(store, policy.Options{})
		put(t, store, onAll+"  validations: [{expression: 'false', reason: "+string(reason)+"}]", "validationActions: [Deny]")
		err := admissiontest.Through(t, p, admissiontest.Create(configMap("ns", "c")))
		status, ok := err.(*apierrors.StatusError)
		if !ok || status.ErrStatus.Reason != reason || status.ErrStatus.Code != code || status.ErrStatus.Details.Kind != "configmaps" || status.ErrStatus.Details.Name != "c" {
			t.Errorf("%s: %#v", reason, err)
		}
	}
}

// TestEquivalent: a policy for one version of a resource sees writes to the others, in its own version.
func TestEquivalent(t *testing.T) {
	write := func() *admission.Attributes {
		a := admissiontest.Create(&autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "h"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{Name: "cpu",
				Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: new(int32)}}}}}})
		for _, info := range all.Resources() {
			if info.GVK == autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler") {
				a.Info = info
			}
		}
		return a
	}
	for matchPolicy, want := range map[string]string{"Exact": "",
		"Equivalent": `horizontalpodautoscalers.autoscaling "h" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: autoscaling/v1 v1 v1 v2 v2`} {
		store := newStore(t)
		p := validating.New(store, policy.Options{})
		put(t, store, `
  matchConstraints: {matchPolicy: `+matchPolicy+`, resourceRules: [{apiGroups: [autoscaling], apiVersions: [v1], operations: [CREATE], resources: [horizontalpodautoscalers]}]}
  validations: [{expression: 'object.spec.targetCPUUtilizationPercentage > 0', messageExpression: "object.apiVersion + ' ' + request.kind.version + ' ' + request.resource.version + ' ' + request.requestKind.version + ' ' + request.requestResource.version"}]`,
			"validationActions: [Deny]")
		admissiontest.Expect(t, admissiontest.Through(t, p, write()), want)
	}
	if autoscalingv1.SchemeGroupVersion.Version != "v1" {
		t.Fatal("unreachable")
	}
}

// annotator keeps the annotations of a request.
type annotator map[string]string

func (a annotator) AdmissionOptions(admission.Operation) runtime.Object { return nil }
func (a annotator) Annotate(n admission.Annotation)                     { a[n.Key] = n.Value }
func (a annotator) Called(*admission.Attributes, admission.Call)        {}

func TestWarnAndAudit(t *testing.T) {
	store := newStore(t)
	registry := prometheus.NewRegistry()
	p := validating.New(store, policy.Options{Metrics: registry})
	put(t, store, onAll+`
  validations: [{expression: 'true'}, {expression: 'false', message: nope}]
  auditAnnotations: [{key: who, valueExpression: "' ' + request.userInfo.username"}, {key: none, valueExpression: 'null'}, {key: empty, valueExpression: "''"}, {key: kind, valueExpression: string(object.kind)}]
`, "validationActions: [Warn, Audit]")
	second := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "metadata: {name: a}\nspec: {policyName: p, validationActions: [Audit]}")
	store.Put(bindings, second)
	a := admissiontest.Create(configMap("ns", "c"))
	var warnings []string
	annotations := map[string]string{}
	a.Warn = func(text string) { warnings = append(warnings, text) }
	a.Origin = annotator(annotations)
	admissiontest.Expect(t, admissiontest.Through(t, p, a), "")
	if !slices.Equal(warnings, []string{"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b': nope"}) {
		t.Errorf("warned of %q", warnings)
	}
	want := map[string]string{"p/who": a.User.Username, "p/kind": "ConfigMap", "validation.policy.admission.k8s.io/validation_failure": `[{"message":"nope","policy":"p","binding":"a","expressionIndex":1,"validationActions":["Audit"]},` +
		`{"message":"nope","policy":"p","binding":"b","expressionIndex":1,"validationActions":["Warn","Audit"]}]`}
	if !maps.Equal(annotations, want) {
		t.Errorf("annotated with %v\nwant           %v", annotations, want)
	}
	if got := counted(t, registry); got != "a invalid_error audit 1; b invalid_error audit 1; b invalid_error warn 1" {
		t.Errorf("counted %s", got)
	}
	put(t, store, onAll+"  auditAnnotations: [{key: bad, valueExpression: object.nonsense}]", "validationActions: [Audit]")
	admissiontest.Expect(t, admissiontest.Through(t, p, a),
		`configmaps "c" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'a' denied request: compilation error: must evaluate to one of [string null_type] but got dyn`)
}

// counted returns the checks of the policy p by binding, kind of error and action.
func counted(t *testing.T, r *prometheus.Registry) string {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, f := range families {
		if f.GetName() != "apiserver_validating_admission_policy_check_total" {
			continue
		}
		for _, m := range f.Metric {
			value := func(name string) string {
				at := slices.IndexFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == name })
				return m.Label[at].GetValue()
			}
			counts = append(counts, fmt.Sprintf("%s %s %s %v", value("policy_binding"), value("error_type"), value("enforcement_action"), m.Counter.GetValue()))
		}
	}
	slices.Sort(counts)
	return strings.Join(counts, "; ")
}

// TestHandles: without a policy that is bound and may apply, the plugin has no part in a write.
func TestHandles(t *testing.T) {
	store := newStore(t)
	p := validating.New(store, policy.Options{})
	handles := func(want bool, when string) {
		t.Helper()
		if got := p.Handles(admissiontest.Create(configMap("ns", "c"))); got != want {
			t.Errorf("%s: handles is %v", when, got)
		}
	}
	handles(false, "no policy")
	put(t, store, onAll+"  validations: [{expression: 'true'}]", "validationActions: [Deny]")
	handles(true, "a policy for everything")
	if p.Handles(admissiontest.Create(&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "x"}})) {
		t.Error("a policy for everything applies to policies")
	}
	store.Remove(bindings, "", "b")
	handles(false, "no binding")
	put(t, store, "\n  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]}\n  validations: [{expression: 'true'}]", "validationActions: [Deny]")
	handles(false, "a policy for updates")
	store.Remove(policies, "", "p")
	handles(false, "no policy any more")
}

// TestBudget: validations share one budget, and what is left of it is that of their messages.
func TestBudget(t *testing.T) {
	store := newStore(t)
	p := validating.New(store, policy.Options{})
	write := admissiontest.Create(configMap("ns", "c"))
	write.Object.(*corev1.ConfigMap).Data["k"] = strings.Repeat("x", 1e6)
	costly := "{expression: \"!object.data.k.contains('" + strings.Repeat("y", 90) + "')\"}, "
	put(t, store, onAll+"  validations: ["+strings.Repeat(costly, 11)+"]", "validationActions: [Deny]")
	admissiontest.Expect(t, admissiontest.Through(t, p, write), "")
	put(t, store, onAll+"  validations: ["+strings.Repeat(costly, 12)+"]", "validationActions: [Deny]")
	const spent = "validation failed due to running out of cost budget, no further validation rules will be run"
	admissiontest.Expect(t, admissiontest.Through(t, p, write), denied+spent)
	put(t, store, onAll+"  validations: ["+strings.Repeat(costly, 11)+"{expression: 'true', messageExpression: \"object.data.k.contains('"+strings.Repeat("y", 90)+"') ? 'a' : 'b'\"}]",
		"validationActions: [Deny]")
	admissiontest.Expect(t, admissiontest.Through(t, p, write), denied+"failed messageExpression: "+spent)
	put(t, store, onAll+"  failurePolicy: Ignore\n  validations: ["+strings.Repeat(costly, 12)+"]", "validationActions: [Deny]")
	admissiontest.Expect(t, admissiontest.Through(t, p, write), "")
}

// TestStages: a trace has a stage for each policy that is evaluated, and one more for the first that refuses the write.
func TestStages(t *testing.T) {
	store := newStore(t)
	chain := admission.NewChain(validating.New(store, policy.Options{}))
	put(t, store, onAll+"  validations: [{expression: 'false'}]", "validationActions: [Deny]")
	for i := range 150 {
		name := fmt.Sprintf("q%03d", i)
		p := admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicy{}, "metadata: {name: "+name+"}\nspec:"+onAll+"  validations: [{expression: 'true'}]")
		admissiontest.Info(p).Default(p)
		store.Put(policies, p)
		if i == 0 || i == 149 {
			store.Put(bindings, admissiontest.Parse(t, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, "metadata: {name: "+name+"}\nspec: {policyName: "+name+", validationActions: [Deny]}"))
		}
	}
	var stages []string
	err := chain.Validate(t.Context(), admissiontest.Create(configMap("ns", "c")), func(name string) { stages = append(stages, strings.TrimPrefix(name, "admission/")) })
	admissiontest.Expect(t, err, denied+"failed expression: false")
	if want := []string{"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicy/p", "ValidatingAdmissionPolicy/p refused", "ValidatingAdmissionPolicy/q000",
		"ValidatingAdmissionPolicy/(other)"}; !slices.Equal(stages, want) {
		t.Errorf("the stages are %q", stages)
	}
}

package nonsense

// Extensions are valid objects of the other kinds by which the API is extended, with the paths of their resources. No webhook of them is ever to be called:
// what their addresses become is nobody's.
var Extensions = []struct{ Path, Document string }{
	{"/apis/apiregistration.k8s.io/v1/apiservices", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v1.nonsense.example.com"},"spec":{
		"group":"nonsense.example.com","version":"v1","groupPriorityMinimum":100,"versionPriority":10,"insecureSkipTLSVerify":true,"service":{"namespace":"default","name":"none","port":443}}}`},
	{"/apis/apiregistration.k8s.io/v1/apiservices", `{"apiVersion":"apiregistration.k8s.io/v1","kind":"APIService","metadata":{"name":"v2.nonsense.example.com"},"spec":{
		"group":"nonsense.example.com","version":"v2","groupPriorityMinimum":1,"versionPriority":1},"status":{"conditions":[{"type":"Available","status":"True"}]}}`},
	{"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"nonsense"},"webhooks":[
		{"name":"a.nonsense.example.com","clientConfig":{"service":{"namespace":"default","name":"none","path":"/a","port":8443}},"rules":[{"apiGroups":["nonsense.example.com"],"apiVersions":["v1"],"resources":["things/status"],"operations":["CREATE","UPDATE"],"scope":"Namespaced"}],
		"failurePolicy":"Ignore","matchPolicy":"Exact","sideEffects":"None","timeoutSeconds":1,"admissionReviewVersions":["v1","v1beta1"],"namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},
		"objectSelector":{"matchLabels":{"a":"b"}},"matchConditions":[{"name":"a","expression":"object.metadata.name == 'a'"}]}]}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingWebhookConfiguration","metadata":{"name":"nonsense"},"webhooks":[
		{"name":"a.nonsense.example.com","clientConfig":{"url":"https://127.0.0.1:1/a"},"rules":[{"apiGroups":["nonsense.example.com"],"apiVersions":["*"],"resources":["*"],"operations":["*"]}],
		"failurePolicy":"Fail","sideEffects":"NoneOnDryRun","reinvocationPolicy":"IfNeeded","admissionReviewVersions":["v1"]}]}`},
	{"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"nonsense"},"spec":{"failurePolicy":"Fail","paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],"excludeResourceRules":[{"apiGroups":["a.b"],"apiVersions":["v1"],"operations":["*"],"resources":["*"],"resourceNames":["a"]}]},
		"matchConditions":[{"name":"a","expression":"has(object.data)"}],"variables":[{"name":"v","expression":"object.data.size()"}],
		"validations":[{"expression":"variables.v < 10 && params != null","messageExpression":"'size ' + string(variables.v)","reason":"Invalid"}],"auditAnnotations":[{"key":"k","valueExpression":"string(variables.v)"}]}}`},
	{"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"nonsense"},"spec":{"policyName":"kept",
		"paramRef":{"name":"limits","namespace":"default","parameterNotFoundAction":"Allow"},"matchResources":{"namespaceSelector":{"matchLabels":{"a":"b"}},"matchPolicy":"Equivalent"},"validationActions":["Deny","Audit"]}}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"nonsense"},"spec":{"failurePolicy":"Ignore","reinvocationPolicy":"IfNeeded",
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},"variables":[{"name":"v","expression":"object.metadata.name"}],
		"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'a': variables.v}}}"}},
			{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a/b'), value: 'x'}]"}}]}}`},
	{"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"nonsense"},"spec":{"policyName":"nonsense",
		"matchResources":{"objectSelector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}}}}`},
}

package identity_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

const secrets = "/api/v1/namespaces/default/secrets"

// plantSecrets writes Secrets, some of them invalid.
func (v *secretTracker) plantSecrets() {
	for _, a := range []attempt{
		{"a Secret", "POST", secrets, 201, asJSON, `{"metadata":{"name":"good"},"data":{"password":"BASE64"}}`, nil},
		{"a Secret that is there", "POST", secrets, 409, asJSON, `{"metadata":{"name":"good"},"stringData":{"password":"SECRET"}}`, nil},
		{"a Secret without a name", "POST", secrets, 422, asJSON, `{"stringData":{"password":"SECRET"}}`, nil},
		{"a Secret of a wrong name", "POST", secrets, 422, asJSON, `{"metadata":{"name":"NO"},"stringData":{"password":"SECRET"}}`, nil},
		{"a Secret with a wrong key", "POST", secrets, 422, asJSON, `{"metadata":{"name":"x"},"stringData":{"pass word":"SECRET"}}`, nil},
		{"a Secret that is no base64", "POST", secrets, 400, asJSON, `{"metadata":{"name":"x"},"data":{"password":"!SECRET"}}`, nil},
		{"a Secret that is a list", "POST", secrets, 400, asJSON, `{"metadata":{"name":"x"},"stringData":{"password":["SECRET"]}}`, nil},
		{"a Secret whose data is text", "POST", secrets, 400, asJSON, `{"metadata":{"name":"x"},"data":"SECRET"}`, nil},
		{"a Secret with more fields", "POST", secrets + "?dryRun=All", 201, asJSON, `{"metadata":{"name":"x"},"password":"SECRET"}`, nil},
		{"a Secret with more fields, strictly", "POST", secrets + "?fieldValidation=Strict", 400, asJSON, `{"metadata":{"name":"x"},"password":"SECRET"}`, nil},
		{"a Secret twice", "POST", secrets + "?fieldValidation=Strict", 400, asJSON,
			`{"metadata":{"name":"x"},"stringData":{"password":"SECRET","password":"SECRET"}}`, nil},
		{"a Secret twice, in YAML", "POST", secrets + "?fieldValidation=Strict", 400, asYAML,
			"metadata: {name: x}\nstringData:\n  password: SECRET\n  password: SECRET\n", nil},
		{"a Secret twice, warned of", "POST", secrets + "?dryRun=All", 201, asYAML,
			"metadata: {name: x}\nstringData:\n  password: SECRET\n  password: SECRET\n", nil},
		{"a Docker configuration", "POST", secrets, 422, asJSON,
			`{"metadata":{"name":"x"},"type":"kubernetes.io/dockerconfigjson","stringData":{".dockerconfigjson":"SECRET"}}`, nil},
		{"an old Docker configuration", "POST", secrets, 422, asJSON,
			`{"metadata":{"name":"x"},"type":"kubernetes.io/dockercfg","stringData":{".dockercfg":"{\"a\": SECRET}"}}`, nil},
		{"a TLS Secret", "POST", secrets, 422, asJSON, `{"metadata":{"name":"x"},"type":"kubernetes.io/tls","stringData":{"tls.key":"SECRET"}}`, nil},
		{"a TLS Secret that does not fit", "POST", secrets + "?dryRun=All", 201, asJSON,
			`{"metadata":{"name":"x"},"type":"kubernetes.io/tls","stringData":{"tls.key":"SECRET","tls.crt":"SECRET"}}`, nil},
		{"an SSH Secret", "POST", secrets, 422, asJSON, `{"metadata":{"name":"x"},"type":"kubernetes.io/ssh-auth","stringData":{"key":"SECRET"}}`, nil},
		{"a token of no account", "POST", secrets, 422, asJSON,
			`{"metadata":{"name":"x"},"type":"kubernetes.io/service-account-token","stringData":{"token":"SECRET"}}`, nil},
		{"a Secret in no namespace", "POST", "/api/v1/namespaces/none/secrets", 404, asJSON,
			`{"metadata":{"name":"x"},"stringData":{"password":"SECRET"}}`, nil},
		{"a Secret for another namespace", "POST", secrets, 400, asJSON,
			`{"metadata":{"name":"x","namespace":"other"},"stringData":{"password":"SECRET"}}`, nil},
		{"a large Secret", "POST", secrets, 422, asJSON, `{"metadata":{"name":"x"},"stringData":{"password":"SECRET` + strings.Repeat("x", 1<<20) + `"}}`, nil},
		{"a Secret that is too large to read", "POST", secrets, 413, asJSON,
			`{"metadata":{"name":"x"},"stringData":{"password":"SECRET` + strings.Repeat("x", 3<<20) + `"}}`, nil},
		{"an update", "PUT", secrets + "/good", 200, asJSON, `{"metadata":{"name":"good"},"data":{"password":"BASE64"}}`, nil},
		{"an update of an old version", "PUT", secrets + "/good", 409, asJSON,
			`{"metadata":{"name":"good","resourceVersion":"1"},"data":{"password":"BASE64"}}`, nil},
		{"an update to another type", "PUT", secrets + "/good", 422, asJSON, `{"metadata":{"name":"good"},"type":"other","data":{"password":"BASE64"}}`, nil},
		{"an update under another name", "PUT", secrets + "/good", 400, asJSON, `{"metadata":{"name":"other"},"data":{"password":"BASE64"}}`, nil},
		{"an update of nothing", "PUT", secrets + "/none", 404, asJSON, `{"metadata":{"name":"none"},"data":{"password":"BASE64"}}`, nil},
		{"a Secret that stays", "POST", secrets, 201, asJSON, `{"metadata":{"name":"fixed"},"immutable":true,"data":{"password":"BASE64"}}`, nil},
		{"an update of one that stays", "PUT", secrets + "/fixed", 422, asJSON,
			`{"metadata":{"name":"fixed"},"immutable":true,"data":{"password":"BASE64"}}`, nil},
		{"a deletion with a body", "DELETE", secrets + "/good", 400, asJSON, `{"preconditions":{"uid":"SECRET"`, nil},
		{"a pod with a wrong variable", "POST", "/api/v1/namespaces/default/pods", 422, asJSON,
			`{"metadata":{"name":"x"},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"=","value":"SECRET"}]}]}}`, nil},
	} {
		v.send(v.admin, a)
	}
}

// plantBodies sends bodies that cannot be decoded.
func (v *secretTracker) plantBodies() {
	reviews, requests := "/apis/authentication.k8s.io/v1/tokenreviews", "/api/v1/namespaces/default/serviceaccounts/none/token"
	for _, a := range []attempt{
		{"JSON cut short", "POST", secrets, 400, asJSON, `{"stringData":{"p":"SECRET"`, nil},
		{"JSON with a stray character", "POST", secrets, 400, asJSON, `{"data":{"p":"BASE64",}}`, nil},
		{"JSON that is text", "POST", secrets, 400, asJSON, `"SECRET"`, nil},
		{"JSON that is a list", "POST", secrets, 400, asJSON, `["SECRET"]`, nil},
		{"no JSON", "POST", secrets, 400, asJSON, `SECRET`, nil},
		{"YAML with wrong indentation", "POST", secrets, 400, asYAML, "stringData:\n  p: SECRET\n q: SECRET\n", nil},
		{"YAML without a colon", "POST", secrets, 400, asYAML, "SECRET\nq: SECRET\n", nil},
		{"YAML with a tab", "POST", secrets, 400, asYAML, "stringData:\n\tp: SECRET\n", nil},
		{"YAML with an unknown alias", "POST", secrets, 400, asYAML, "p: *SECRET\n", nil},
		{"YAML with a bad escape", "POST", secrets, 400, asYAML, "p: \"SECRET\\z\"\n", nil},
		{"YAML with a wrong type", "POST", secrets, 400, asYAML, "metadata: {name: x}\nstringData: {p: [SECRET]}\n", nil},
		{"YAML with a bad tag", "POST", secrets, 400, asYAML, "metadata: {name: x}\nstringData: {p: !!int SECRET}\n", nil},
		{"YAML with a key that is a list", "POST", secrets, 400, asYAML, "stringData:\n  [SECRET]: SECRET\n", nil},
		{"YAML that is text", "POST", secrets, 400, asYAML, "SECRET", nil},
		{"no protobuf", "POST", secrets, 400, asProtobuf, "SECRET", nil},
		{"protobuf without a kind", "POST", secrets, 400, asProtobuf, "k8s\x00\x12\x1aSECRET", nil},
		{"protobuf with a wrong field", "POST", secrets, 400, asProtobuf, "k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x1c\x10\x1aSECRET", nil},
		{"protobuf cut short", "POST", secrets, 400, asProtobuf, "k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x1c\x12\x7fSECRET", nil},
		{"a body of an unknown form", "POST", secrets, 415, "text/plain", "SECRET", nil},
		{"a form", "POST", secrets, 415, "application/x-www-form-urlencoded", "password=SECRET", nil},
		{"another kind", "POST", secrets, 400, asJSON, `{"kind":"ConfigMap","apiVersion":"v1","data":{"password":"SECRET"}}`, nil},
		{"an unknown kind", "POST", secrets, 400, asJSON, `{"kind":"Other","apiVersion":"v1","data":{"password":"SECRET"}}`, nil},
		{"a Secret sent elsewhere", "POST", "/api/v1/namespaces/default/configmaps", 400, asJSON,
			`{"kind":"Secret","apiVersion":"v1","data":{"password":"BASE64"}}`, nil},
		{"a review cut short", "POST", reviews, 400, asJSON, `{"spec":{"token":"SECRET"`, nil},
		{"a review of a wrong type", "POST", reviews, 400, asJSON, `{"spec":{"token":["SECRET"]}}`, nil},
		{"a review in YAML", "POST", reviews, 400, asYAML, "spec:\n  token: SECRET\n bad", nil},
		{"a review with more fields", "POST", reviews + "?fieldValidation=Strict", 400, asJSON, `{"spec":{"token":"SECRET","password":"SECRET"}}`, nil},
		{"a token request that holds one", "POST", requests, 404, asJSON, `{"status":{"token":"SECRET"},"spec":{}}`, nil},
		{"a token request cut short", "POST", requests, 400, asJSON, `{"status":{"token":"SECRET"}`, nil},
	} {
		v.send(v.admin, a)
	}
	secret := v.plant("a token review")
	body := fmt.Sprintf(`{"spec":{"token":%q}}`, secret)
	r, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.host+reviews, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	var review struct {
		Status struct{ Error string }
	}
	if err := json.Unmarshal(v.do(v.admin, r, "a token review", 201), &review); err != nil {
		v.t.Fatal(err)
	}
	v.check("a review's error", review.Status.Error)
	if review.Status.Error == "" {
		v.t.Error("a review of a guessed token says nothing")
	}
}

// plantPatches sends patches of a Secret that fail.
func (v *secretTracker) plantPatches() {
	const good = secrets + "/good"
	for _, a := range []attempt{
		{"a patch", "PATCH", good, 200, asMerge, `{"data":{"password":"BASE64"}}`, nil},
		{"a patch cut short", "PATCH", good, 400, asMerge, `{"data":{"password":"BASE64"`, nil},
		{"a merge that is no base64", "PATCH", good, 422, asMerge, `{"data":{"password":"!SECRET"}}`, nil},
		{"a merge of a wrong type", "PATCH", good, 422, asMerge, `{"data":{"password":["SECRET"]}}`, nil},
		{"a merge into another kind", "PATCH", good, 422, asMerge, `{"kind":"ConfigMap","data":{"password":"BASE64"}}`, nil},
		{"a merge of more fields", "PATCH", good + "?fieldValidation=Strict", 422, asMerge, `{"password":"SECRET"}`, nil},
		{"a merge of an old version", "PATCH", good, 409, asMerge, `{"metadata":{"resourceVersion":"1"},"data":{"password":"BASE64"}}`, nil},
		{"a merge with a wrong key", "PATCH", good, 422, asMerge, `{"data":{"pass word":"BASE64"}}`, nil},
		{"a merge that is a list", "PATCH", good, 400, asMerge, `["SECRET"]`, nil},
		{"a strategic merge that is no base64", "PATCH", good, 422, asStrategic, `{"data":{"password":"!SECRET"}}`, nil},
		{"a strategic merge of a wrong type", "PATCH", good, 422, asStrategic, `{"data":{"password":["SECRET"]}}`, nil},
		{"a strategic merge of text", "PATCH", good, 422, asStrategic, `{"data":"SECRET"}`, nil},
		{"a strategic merge of more fields", "PATCH", good + "?fieldValidation=Strict", 422, asStrategic, `{"password":"SECRET"}`, nil},
		{"a strategic directive", "PATCH", good, 500, asStrategic, `{"data":{"$patch":"SECRET"}}`, nil},
		{"a strategic order", "PATCH", good, 500, asStrategic, `{"$setElementOrder/data":["SECRET"],"data":{"password":"BASE64"}}`, nil},
		{"a strategic merge of keys to keep", "PATCH", good, 400, asStrategic, `{"data":{"$retainKeys":["SECRET"],"password":"BASE64"}}`, nil},
		{"a JSON patch that tests", "PATCH", good, 422, asJSONPatch, `[{"op":"test","path":"/data/password","value":"BASE64"}]`, nil},
		{"a JSON patch that is no base64", "PATCH", good, 422, asJSONPatch, `[{"op":"replace","path":"/data/password","value":"!SECRET"}]`, nil},
		{"a JSON patch of a wrong type", "PATCH", good, 422, asJSONPatch, `[{"op":"replace","path":"/data","value":"SECRET"}]`, nil},
		{"a JSON patch of more fields", "PATCH", good + "?fieldValidation=Strict", 422, asJSONPatch, `[{"op":"add","path":"/password","value":"SECRET"}]`, nil},
		{"a JSON patch of nothing", "PATCH", good, 422, asJSONPatch, `[{"op":"remove","path":"/data/other","value":"SECRET"}]`, nil},
		{"a JSON patch with an unknown operation", "PATCH", good, 422, asJSONPatch, `[{"op":"whisper","path":"/data/other","value":"SECRET"}]`, nil},
		{"a JSON patch that is no list", "PATCH", good, 400, asJSONPatch, `{"op":"add","path":"/data/x","value":"SECRET"}`, nil},
		{"an applied Secret", "PATCH", good + "?fieldManager=one&force=true", 200, asApply,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata: {password: BASE64}\n", nil},
		{"an apply in conflict", "PATCH", good + "?fieldManager=two", 409, asApply,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata: {password: BASE64}\n", nil},
		{"an apply that is no base64", "PATCH", good + "?fieldManager=one", 500, asApply,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata: {password: '!SECRET'}\n", nil},
		{"an apply of a wrong type", "PATCH", good + "?fieldManager=one", 500, asApply,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata: {password: [SECRET]}\n", nil},
		{"an apply of text", "PATCH", good + "?fieldManager=one", 500, asApply, "apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata: SECRET\n", nil},
		{"an apply of more fields", "PATCH", good + "?fieldManager=one", 500, asApply,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: good}\npassword: SECRET\n", nil},
		{"an apply of what is given twice", "PATCH", good + "?fieldManager=one&fieldValidation=Strict", 400, asApply,
			"apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata:\n  x: BASE64\n  x: BASE64\n", nil},
		{"an apply that is no YAML", "PATCH", good + "?fieldManager=one", 400, asApply, "data:\n  password: SECRET\n bad", nil},
		{"an apply with an unknown alias", "PATCH", good + "?fieldManager=one", 400, asApply, "data: *SECRET", nil},
		{"an apply with a bad tag", "PATCH", good + "?fieldManager=one", 400, asApply, "data: !!int SECRET", nil},
		{"an apply with a key that is a list", "PATCH", good + "?fieldManager=one", 400, asApply, "data: {[a]: SECRET}", nil},
		{"an apply without a kind", "PATCH", good + "?fieldManager=one", 400, asApply, "stringData: {password: SECRET}", nil},
		{"an apply without a manager", "PATCH", good, 422, asApply, "apiVersion: v1\nkind: Secret\nmetadata: {name: good}\ndata: {password: BASE64}\n", nil},
		{"a patch of an unknown kind", "PATCH", good, 415, "application/json", `{"data":{"password":"BASE64"}}`, nil},
	} {
		v.send(v.admin, a)
	}
}

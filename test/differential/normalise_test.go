package differential

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestNormalise(t *testing.T) {
	now := time.Now().UTC()
	stamp := now.Format(time.RFC3339)
	for _, c := range []struct{ name, literals, in, want string }{{
		name: "identities are numbered and stay equal",
		in: `uid: 2f1c7c4e-8a51-4c0b-9b0a-0d6c3c0f5f11
resourceVersion: "812"
resourceVersion: "813"
{"uid":"2f1c7c4e-8a51-4c0b-9b0a-0d6c3c0f5f11","resourceVersion":"812"}
{\"resourceVersion\":\"813\"}`,
		want: `uid: <uid-1>
resourceVersion: "<version-1>"
resourceVersion: "<version-2>"
{"uid":"<uid-1>","resourceVersion":"<version-1>"}
{\"resourceVersion\":\"<version-2>\"}`,
	}, {
		name:     "what the script chose stays",
		literals: "clusterIP: 10.43.9.9 nodePort: 31999 uid: 00000000-0000-0000-0000-000000000001",
		in:       "10.43.9.9 10.43.9.10 nodePort: 31999\nnodePort: 31998\n00000000-0000-0000-0000-000000000001",
		want:     "10.43.9.9 <ip-1> nodePort: 31999\nnodePort: <nodeport-1>\n00000000-0000-0000-0000-000000000001",
	}, {
		name: "that skiff does not enforce something is left out, other warnings stay",
		in:   "Warning: skiff does not enforce NetworkPolicies yet: this object is stored and has no effect\nWarning: unknown field \"x\"\nnetworkpolicy.networking.k8s.io/guard created",
		want: "Warning: unknown field \"x\"\nnetworkpolicy.networking.k8s.io/guard created",
	}, {
		name: "the revision of a list belongs to the whole server",
		in:   `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"99","continue":"eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ"},"items":[]}`,
		want: `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"<revision>","continue":"<continue>"},"items":[]}`,
	}, {
		name: "times near now, in each form kubectl prints them",
		in:   stamp + "\n" + now.Format(time.RFC1123Z) + "\n2020-01-01T00:00:00Z\nWed, 01 Jan 2020 00:00:00 +0000",
		want: "<time>\n<time>\n2020-01-01T00:00:00Z\nWed, 01 Jan 2020 00:00:00 +0000",
	}, {
		name: "a table is aligned anew; quantities and empty cells stay",
		in: `NAME   CPU    CLUSTER-IP      REASON   AGE
web    500m   10.43.120.251            12s
api    1      None            Odd      2m13s`,
		want: `NAME   CPU    CLUSTER-IP   REASON   AGE
web    500m   <ip-1>                <age>
api    1      None         Odd      <age>`,
	}, {
		name: "rows of a watch may be wider than their header",
		in: `NAME    DATA   AGE
first   1      3s
second    1      0s`,
		want: `NAME     DATA   AGE
first    1      <age>
second   1      <age>`,
	}, {
		name: "what follows a table is not part of it",
		in: `NAME       DATA   AGE
settings   2      5s
Error from server (NotFound): configmaps "absent" not found
[exit 1]`,
		want: `NAME       DATA   AGE
settings   2      <age>
Error from server (NotFound): configmaps "absent" not found
[exit 1]`,
	}, {
		name: "rows without a header",
		in:   "web   ClusterIP   10.43.1.2   <none>   80:31234/TCP   4s\n\nrequests.cpu  500m  4",
		want: "web   ClusterIP   <ip-1>   <none>   80:<nodeport-1>/TCP   <age>\n\nrequests.cpu  500m  4",
	}, {
		name: "describe",
		in: `Age:                       3s
Starting Deadline Seconds:  30s
Resource Version:           77
Events:
  Type    Reason   Age                  From    Message
  ----    ------   ----                 ----    -------
  Normal  Created  6y12d (x5 over 7y)   tester  made 2 things`,
		want: `Age:                       <age>
Starting Deadline Seconds:  30s
Resource Version:           <version-1>
Events:
  Type     Reason    Age     From     Message
  ----     ------    ----    ----     -------
  Normal   Created   <age>   tester   made 2 things`,
	}, {
		name: "places and versions",
		in:   "/tmp/x/work/LIVE-123/v1 at https://127.0.0.1:6443 v1.37.1+skiff gen-x7k2p (3s ago)",
		want: "<dir>/LIVE-<n>/v1 at <server> v1.37.1 gen-<name-1> (<age> ago)",
	}, {
		name:     "pods have names, addresses and nodes by chance; ReplicaSets have names by reason",
		literals: "kubectl run my-https",
		in: `my-https web-7bfb4bc78d web-7bfb4bc78d-x7k2p 10.42.1.17 containerd://` + strings.Repeat("0a", 32) + `
Successfully assigned default/web-7bfb4bc78d-x7k2p to hollow-2`,
		want: `my-https web-7bfb4bc78d web-7bfb4bc78d-<random> <pod-ip> containerd://<id>
Successfully assigned default/web-7bfb4bc78d-<random> to <node>`,
	}, {
		name: "what has no order is sorted",
		in:   "first\n\x1e\nNAME        AGE\nweb-zzzzz   1s\nweb-bbbbb   2s\napi-ccccc   3s\n\x1e\n\x1e\nb\na\n\x1e\nlast",
		want: "first\nNAME           AGE\napi-<random>   <age>\nweb-<random>   <age>\nweb-<random>   <age>\na\nb\nlast",
	}} {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) {
			n := newNormaliser(c.literals, "/tmp/x/work", "https://127.0.0.1:6443")
			if diff := cmp.Diff(c.want, n.normalise(c.in)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

package bootstrap

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"skiff/internal/apitest"
	"skiff/internal/controller"
	"skiff/internal/controller/controllertest"
)

// Signatures equal those of upstream's library.
func TestSignature(t *testing.T) {
	const text = "Hello from the other side. I must have called a thousand times."
	for _, c := range [][3]string{
		{text, "my voice is my passcode", "VShe2taLd-YTrmWuRkcL_8QTNDHYxQIEBsAYYiIj1_8"},
		{"", "my voice is my passcode", "7Ui1ALizW4jXphVUB7xUqC9vLYLL9RZeOFfVLoB7Tgk"},
		{text, "", "UfkqvDGiIFxrMnFseDj9LYJOLNrvjW8aHhF71mvvAs8"},
	} {
		if got := signature(c[0], "joshua", c[1]); got != "eyJhbGciOiJIUzI1NiIsImtpZCI6Impvc2h1YSJ9.."+c[2] {
			t.Errorf("the signature of %q with %q is %s", c[0], c[1], got)
		}
	}
}

func token(id string, change map[string]string) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: secretPrefix + id}, Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{idKey: []byte(id), secretKey: []byte("0123456789abcdef"), signingKey: []byte("true")}}
	for key, value := range change {
		s.Data[key] = []byte(value)
	}
	return s
}

// Only valid tokens sign that have not expired and are for signing.
func TestWhichTokensSign(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) map[string]string {
		return map[string]string{expirationKey: now.Add(d).Format(time.RFC3339)}
	}
	other := token("abcdef", nil)
	other.Name = "bootstrap-token-fedcba"
	opaque := token("abcdef", nil)
	opaque.Type = corev1.SecretTypeOpaque
	for what, c := range map[string]struct {
		secret *corev1.Secret
		want   bool
	}{
		"whole":               {token("abcdef", nil), true},
		"living":              {token("abcdef", at(time.Hour)), true},
		"over":                {token("abcdef", at(0)), false},
		"not readable":        {token("abcdef", map[string]string{expirationKey: "tomorrow"}), false},
		"not for signing":     {token("abcdef", map[string]string{signingKey: "false"}), false},
		"a short secret":      {token("abcdef", map[string]string{secretKey: "short"}), false},
		"a wrong id":          {token("ABCDEF", nil), false},
		"another token's":     {other, false},
		"a Secret of another": {opaque, false},
	} {
		if _, _, ok := signingToken(c.secret, now); ok != c.want {
			t.Errorf("%s: signs is %v", what, ok)
		}
	}
}

// cluster-info is signed with every token, and an expired token is deleted, with its signature.
func TestTokensComeAndGo(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, NewSigner, NewCleaner)
	secrets, infos := server.Client().CoreV1().Secrets("kube-system"), server.Client().CoreV1().ConfigMaps("kube-public")
	if _, err := infos.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: clusterInfo}, Data: map[string]string{kubeconfigKey: "a cluster", "mine": "too"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for id, change := range map[string]map[string]string{"stays0": nil, "goes00": {expirationKey: time.Now().Add(2 * time.Second).Format(time.RFC3339)}} {
		if _, err := secrets.Create(t.Context(), token(id, change), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	signedBy := func(want ...string) {
		t.Helper()
		controllertest.Eventually(t, func() string {
			info, err := infos.Get(t.Context(), clusterInfo, metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			for _, id := range want {
				if info.Data[signaturePrefix+id] != signature("a cluster", id, "0123456789abcdef") {
					return "the signature of " + id
				}
			}
			if len(info.Data) != 2+len(want) || info.Data["mine"] != "too" {
				return "no more signatures than " + strings.Join(want, ", ")
			}
			return ""
		})
	}
	signedBy("stays0", "goes00")
	signedBy("stays0")
	controllertest.Eventually(t, func() string {
		if _, err := secrets.Get(t.Context(), secretPrefix+"goes00", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return "the end of a token"
		}
		return ""
	})
	if _, err := secrets.Get(t.Context(), secretPrefix+"stays0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// A token without uses left is deleted when those machines are nodes, or had JoinTime to become some.
func TestAUsedTokenGoes(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	nodes := func(made ...time.Time) corelisters.NodeLister {
		store := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		for _, at := range made {
			if err := store.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one", CreationTimestamp: metav1.NewTime(at)}}); err != nil {
				t.Fatal(err)
			}
		}
		return corelisters.NewNodeLister(store)
	}
	used := func(data map[string]string, by ...string) *corev1.Secret {
		secret := token("abcdef", data)
		for _, node := range by {
			secret = WithUse(secret, Use{Key: "key-of-" + node, Node: node, At: now})
		}
		return secret
	}
	once, twice := map[string]string{UsesKey: "1"}, map[string]string{UsesKey: "2"}
	const gone = "delete Secret kube-system/bootstrap-token-abcdef"
	for what, c := range map[string]struct {
		secret *corev1.Secret
		nodes  corelisters.NodeLister
		after  time.Duration
		want   string
		again  time.Duration
	}{
		"nobody came":                   {used(once), nodes(), 0, "", 0},
		"it is not a node yet":          {used(once, "one"), nodes(), time.Second, "", JoinTime - time.Second},
		"it is a node":                  {used(once, "one"), nodes(now.Add(time.Second)), time.Second, gone, 0},
		"it was one before":             {used(once, "one"), nodes(now.Add(-time.Hour)), time.Second, "", JoinTime - time.Second},
		"it had time enough":            {used(once, "one"), nodes(), JoinTime, gone, 0},
		"one of two came":               {used(twice, "one"), nodes(now.Add(time.Second)), JoinTime, "", 0},
		"the second is not a node yet":  {used(twice, "one", "two"), nodes(now.Add(time.Second)), time.Second, "", JoinTime - time.Second},
		"any number of machines":        {used(nil, "one"), nodes(now.Add(time.Second)), JoinTime, "", 0},
		"made by an older version":      {used(map[string]string{singleUseKey: "true"}, "one"), nodes(now.Add(time.Second)), time.Second, gone, 0},
		"a limit that cannot be read":   {used(map[string]string{UsesKey: "few"}), nodes(), 0, gone, 0},
		"its end comes before its time": {used(map[string]string{UsesKey: "1", expirationKey: now.Add(time.Minute).Format(time.RFC3339)}, "one"), nodes(), 0, "", time.Minute},
	} {
		d := decideToken(c.secret, c.nodes, now.Add(c.after))
		got := ""
		for _, a := range d.Actions {
			got += a.String()
		}
		if got != c.want || d.RequeueAfter != c.again {
			t.Errorf("%s: %q, again after %v", what, got, d.RequeueAfter)
		}
	}
}

// The configured content is published, beside what others write there, and again after it was changed or deleted.
func TestPublishing(t *testing.T) {
	server := apitest.Start(t)
	controllertest.Run(t, server, func(deps controller.Deps) controller.Loop {
		deps.Config.ClusterInfo, deps.Config.ClusterConfig = "whom to trust", "how it is laid out"
		return NewPublisher(deps)
	})
	for _, c := range []struct{ namespace, name, key, want string }{
		{"kube-public", clusterInfo, kubeconfigKey, "whom to trust"}, {"kube-system", ClusterConfigName, ClusterConfigKey, "how it is laid out"},
	} {
		configMaps := server.Client().CoreV1().ConfigMaps(c.namespace)
		published := func(more int) {
			t.Helper()
			controllertest.Eventually(t, func() string {
				is, err := configMaps.Get(t.Context(), c.name, metav1.GetOptions{})
				switch {
				case err != nil:
					return err.Error()
				case is.Data[c.key] != c.want || len(is.Data) != 1+more:
					return "the right content"
				}
				return ""
			})
		}
		published(0)
		if _, err := configMaps.Patch(t.Context(), c.name, types.MergePatchType, []byte(`{"data":{"`+c.key+`":"a forgery","mine":"too"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		published(1)
		if err := configMaps.Delete(t.Context(), c.name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		published(0)
	}
}

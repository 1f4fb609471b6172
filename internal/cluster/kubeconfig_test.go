package cluster

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

func config(name, server string) *api.Config {
	c := api.NewConfig()
	c.Clusters[name] = &api.Cluster{Server: server}
	c.AuthInfos[name] = &api.AuthInfo{Token: "t"}
	c.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name}
	c.CurrentContext = name
	return c
}

// A cluster is added to the user's kubeconfig beside what is there, and takes nothing with it when it goes but itself.
func TestKubeconfigOfTheUser(t *testing.T) {
	dir := t.TempDir()
	user := filepath.Join(dir, "config")
	t.Setenv("KUBECONFIG", user)
	if err := clientcmd.WriteToFile(*config("work", "https://work"), user); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	if err := clientcmd.WriteToFile(*config("mine", "https://mine"), KubeconfigPath(data)); err != nil {
		t.Fatal(err)
	}
	if _, err := MergeKubeconfig(data, "mine"); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.LoadFromFile(user)
	if err != nil {
		t.Fatal(err)
	}
	if got.Clusters["work"] == nil || got.Clusters["mine"].Server != "https://mine" || got.CurrentContext != "mine" {
		t.Fatalf("after merging: %v", got.Clusters)
	}

	other := filepath.Join(dir, "other")
	if err := clientcmd.WriteToFile(*config("mine", "https://other"), KubeconfigPath(other)); err != nil {
		t.Fatal(err)
	}
	if err := ForgetKubeconfig(other, "mine"); err != nil {
		t.Fatal(err)
	}
	if got, err = clientcmd.LoadFromFile(user); err != nil || got.Clusters["mine"] == nil {
		t.Fatalf("another cluster of the same name was forgotten: %v", err)
	}
	if err := Purge(data, "mine"); err != nil {
		t.Fatal(err)
	}
	if got, err = clientcmd.LoadFromFile(user); err != nil || got.Clusters["mine"] != nil || got.Clusters["work"] == nil || got.CurrentContext != "" {
		t.Fatalf("after purging: %v, %v", got, err)
	}
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Fatalf("the data directory is still there: %v", err)
	}
}

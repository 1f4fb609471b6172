package kubectl

import (
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery/cached/disk"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/util"
)

// typed are the commands whose first argument is a resource type: TYPE, TYPE,TYPE or TYPE/NAME.
var typed = []string{"get", "describe", "delete", "edit", "label", "annotate", "patch", "scale", "wait"}

// checkTypesFirst has commands refuse types that cannot exist before the first request.
func checkTypesFirst(root *cobra.Command, flags *genericclioptions.ConfigFlags) {
	for _, c := range root.Commands() {
		if !slices.Contains(typed, c.Name()) || c.Run == nil {
			continue
		}
		run := c.Run
		c.Run = func(cmd *cobra.Command, args []string) {
			if len(args) > 0 && !given(cmd, "filename", "kustomize", "raw") {
				util.CheckErr(checkTypes(args[0], flags))
			}
			run(cmd, args)
		}
	}
}

func given(cmd *cobra.Command, names ...string) bool {
	return slices.ContainsFunc(names, cmd.Flags().Changed)
}

// checkTypes refuses a type whose name no resource can have, and one in a group without a dot that, by the discovery cached on disk, does not
// have it: only groups with a dot get new resources while a server runs. Of all others only the server can tell.
func checkTypes(argument string, flags *genericclioptions.ConfigFlags) error {
	for argument := range strings.SplitSeq(argument, ",") {
		name, _, _ := strings.Cut(argument, "/")
		resource, group, grouped := strings.Cut(strings.ToLower(name), ".")
		if name == "" || strings.HasPrefix(argument, "-") {
			continue // for the command itself to refuse
		}
		if problems := validation.IsDNS1035Label(resource); len(problems) > 0 {
			return fmt.Errorf("the server doesn't have a resource type %q: no type can be called so", name)
		}
		if grouped && !strings.Contains(group, ".") && lacks(cached(flags), group, resource) {
			return fmt.Errorf("the server doesn't have a resource type %q in group %q", resource, group)
		}
	}
	return nil
}

// lacks reports whether a group exists and has no such resource.
func lacks(lists []*metav1.APIResourceList, group, name string) bool {
	there := false
	for _, list := range lists {
		if g, _, _ := strings.Cut(list.GroupVersion, "/"); g != group {
			continue
		}
		there = true
		for _, r := range list.APIResources {
			if r.Name == name || r.SingularName == name || strings.ToLower(r.Kind) == name || slices.Contains(r.ShortNames, name) {
				return false
			}
		}
	}
	return there
}

// cached returns the discovery cache on disk, or nil if it is incomplete or too old.
func cached(flags *genericclioptions.ConfigFlags) []*metav1.APIResourceList {
	config, err := flags.ToRESTConfig()
	if err != nil || flags.CacheDir == nil || *flags.CacheDir == "" {
		return nil
	}
	offline := &rest.Config{Host: config.Host, Transport: nobody{}}
	host := notInFileNames.ReplaceAllString(strings.TrimPrefix(strings.TrimPrefix(config.Host, "https://"), "http://"), "_")
	client, err := disk.NewCachedDiscoveryClientForConfig(offline, filepath.Join(*flags.CacheDir, "discovery", host), "", cacheLife)
	if err != nil {
		return nil
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil
	}
	return lists
}

// cacheLife is how long kubectl uses its discovery cache on disk.
const cacheLife = 6 * time.Hour

// notInFileNames matches the characters that kubectl replaces in the names of its cache directories.
var notInFileNames = regexp.MustCompile(`[^(\w/.)]`)

// nobody is a transport that fails every request.
type nobody struct{}

// RoundTrip fails: only the cache is read.
func (nobody) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("only the discovery cache is read")
}

package stories

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"skiff/internal/controller"
)

var update = flag.Bool("update", false, "write what loops decide into the stories")

// Epoch is the time that stories begin at.
var Epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// Options change how stories are set up and printed.
type Options struct {
	// Prepare completes an object before it is put into the caches, as the API server would.
	Prepare func(controller.Object)
	// Show returns what is printed of an action below its line. Without it, and where it returns nothing, writes of status show the status.
	Show func(controller.Action) string
}

// Addresses is a Prepare that gives Services and pods the IPs that the API server and the node would give them.
func Addresses(obj controller.Object) {
	switch o := obj.(type) {
	case *corev1.Service:
		if o.Spec.IPFamilies == nil {
			o.Spec.ClusterIP, o.Spec.IPFamilies = "10.43.0.7", []corev1.IPFamily{corev1.IPv4Protocol}
		}
	case *corev1.Pod:
		if o.Status.PodIP != "" && o.Status.PodIPs == nil {
			o.Status.PodIPs = []corev1.PodIP{{IP: o.Status.PodIP}}
		}
	}
}

// Run runs all stories in testdata, each with a loop made by new.
func Run(t *testing.T, new func(controller.Deps) controller.Loop, o Options) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no story files in testdata: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) { runFile(t, file, new, o) })
	}
}

func runFile(t *testing.T, file string, new func(controller.Deps) controller.Loop, o Options) {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var rewritten []string
	for _, story := range strings.Split(strings.TrimSpace(string(data)), "\n\n") {
		above, want, _ := strings.Cut(story, "\n----\n")
		above = strings.TrimSuffix(above, "\n----")
		if !strings.Contains(above, "\ndecide ") { // a remark
			rewritten = append(rewritten, story)
			continue
		}
		got, err := runStory(above, new, o)
		if err != nil {
			t.Fatalf("%s:\n%s\n%v", file, above, err)
		}
		got = strings.TrimRight(got, "\n")
		if got != strings.TrimRight(want, "\n") && !*update {
			title, _, _ := strings.Cut(above, "\n")
			t.Errorf("%s: %s\ngot:\n%s\nwant:\n%s", file, title, got, want)
		}
		rewritten = append(rewritten, above+"\n----\n"+got)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(rewritten, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// runStory returns what the loop decides about the objects of a story.
func runStory(above string, new func(controller.Deps) controller.Loop, o Options) (string, error) {
	p := &parser{uids: map[string]types.UID{}}
	for line := range strings.SplitSeq(above, "\n") {
		if err := p.line(line); err != nil {
			return "", err
		}
	}
	if err := p.finish(); err != nil {
		return "", err
	}
	factory := informers.NewSharedInformerFactory(nil, 0)
	loop := new(controller.Deps{Informers: factory})
	for _, obj := range p.objects {
		if o.Prepare != nil {
			o.Prepare(obj)
		}
		informer, err := factory.ForResource(controller.ResourceOf(obj))
		if err != nil {
			return "", err
		}
		if err := informer.Informer().GetIndexer().Add(obj); err != nil {
			return "", err
		}
	}
	before := make([]runtime.Object, len(p.objects))
	for i, obj := range p.objects {
		before[i] = obj.DeepCopyObject()
	}
	var b strings.Builder
	decision := loop.Reconcile(p.key, Epoch.Add(p.at))
	for {
		write(&b, "", decision.Actions, o)
		if decision.Then == nil {
			break
		}
		decision = decision.Then(p.failure)
		if len(decision.Actions) > 0 {
			b.WriteString("then\n")
		}
	}
	if decision.RequeueAfter > 0 {
		fmt.Fprintf(&b, "look again after %v\n", decision.RequeueAfter)
	}
	if decision.Err != nil {
		fmt.Fprintf(&b, "error: %v\n", decision.Err)
	}
	if b.Len() == 0 {
		b.WriteString("nothing\n")
	}
	for i, obj := range p.objects {
		was, err := yaml.Marshal(before[i])
		if err != nil {
			return "", err
		}
		if is, err := yaml.Marshal(obj); err != nil || string(is) != string(was) {
			return "", fmt.Errorf("the loop changed %T %s, which is shared with other loops (%v)", obj, controller.KeyOf(obj), err)
		}
	}
	return b.String(), nil
}

// write prints actions, a line each. Actions of a Parallel or SlowStart are sorted, as nothing depends on their order.
func write(b *strings.Builder, indent string, actions []controller.Action, o Options) {
	for _, action := range actions {
		inner := controller.Inner(action)
		switch {
		case len(inner) == 0:
			b.WriteString(indent + action.String() + "\n")
			for line := range strings.Lines(show(action, o)) {
				b.WriteString(indent + "  " + strings.TrimRight(line, "\n") + "\n")
			}
		case len(inner) == 1:
			write(b, indent, inner, o)
		default:
			what, _, _ := strings.Cut(action.String(), ":")
			b.WriteString(indent + what + ":\n")
			var each []string
			for _, a := range inner {
				var one strings.Builder
				write(&one, indent+"  ", []controller.Action{a}, o)
				each = append(each, one.String())
			}
			if what != "in order" {
				slices.Sort(each)
			}
			b.WriteString(strings.Join(each, ""))
		}
	}
}

func show(action controller.Action, o Options) string {
	if o.Show != nil {
		if s := o.Show(action); s != "" {
			return s
		}
	}
	if _, subresource, obj, ok := controller.Written(action); ok && subresource == "status" {
		return YAML(obj, "status")
	}
	return ""
}

// YAML returns a part of an object, named by its path, or "" if the object has no such part.
func YAML(obj controller.Object, path ...string) string {
	var part any
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return err.Error()
	}
	part = fields
	for _, name := range path {
		m, ok := part.(map[string]any)
		if !ok {
			return ""
		}
		if part, ok = m[name]; !ok {
			return ""
		}
	}
	data, err := yaml.Marshal(part)
	if err != nil {
		return err.Error()
	}
	if strings.TrimSpace(string(data)) == "{}" {
		return ""
	}
	return string(data)
}

// parser reads the lines above "----" of a story.
type parser struct {
	objects []controller.Object
	uids    map[string]types.UID // by Kind/name
	header  []string
	body    []string

	key     controller.Key
	at      time.Duration
	failure error
}

func (p *parser) line(line string) error {
	switch {
	case strings.HasPrefix(line, "#") || line == "":
		return nil
	case strings.HasPrefix(line, " "):
		p.body = append(p.body, line)
		return nil
	}
	if err := p.finish(); err != nil {
		return err
	}
	if text, ok := strings.CutPrefix(line, "then failed: "); ok {
		p.failure = errors.New(text)
		return nil
	}
	words := strings.Fields(line)
	if words[0] != "decide" {
		p.header = words
		return nil
	}
	if len(words) != 2 && !(len(words) == 4 && words[2] == "at") {
		return fmt.Errorf("%q is not: decide KEY [at TIME]", line)
	}
	p.key = keyOf(words[1])
	if strings.HasPrefix(words[1], "/") { // of an object without a namespace
		p.key = controller.Key{Name: words[1][1:]}
	}
	if len(words) == 4 {
		var err error
		p.at, err = time.ParseDuration(words[3])
		return err
	}
	return nil
}

func keyOf(s string) controller.Key {
	if namespace, name, ok := strings.Cut(s, "/"); ok {
		return controller.Key{Namespace: namespace, Name: name}
	}
	return controller.Key{Namespace: metav1.NamespaceDefault, Name: s}
}

// finish builds the object whose lines have been read.
func (p *parser) finish() error {
	header, body := p.header, p.body
	p.header, p.body = nil, nil
	if len(header) == 0 {
		return nil
	}
	kind, err := kindNamed(header[0])
	if err != nil {
		return err
	}
	made, err := scheme.Scheme.New(kind)
	if err != nil {
		return err
	}
	obj := made.(controller.Object)
	if err := yaml.UnmarshalStrict([]byte(strings.Join(body, "\n")), obj); err != nil {
		return fmt.Errorf("%v: %w", header, err)
	}
	key := keyOf(header[1])
	obj.SetName(key.Name)
	if !clusterScoped[kind.Kind] {
		obj.SetNamespace(key.Namespace)
	}
	if obj.GetUID() == "" {
		obj.SetUID(types.UID("uid-of-" + key.Name))
	}
	p.uids[header[0]+"/"+key.Name] = obj.GetUID()
	if obj.GetResourceVersion() == "" {
		obj.SetResourceVersion("1")
	}
	if created := obj.GetCreationTimestamp(); created.IsZero() {
		obj.SetCreationTimestamp(metav1.NewTime(Epoch))
	}
	if len(header) == 4 && header[2] == "of" {
		ownerKind, owner, _ := strings.Cut(header[3], "/")
		gvk, err := kindNamed(ownerKind)
		if err != nil {
			return err
		}
		uid := p.uids[header[3]]
		if uid == "" {
			uid = types.UID("uid-of-" + owner)
		}
		yes := true
		obj.SetOwnerReferences(append(obj.GetOwnerReferences(), metav1.OwnerReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: owner, UID: uid,
			Controller: &yes, BlockOwnerDeletion: &yes}))
	} else if len(header) != 2 {
		return fmt.Errorf("%v is not: KIND NAME [of KIND/NAME]", header)
	}
	p.objects = append(p.objects, obj)
	return nil
}

// clusterScoped holds the kinds in stories whose objects have no namespace.
var clusterScoped = map[string]bool{"Node": true, "Namespace": true, "PersistentVolume": true, "PriorityClass": true, "RuntimeClass": true, "DeviceClass": true, "CSINode": true, "StorageClass": true, "VolumeAttachment": true, "CSIDriver": true, "VolumeAttributesClass": true, "StorageVersionMigration": true, "ResourceSlice": true, "DeviceTaintRule": true}

// versions holds the versions of kinds that loops do not read in v1.
var versions = map[string]string{"HorizontalPodAutoscaler": "v2"}

// kindNamed finds a kind in version v1 of any group, or in that of versions.
func kindNamed(name string) (schema.GroupVersionKind, error) {
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if gvk.Kind == name && gvk.Version == cmp.Or(versions[name], "v1") && gvk.Group != "events.k8s.io" {
			return gvk, nil
		}
	}
	return schema.GroupVersionKind{}, fmt.Errorf("no kind %q", name)
}

package catalogtest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"skiff/internal/catalog"
)

// Options adjust a replay for what only a server can fill in.
type Options struct {
	// Ignore lists dotted paths ("spec.clusterIP", "spec.ports.nodePort": lists are walked) that a server fills in and that
	// are therefore removed on both sides.
	Ignore []string
}

// Run replays every story under testdata/stories through the given declarations.
func Run(t *testing.T, declarations []catalog.Declaration, opts Options) {
	t.Helper()
	infos := map[schema.GroupVersionKind]*catalog.Info{}
	for _, d := range declarations {
		i := d.Info()
		infos[i.GVK] = i
	}
	stories, err := filepath.Glob("testdata/stories/*.yaml")
	if err != nil || len(stories) == 0 {
		t.Fatalf("no stories under testdata/stories (%v)", err)
	}
	for _, file := range stories {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) { replay(t, file, infos, opts) })
	}
}

func replay(t *testing.T, file string, infos map[schema.GroupVersionKind]*catalog.Info, opts Options) {
	steps, err := Load(file)
	if err != nil {
		t.Fatal(err)
	}
	want := loadGolden(t, file)
	if len(want) != len(steps) {
		t.Fatalf("%s has %d answers for %d steps: record it again", Golden(file), len(want), len(steps))
	}
	player := &player{infos: infos, objects: map[string]catalog.Object{}, now: time.Now()}
	for n, step := range steps {
		t.Run(step.Title(), func(t *testing.T) {
			got := player.play(t, step)
			compare(t, got, want[n], opts)
			player.adopt(t, step, want[n])
		})
	}
}

// player applies the steps of a story to declarations, in place of a server.
type player struct {
	infos   map[schema.GroupVersionKind]*catalog.Info
	objects map[string]catalog.Object
	now     time.Time
}

func (p *player) info(t *testing.T, step Step) *catalog.Info {
	info := p.infos[step.Object().GroupVersionKind()]
	if info == nil {
		t.Fatalf("no declaration of %s", step.Object().GroupVersionKind())
	}
	return info
}

func key(step Step) string {
	o := step.Object()
	return o.GetAPIVersion() + "/" + o.GetKind() + "/" + o.GetName()
}

func (p *player) play(t *testing.T, step Step) Answer {
	info := p.info(t, step)
	answer := Answer{Step: step.Title()}
	if info.Deprecated != "" {
		answer.Warnings = []string{info.Deprecated}
	}
	body := step.Body
	old := p.objects[key(step)]
	if step.Verb == "update" {
		if old == nil {
			t.Fatalf("the object to update was not created")
		}
		body = merge(t, toMap(t, info, old), step.Body)
	}
	obj := decode(t, info, body)
	view := obj
	stored := info.Stored
	obj = info.ToStored(obj)
	if stored.Namespaced {
		obj.SetNamespace(Namespace)
	}
	var errs field.ErrorList
	var warnings []string
	if step.Verb == "create" {
		errs = info.ValidateView(t.Context(), view, nil)
		if obj.GetName() == "" && obj.GetGenerateName() != "" {
			obj.SetName(obj.GetGenerateName() + "xxxxx")
		}
		obj.SetUID("00000000-0000-0000-0000-000000000000")
		obj.SetCreationTimestamp(metav1.NewTime(p.now))
		errs = append(errs, stored.BeforeCreate(obj, catalog.Request{Now: p.now,
			User: authenticationv1.UserInfo{Username: "admin", UID: "admin", Groups: []string{"system:masters", "system:authenticated"}}})...)
		warnings = stored.Warnings(obj, nil)
	} else {
		edit := findEdit(t, stored, step.Subresource)
		errs = info.ValidateView(t.Context(), view, old)
		oldStored := info.ToStored(old)
		errs = append(errs, stored.BeforeUpdate(t.Context(), obj, oldStored, edit)...)
		if edit == nil {
			warnings = stored.Warnings(obj, oldStored)
		} else {
			warnings = edit.Warnings(obj, oldStored)
		}
	}
	if len(errs) > 0 {
		answer.Error = Describe(apierrors.NewInvalid(stored.GVK.GroupKind(), obj.GetName(), errs).ErrStatus)
		answer.Error = strings.ReplaceAll(answer.Error, `"`+obj.GetGenerateName()+`xxxxx"`, `"`+obj.GetGenerateName()+`"`)
		return answer
	}
	answer.Warnings = append(answer.Warnings, warnings...)
	answer.Object = Normalize(toMap(t, info, info.FromStored(obj)))
	for _, c := range stored.Columns {
		if step.Verb == "create" {
			answer.Columns = append(answer.Columns, Column(c.TableColumnDefinition))
		}
		answer.Cells = append(answer.Cells, Cell(c.Name, c.Cell(obj, p.now)))
	}
	return answer
}

// adopt takes upstream's answer as the state for the next step, so that one difference does not cause more.
func (p *player) adopt(t *testing.T, step Step, want Answer) {
	if want.Object == nil {
		return
	}
	obj := decode(t, p.info(t, step), maps.Clone(want.Object))
	obj.SetUID(types.UID("00000000-0000-0000-0000-000000000000"))
	obj.SetResourceVersion("1")
	obj.SetCreationTimestamp(metav1.NewTime(p.now))
	if obj.GetName() == "" {
		return
	}
	p.objects[key(step)] = obj
}

func findEdit(t *testing.T, info *catalog.Info, name string) *catalog.EditInfo {
	if name == "" {
		return nil
	}
	for _, e := range info.Edits {
		if e.Name == name {
			return e
		}
	}
	t.Fatalf("%s has no subresource %q", info.GVR, name)
	return nil
}

func decode(t *testing.T, info *catalog.Info, body map[string]any) catalog.Object {
	t.Helper()
	data, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	obj := info.New()
	strict, err := kjson.UnmarshalStrict(data, obj)
	if err != nil || len(strict) > 0 {
		t.Fatalf("the story does not decode: %v %v", err, strict)
	}
	info.Default(obj)
	return obj.(catalog.Object)
}

func toMap(t *testing.T, info *catalog.Info, obj catalog.Object) map[string]any {
	t.Helper()
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		t.Fatal(err)
	}
	out["apiVersion"], out["kind"] = info.GVK.GroupVersion().String(), info.GVK.Kind
	return out
}

func merge(t *testing.T, live, patch map[string]any) map[string]any {
	t.Helper()
	l, err := json.Marshal(live)
	if err != nil {
		t.Fatal(err)
	}
	p, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	merged, err := jsonpatch.MergePatch(l, p)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(merged, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func loadGolden(t *testing.T, file string) []Answer {
	t.Helper()
	data, err := os.ReadFile(Golden(file))
	if err != nil {
		t.Fatalf("%v (record it with `go run ./test/record`)", err)
	}
	answers, err := ParseGolden(data)
	if err != nil {
		t.Fatalf("%s: %v", Golden(file), err)
	}
	return answers
}

func compare(t *testing.T, got, want Answer, opts Options) {
	t.Helper()
	want.Object = runtime.DeepCopyJSON(want.Object) // the next step begins with all of it
	for _, path := range opts.Ignore {
		remove(got.Object, strings.Split(path, "."))
		remove(want.Object, strings.Split(path, "."))
	}
	slices.Sort(got.Warnings)
	slices.Sort(want.Warnings)
	g, err := Render([]Answer{got})
	if err != nil {
		t.Fatal(err)
	}
	w, err := Render([]Answer{want})
	if err != nil {
		t.Fatal(err)
	}
	if diff := Diff(string(w), string(g)); diff != "" {
		t.Errorf("differs from upstream (- upstream, + skiff):\n%s", diff)
	}
}

func remove(v any, path []string) {
	switch v := v.(type) {
	case map[string]any:
		if len(path) == 1 {
			delete(v, path[0])
			return
		}
		remove(v[path[0]], path[1:])
	case []any:
		for _, item := range v {
			remove(item, path)
		}
	}
}

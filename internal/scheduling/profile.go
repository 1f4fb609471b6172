package scheduling

import (
	"fmt"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	schedv1 "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// NewProfile returns the plugins of a profile of KubeSchedulerConfiguration: the default plugins, with what the profile enables, disables and weighs
// otherwise, and their arguments (defaulted and validated as in kube-scheduler). An empty profile is the default one. PreFilter belongs to a plugin's
// filter and PreScore to its score: the preFilter and preScore sets of a profile choose nothing by themselves.
func NewProfile(p schedv1.KubeSchedulerProfile) (*Profile, error) {
	b := &builder{profile: p, plugins: map[string]Plugin{}}
	var custom schedv1.Plugins
	if p.Plugins != nil {
		custom = *p.Plugins
	}
	b.multiPoint = withDefaults(custom.MultiPoint)
	for i := range p.PluginConfig {
		name := p.PluginConfig[i].Name
		if slices.ContainsFunc(p.PluginConfig[:i], func(other schedv1.PluginConfig) bool { return other.Name == name }) {
			return nil, fmt.Errorf("repeated config for plugin %s", name)
		}
	}
	out := &Profile{SchedulerName: ptr.Deref(p.SchedulerName, corev1.DefaultSchedulerName), PercentageOfNodesToScore: p.PercentageOfNodesToScore}
	var sorts []QueueSort
	var scores []ScorePlugin
	err := b.each(
		func() error { return collect(b, "PreEnqueuePlugin", custom.PreEnqueue, &out.PreEnqueues) },
		func() error { return collect(b, "QueueSortPlugin", custom.QueueSort, &sorts) },
		func() error { return collect(b, "FilterPlugin", custom.Filter, &out.Filters) },
		func() error { return collect(b, "ScorePlugin", custom.Score, &scores) },
		func() (err error) {
			out.PostFilters, err = b.names("PostFilterPlugin", custom.PostFilter, DefaultPreemption)
			return
		},
		func() (err error) { out.Binders, err = b.names("BindPlugin", custom.Bind, DefaultBinder); return },
	)
	if err != nil {
		return nil, err
	}
	if len(sorts) != 1 {
		return nil, fmt.Errorf("only one queue sort plugin required for profile with scheduler name %q, but got %d", out.SchedulerName, len(sorts))
	}
	if len(out.Binders) == 0 {
		return nil, fmt.Errorf("at least one bind plugin is needed for profile with scheduler name %q", out.SchedulerName)
	}
	out.QueueSort = sorts[0]
	out.Scores, err = weigh(scores, append(slices.Clone(custom.Score.Enabled), b.multiPoint...))
	return out, err
}

// builder creates each plugin of a profile once.
type builder struct {
	profile    schedv1.KubeSchedulerProfile
	multiPoint []schedv1.Plugin // enabled at all extension points that they have
	plugins    map[string]Plugin
}

func (*builder) each(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// withDefaults returns the default plugins, as changed by a profile.
func withDefaults(custom schedv1.PluginSet) []schedv1.Plugin {
	var out []schedv1.Plugin
	replaced := map[string]bool{}
	if !has(custom.Disabled, "*") {
		for _, d := range defaultPlugins {
			if has(custom.Disabled, d.name) {
				continue
			}
			plugin := schedv1.Plugin{Name: d.name}
			if d.weight > 0 {
				plugin.Weight = ptr.To(d.weight)
			}
			if i := slices.IndexFunc(custom.Enabled, func(p schedv1.Plugin) bool { return p.Name == d.name }); i >= 0 {
				plugin, replaced[d.name] = custom.Enabled[i], true
			}
			out = append(out, plugin)
		}
	}
	for _, p := range custom.Enabled {
		if !replaced[p.Name] {
			out = append(out, p)
		}
	}
	return out
}

func has(list []schedv1.Plugin, name string) bool {
	return slices.ContainsFunc(list, func(p schedv1.Plugin) bool { return p.Name == name })
}

// order returns the plugins of one extension point: those of its own set that are also in multiPoint, then the others of multiPoint, then the rest of its
// own set. extends reports which plugins of multiPoint implement the extension point.
func (b *builder) order(point string, set schedv1.PluginSet, extends func(name string) (bool, error)) ([]string, error) {
	for i, p := range set.Enabled {
		ok, err := extends(p.Name)
		if err != nil {
			return nil, err
		}
		if !ok && !elsewhere[p.Name] {
			return nil, fmt.Errorf("plugin %q does not extend %s plugin", p.Name, point)
		}
		if has(set.Enabled[:i], p.Name) {
			return nil, fmt.Errorf("plugin %q already registered as %q", p.Name, point)
		}
	}
	var overrides, everywhere, own []string
	if !has(set.Disabled, "*") {
		for i, p := range b.multiPoint {
			ok, err := extends(p.Name)
			if err != nil {
				return nil, err
			}
			if !ok || has(set.Disabled, p.Name) || has(set.Enabled, p.Name) {
				continue
			}
			if has(b.multiPoint[:i], p.Name) {
				return nil, fmt.Errorf("plugin %q already registered as %q", p.Name, point)
			}
			everywhere = append(everywhere, p.Name)
		}
	}
	for _, p := range set.Enabled {
		if has(b.multiPoint, p.Name) && !has(set.Disabled, "*") && !has(set.Disabled, p.Name) {
			overrides = append(overrides, p.Name)
		} else {
			own = append(own, p.Name)
		}
	}
	return slices.Concat(overrides, everywhere, own), nil
}

// collect creates the plugins of one extension point.
func collect[T Plugin](b *builder, point string, set schedv1.PluginSet, into *[]T) error {
	names, err := b.order(point, set, func(name string) (bool, error) {
		plugin, err := b.plugin(point, name)
		_, ok := plugin.(T)
		return ok, err
	})
	for _, name := range names {
		if plugin, ok := b.plugins[name].(T); ok {
			*into = append(*into, plugin)
		}
	}
	return err
}

// names returns the plugins of an extension point that the scheduler implements.
func (b *builder) names(point string, set schedv1.PluginSet, known string) ([]string, error) {
	names, err := b.order(point, set, func(name string) (bool, error) {
		_, err := b.plugin(point, name)
		return name == known, err
	})
	return slices.DeleteFunc(names, func(name string) bool { return name != known }), err
}

// plugin returns a plugin by name, nil if it is in elsewhere.
func (b *builder) plugin(point, name string) (Plugin, error) {
	if plugin, done := b.plugins[name]; done || elsewhere[name] {
		return plugin, nil
	}
	plugin, err := b.newPlugin(name)
	if err != nil {
		return nil, fmt.Errorf("initializing plugin %q: %w", name, err)
	}
	if plugin == nil {
		return nil, fmt.Errorf("%s %q does not exist", point, name)
	}
	b.plugins[name] = plugin
	return plugin, nil
}

// weigh gives each plugin the first weight found for it.
func weigh(plugins []ScorePlugin, weights []schedv1.Plugin) ([]WeightedScore, error) {
	var out []WeightedScore
	var total int64
	for _, p := range plugins {
		weight := int64(1)
		if i := slices.IndexFunc(weights, func(w schedv1.Plugin) bool { return w.Name == p.Name() }); i >= 0 {
			if w := ptr.Deref(weights[i].Weight, 0); w != 0 {
				weight = int64(w)
			}
		}
		if weight*MaxScore > math.MaxInt64-total {
			return nil, fmt.Errorf("score plugins: total score of Score plugins could overflow")
		}
		total += weight * MaxScore
		out = append(out, WeightedScore{p, weight})
	}
	return out, nil
}

// withArgs creates a plugin with its arguments from the profile; check also sets defaults.
func withArgs[A any, P Plugin](b *builder, name string, check func(*A, *field.Path) error, make func(*A) (P, error)) (Plugin, error) {
	args := new(A)
	var path *field.Path
	for i := range b.profile.PluginConfig {
		if config := &b.profile.PluginConfig[i]; config.Name == name {
			path = field.NewPath("pluginConfig").Index(i).Child("args")
			if err := decodeArgs(config, args); err != nil {
				return nil, fmt.Errorf("decoding %s: %w", path, err)
			}
		}
	}
	if err := check(args, path); err != nil {
		return nil, err
	}
	return make(args)
}

// decodeArgs decodes a plugin's arguments strictly: from an object, or from JSON or YAML.
func decodeArgs[A any](config *schedv1.PluginConfig, args *A) error {
	if config.Args.Object != nil {
		from, ok := config.Args.Object.DeepCopyObject().(any).(*A)
		if !ok {
			return fmt.Errorf("args for plugin %s were not of type %sArgs, got %T", config.Name, config.Name, config.Args.Object)
		}
		*args = *from
		return nil
	}
	if len(config.Args.Raw) == 0 {
		return nil
	}
	data, err := yaml.YAMLToJSON(config.Args.Raw)
	if err != nil {
		return err
	}
	var meta struct {
		Kind string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &meta); err != nil {
		return err
	}
	if meta.Kind != "" && meta.Kind != config.Name+"Args" {
		return fmt.Errorf("args for plugin %s were not of type %sArgs, got %s", config.Name, config.Name, meta.Kind)
	}
	unknown, err := kjson.UnmarshalStrict(data, args)
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("strict decoding error: %w", unknown[0])
	}
	return err
}

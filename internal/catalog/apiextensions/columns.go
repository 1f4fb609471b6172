package apiextensions

import (
	"slices"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"skiff/internal/catalog"
)

func columns() []catalog.Column[definition] {
	text := func(name, description string, priority int32, value func(*definition) string) catalog.Column[definition] {
		return catalog.Column[definition]{Name: name, Description: description, Priority: priority,
			Cell: func(d *definition, _ time.Time) any { return value(d) }}
	}
	return []catalog.Column[definition]{
		catalog.NameColumn[definition](),
		text("Scope", "Cluster/Namespaced", 0, func(d *definition) string { return string(d.Spec.Scope) }),
		text("Versions", "Served versions", 0, servedVersions),
		catalog.CreatedAtColumn[definition](),
		text("Group", "API group", 1, func(d *definition) string { return d.Spec.Group }),
		text("Kind", "CustomResource kind", 1, func(d *definition) string { return d.Spec.Names.Kind }),
		text("ShortNames", "Short names", 1, func(d *definition) string { return strings.Join(d.Spec.Names.ShortNames, ",") }),
		{Name: "Established", Type: "boolean", Description: "Established status", Priority: 1,
			Cell: func(d *definition, _ time.Time) any {
				return apihelpers.IsCRDConditionTrue(d, apiextensionsv1.Established)
			}},
	}
}

// servedVersions returns the names of the served versions, sorted, and says which one is stored.
func servedVersions(d *definition) string {
	var names []string
	for i := range d.Spec.Versions {
		v := &d.Spec.Versions[i]
		switch {
		case v.Served && v.Storage:
			names = append(names, v.Name+"(storage)")
		case v.Served:
			names = append(names, v.Name)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ",")
}

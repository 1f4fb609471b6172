package schema

import (
	"bytes"
	"encoding/json"
	"reflect"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

var metaDoc = metav1.ObjectMeta{}.SwaggerDoc()

// Columns are the columns of a version's table. The first is the object's name. Without columns of its own a version has the object's age.
type Columns struct {
	Definitions []metav1.TableColumnDefinition

	columns []column // after the name
}

type column struct {
	valueType string
	path      *path
}

// Columns returns the columns of the version's table.
func (s *Schema) Columns() (*Columns, error) {
	p := s.load()
	return p.columns.get(func() (*Columns, error) {
		version, err := s.source()
		if err != nil {
			return nil, err
		}
		c := newColumns(version.AdditionalPrinterColumns)
		p.size.Add(int64(512 * len(c.columns)))
		return c, nil
	})
}

// newColumns returns the columns up to the first whose path cannot be parsed.
func newColumns(definitions []apiextensionsv1.CustomResourceColumnDefinition) *Columns {
	if len(definitions) == 0 {
		definitions = []apiextensionsv1.CustomResourceColumnDefinition{
			{Name: "Age", Type: "date", Description: metaDoc["creationTimestamp"], JSONPath: ".metadata.creationTimestamp"},
		}
	}
	c := &Columns{Definitions: []metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name", Description: metaDoc["name"]}}}
	for _, d := range definitions {
		p, err := newPath(d.JSONPath)
		if err != nil {
			break
		}
		description := d.Description
		if description == "" {
			description = "Custom resource definition column (in JSONPath format): " + d.JSONPath
		}
		c.columns = append(c.columns, column{d.Type, p})
		c.Definitions = append(c.Definitions, metav1.TableColumnDefinition{
			Name: d.Name, Type: d.Type, Format: d.Format, Description: description, Priority: d.Priority,
		})
	}
	return c
}

// Timed says whether a column shows an age, which depends on the time.
func (c *Columns) Timed(i int) bool {
	return i > 0 && c.columns[i-1].valueType == "date"
}

// Cells returns an object's cells, one for each definition. A cell without a value, or with one of another type, is nil.
func (c *Columns) Cells(obj map[string]any, now time.Time) []any {
	cells := make([]any, len(c.Definitions))
	for i := range cells {
		cells[i] = c.Cell(i, obj, now)
	}
	return cells
}

// InFields reports whether a column shows a value of the object's fields, so that Cell can do without apiVersion, kind and metadata.
func (c *Columns) InFields(i int) bool {
	if i == 0 || c.columns[i-1].path.plain == nil {
		return false
	}
	switch c.columns[i-1].path.plain[0] {
	case "apiVersion", "kind", "metadata":
		return false
	}
	return true
}

// Cell returns one of an object's cells.
func (c *Columns) Cell(i int, obj map[string]any, now time.Time) any {
	if i == 0 {
		metadata, _ := obj["metadata"].(map[string]any)
		name, _ := metadata["name"].(string)
		return name
	}
	col := &c.columns[i-1]
	value, found, err := col.path.first(obj)
	switch {
	case err != nil || !found:
		return nil
	case col.valueType == "string":
		return col.path.text(value)
	case col.valueType == "date":
		return age(value, now)
	}
	return cell(col.valueType, value)
}

// Date returns the time that a date column shows the age of, zero if it shows none; false if the cell does not depend on the time.
func (c *Columns) Date(i int, obj map[string]any) (date metav1.Time, ok bool) {
	if !c.Timed(i) {
		return date, false
	}
	value, found, err := c.columns[i-1].path.first(obj)
	text, isText := value.(string)
	if err != nil || !found || !isText || date.UnmarshalQueryParameter(text) != nil {
		return metav1.Time{}, false
	}
	return date, true
}

func age(value any, now time.Time) any {
	text, ok := value.(string)
	if !ok {
		return nil
	}
	var date metav1.Time
	switch err := date.UnmarshalQueryParameter(text); {
	case err != nil:
		return "<invalid>"
	case date.IsZero():
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(date.Time))
}

// cell returns a value as a cell of the given type, nil if it is of another one.
func cell(valueType string, value any) any {
	switch valueType {
	case "integer":
		switch value := value.(type) {
		case int64:
			return value
		case float64:
			return int64(value)
		case json.Number:
			if n, err := value.Int64(); err == nil {
				return n
			}
		}
	case "number":
		switch value := value.(type) {
		case int64:
			return float64(value)
		case float64:
			return value
		case json.Number:
			if n, err := value.Float64(); err == nil {
				return n
			}
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	}
	return nil
}

// text returns a value as kubectl's JSONPath output prints it, nil if it cannot be printed.
func (p *path) text(value any) any {
	if text, ok := value.(string); ok {
		return text
	}
	parser, err := p.parser()
	if err != nil {
		return nil
	}
	defer p.parsers.Put(parser)
	var out bytes.Buffer
	if err := parser.PrintResults(&out, []reflect.Value{reflect.ValueOf(value)}); err != nil {
		return nil
	}
	return out.String()
}

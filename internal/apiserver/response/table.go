package response

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"skiff/internal/apiserver/codec"
	"skiff/internal/apiserver/codec/transcode"
	"skiff/internal/apiserver/registry"
	"skiff/internal/cache"
	"skiff/internal/catalog"
)

// IncludeObject returns what the rows of a table are to have of their objects: the parameter includeObject.
func (rs *Responder) IncludeObject() (metav1.IncludeObjectPolicy, error) {
	include := metav1.IncludeMetadata
	if v := rs.Query.Get("includeObject"); v != "" {
		include = metav1.IncludeObjectPolicy(v)
	}
	switch include {
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return include, nil
	}
	return include, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v",
		field.Invalid(field.NewPath("includeObject"), string(include), "must be 'Metadata', 'Object', 'None', or empty")))
}

// table sends objects as the rows of a table.
func (rs *Responder) table(code int, page registry.Page, single bool) error {
	include, err := rs.IncludeObject()
	if err != nil {
		return err
	}
	meta := ListMeta(page)
	if single {
		meta = metav1.ListMeta{ResourceVersion: meta.ResourceVersion}
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	head := jsonHead(rs.PartialKind("Table"))
	head = append(append(head, `"metadata":`...), m...)
	head = append(append(head, `,"columnDefinitions":`...), rs.Resource.columns()...)
	head = append(head, `,"rows":[`...)
	at := clock{now: time.Now()}
	if rs.Resource.Info.Stored.Arrange != nil && !single {
		if head, err = rs.Resource.appendArranged(head, page.Items, include, rs.Accept.Version, at.now); err != nil {
			return err
		}
		return rs.sendJSON(code, append(head, "]}"...))
	}
	if page.Long() {
		return rs.streamLong(page, head, func(b []byte, it *cache.Item) ([]byte, error) {
			return rs.Resource.appendRow(b, it, include, rs.Accept.Version, &at)
		})
	}
	if include == metav1.IncludeMetadata && len(page.Items) >= streamItems {
		if err := eachFromAnywhere(len(page.Items), func(i int) error {
			_, err := rs.Resource.row(page.Items[i], at.now)
			return err
		}); err != nil {
			return err
		}
	}
	return rs.sendItems(code, head, len(page.Items), typicalRow, func(b []byte, i int) ([]byte, error) {
		return rs.Resource.appendRow(b, page.Items[i], include, rs.Accept.Version, &at)
	})
}

// typicalRow is how large a row is about, to decide whether to compress.
const typicalRow = 1000

// columns is the JSON of the table's columns.
func (res *Resource) columns() []byte {
	definitions := make([]metav1.TableColumnDefinition, len(res.Info.Stored.Columns))
	for i, c := range res.Info.Stored.Columns {
		definitions[i] = c.TableColumnDefinition
	}
	b, err := json.Marshal(definitions)
	if err != nil {
		panic(err) // strings and numbers
	}
	return b
}

// row is a table row kept while its object is hot: its JSON but for the cells that only tell how long ago something was.
type row struct {
	JSON  []byte
	Ages  []age // in the order of their places
	Fixed bool  // no other cell depends on the time
}

// age is a cell that tells the time since then; zero is unknown.
type age struct {
	Place int // in the row's JSON
	Since time.Time
}

// clock tells how long ago things were, at one time. Neighbours in a list are often of the same age, which is told in seconds at the finest.
type clock struct {
	now    time.Time
	last   time.Duration // in seconds, of what was told last
	lately string        // what was told, if anything
}

func (c *clock) since(then time.Time) string {
	if then.IsZero() {
		return catalog.Since(metav1.Time{}, c.now)
	}
	if seconds := c.now.Sub(then) / time.Second; seconds != c.last || c.lately == "" {
		c.last, c.lately = seconds, catalog.Since(metav1.Time{Time: then}, c.now)
	}
	return c.lately
}

func (res *Resource) appendRow(b []byte, it *cache.Item, include metav1.IncludeObjectPolicy, version string, at *clock) ([]byte, error) {
	if include == metav1.IncludeMetadata && version == "v1" {
		r, err := res.row(it, at.now)
		if err != nil {
			return nil, err
		}
		from := 0
		for _, a := range r.Ages {
			b = append(append(b, r.JSON[from:a.Place]...), '"')
			b = append(append(b, at.since(a.Since)...), '"')
			from = a.Place
		}
		return append(b, r.JSON[from:]...), nil
	}
	obj, err := res.Registry.Object(it)
	if err != nil {
		return nil, err
	}
	return res.appendFullRow(b, it, catalog.RowInfo{Object: obj, Cells: res.cells(obj, at.now)}, include, version)
}

func (res *Resource) cells(obj catalog.Object, at time.Time) (cells []any) {
	for _, c := range res.Info.Stored.Columns {
		cells = append(cells, c.Cell(obj, at))
	}
	return cells
}

// appendArranged appends the rows of a list that must be seen as a whole. The resources that need it have few objects.
func (res *Resource) appendArranged(b []byte, items []*cache.Item, include metav1.IncludeObjectPolicy, version string, at time.Time) ([]byte, error) {
	rows := make([]catalog.RowInfo, len(items))
	itemOf := make(map[catalog.Object]*cache.Item, len(items))
	for i, it := range items {
		obj, err := res.Registry.Object(it)
		if err != nil {
			return nil, err
		}
		rows[i], itemOf[obj] = catalog.RowInfo{Object: obj, Cells: res.cells(obj, at)}, it
	}
	res.Info.Stored.Arrange(rows)
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = res.appendFullRow(b, itemOf[row.Object], row, include, version); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (res *Resource) appendFullRow(b []byte, it *cache.Item, row catalog.RowInfo, include metav1.IncludeObjectPolicy, version string) ([]byte, error) {
	full := metav1.TableRow{Cells: row.Cells, Conditions: res.Info.Stored.RowConditions(row.Object)}
	switch include {
	case metav1.IncludeObject:
		body, err := res.json(it)
		if err != nil {
			return nil, err
		}
		full.Object.Raw = codec.AppendKind(nil, res.jsonHead, body)
	case metav1.IncludeMetadata:
		var err error
		if full.Object.Raw, err = PartialJSON(row.Object, version); err != nil {
			return nil, err
		}
	}
	encoded, err := json.Marshal(full)
	return append(b, encoded...), err
}

// row makes or finds the kept row of an item.
func (res *Resource) row(it *cache.Item, at time.Time) (*row, error) {
	if r, ok := it.Kept().(*row); ok {
		return r, nil
	}
	obj, err := res.Registry.Object(it)
	if err != nil {
		return nil, err
	}
	r := &row{Fixed: true}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := append((*buffer)[:0], `{"cells":[`...)
	for i, c := range res.Info.Stored.Columns {
		if i > 0 {
			b = append(b, ',')
		}
		if c.Age != nil {
			r.Ages = append(r.Ages, age{len(b), c.Age(obj).Time})
			continue
		}
		cell := c.Cell(obj, at)
		if c.Timed && cell != c.Cell(obj, at.Add(10000*time.Hour)) {
			r.Fixed = false
		}
		if b, err = appendCell(b, cell); err != nil {
			return nil, err
		}
	}
	b = append(b, ']')
	if conditions := res.Info.Stored.RowConditions(obj); len(conditions) > 0 {
		encoded, err := json.Marshal(conditions)
		if err != nil {
			return nil, err
		}
		b = append(append(b, `,"conditions":`...), encoded...)
	}
	if b, err = appendPartial(append(b, `,"object":`...), partialHead, it); err != nil {
		return nil, err
	}
	*buffer = append(b, '}')
	r.JSON = bytes.Clone(*buffer)
	if r.Fixed {
		it.Keep(res.hot, r, len(r.JSON))
	}
	return r, nil
}

// appendCell appends a cell's JSON.
func appendCell(b []byte, cell any) ([]byte, error) {
	if s, ok := cell.(string); ok {
		return transcode.AppendString(b, []byte(s)), nil
	}
	encoded, err := json.Marshal(cell)
	return append(b, encoded...), err
}

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

// IncludeObject returns the parameter includeObject: how much of its object a row of a table has.
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

// table answers with objects as the rows of a Table. single says that one object was asked for, not a list.
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
		return rs.streamLongJSON(page, head, func(b []byte, it *cache.Item) ([]byte, error) {
			return rs.Resource.appendRow(b, it, include, rs.Accept.Version, &at)
		})
	}
	if include == metav1.IncludeMetadata && len(page.Items) >= minStreamedItems {
		if err := eachFromRandomStart(len(page.Items), func(i int) error {
			_, err := rs.Resource.row(page.Items[i], at.now)
			return err
		}); err != nil {
			return err
		}
	}
	return rs.sendItems(code, head, len(page.Items), typicalRowSize, func(b []byte, i int) ([]byte, error) {
		return rs.Resource.appendRow(b, page.Items[i], include, rs.Accept.Version, &at)
	})
}

// typicalRowSize is the assumed size of a row in bytes; it only decides whether to compress.
const typicalRowSize = 1000

// columns returns the JSON of the columnDefinitions of a table.
func (res *Resource) columns() []byte {
	definitions := make([]metav1.TableColumnDefinition, len(res.Info.Columns))
	for i, c := range res.Info.Columns {
		definitions[i] = c.TableColumnDefinition
	}
	b, err := json.Marshal(definitions)
	if err != nil {
		panic(err) // strings and numbers can be marshaled
	}
	return b
}

// row is the JSON of a table row without its age cells, which is kept while the object is hot.
type row struct {
	of        *catalog.ColumnInfo // the first of its columns, by which rows of other versions are told apart
	JSON      []byte
	Ages      []age // the age cells, by offset
	Cacheable bool  // no other cell depends on the time, so that the row can be kept
}

// age is a cell that shows the time that has passed since a moment; the zero moment is unknown.
type age struct {
	Offset int // in the row's JSON, at which the cell is inserted
	Since  time.Time
}

// clock formats the ages of cells at one moment. It keeps the last text, since neighbours in a list are often of the same age to the second.
type clock struct {
	now      time.Time
	last     time.Duration // the age that was formatted last, in seconds
	lastText string        // the text of that age; empty before the first
}

// since returns the text of the age of something that happened then.
func (c *clock) since(then time.Time) string {
	if then.IsZero() {
		return catalog.Since(metav1.Time{}, c.now)
	}
	if seconds := c.now.Sub(then) / time.Second; seconds != c.last || c.lastText == "" {
		c.last, c.lastText = seconds, catalog.Since(metav1.Time{Time: then}, c.now)
	}
	return c.lastText
}

// columnsOf returns the first column, which all views of a stored resource with the same columns share.
func (res *Resource) columnsOf() *catalog.ColumnInfo { return &res.Info.Columns[0] }

// appendRow appends the JSON of the row of an item.
func (res *Resource) appendRow(b []byte, it *cache.Item, include metav1.IncludeObjectPolicy, version string, at *clock) ([]byte, error) {
	if include == metav1.IncludeMetadata && version == "v1" {
		r, err := res.row(it, at.now)
		if err != nil {
			return nil, err
		}
		from := 0
		for _, a := range r.Ages {
			b = append(append(b, r.JSON[from:a.Offset]...), '"')
			b = append(append(b, at.since(a.Since)...), '"')
			from = a.Offset
		}
		return append(b, r.JSON[from:]...), nil
	}
	obj, err := res.Registry.Decode(it)
	if err != nil {
		return nil, err
	}
	return res.appendFullRow(b, it, catalog.RowInfo{Object: obj, Cells: res.cells(obj, at.now)}, include, version)
}

func (res *Resource) cells(obj catalog.Object, at time.Time) (cells []any) {
	for _, c := range res.Info.Columns {
		cells = append(cells, c.Cell(obj, at))
	}
	return cells
}

// appendArranged appends the rows of a list whose resource arranges rows (catalog.Resource.Arrange). Such resources have few objects.
func (res *Resource) appendArranged(b []byte, items []*cache.Item, include metav1.IncludeObjectPolicy, version string, at time.Time) ([]byte, error) {
	rows := make([]catalog.RowInfo, len(items))
	itemOf := make(map[catalog.Object]*cache.Item, len(items))
	for i, it := range items {
		obj, err := res.Registry.Decode(it)
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

// appendFullRow appends the JSON of a row that is not kept: one with its whole object, in another version, or arranged.
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

// row returns the row of an item, which it keeps if the row is cacheable.
func (res *Resource) row(it *cache.Item, at time.Time) (*row, error) {
	if r, ok := it.Kept().(*row); ok && r.of == res.columnsOf() {
		return r, nil
	}
	obj, err := res.Registry.Decode(it)
	if err != nil {
		return nil, err
	}
	r := &row{of: res.columnsOf(), Cacheable: true}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := append((*buffer)[:0], `{"cells":[`...)
	for i, c := range res.Info.Columns {
		if i > 0 {
			b = append(b, ',')
		}
		if c.Age != nil {
			r.Ages = append(r.Ages, age{len(b), c.Age(obj).Time})
			continue
		}
		cell := c.Cell(obj, at)
		if c.Timed && cell != c.Cell(obj, at.Add(10000*time.Hour)) {
			r.Cacheable = false
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
	if r.Cacheable {
		it.Keep(res.hot, r, len(r.JSON))
	}
	return r, nil
}

// appendCell appends the JSON of a cell.
func appendCell(b []byte, cell any) ([]byte, error) {
	if s, ok := cell.(string); ok {
		return transcode.AppendString(b, []byte(s)), nil
	}
	encoded, err := json.Marshal(cell)
	return append(b, encoded...), err
}

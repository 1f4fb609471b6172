package apiserver

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

// tableOptions are the parameters of a request for a table.
type tableOptions struct {
	include metav1.IncludeObjectPolicy
}

func (rq *Request) tableOptions() (tableOptions, error) {
	o := tableOptions{include: metav1.IncludeMetadata}
	if v := rq.Query.Get("includeObject"); v != "" {
		o.include = metav1.IncludeObjectPolicy(v)
	}
	switch o.include {
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return o, nil
	}
	return o, apierrors.NewBadRequest(fmt.Sprintf("Unable to convert to Table as requested: %v",
		field.Invalid(field.NewPath("includeObject"), string(o.include), "must be 'Metadata', 'Object', 'None', or empty")))
}

// answerTable sends objects as the rows of a table.
func (rq *Request) answerTable(code int, page registry.Page, single bool) error {
	opts, err := rq.tableOptions()
	if err != nil {
		return err
	}
	meta := listMeta(page)
	if single {
		meta = metav1.ListMeta{ResourceVersion: meta.ResourceVersion}
	}
	m, err := json.Marshal(meta)
	if err != nil {
		return err
	}
	head := jsonHead(rq.partialKind("Table"))
	head = append(append(head, `"metadata":`...), m...)
	head = append(append(head, `,"columnDefinitions":`...), rq.Endpoint.columns()...)
	head = append(head, `,"rows":[`...)
	at := clock{now: now()}
	if rq.Endpoint.Info.Stored.Arrange != nil && !single {
		if head, err = rq.Endpoint.appendArranged(head, page.Items, opts.include, rq.Accept.Version, at.now); err != nil {
			return err
		}
		return rq.sendJSON(code, append(head, "]}"...))
	}
	if page.Long() {
		return rq.streamLong(page, head, func(b []byte, it *cache.Item) ([]byte, error) {
			return rq.Endpoint.appendRow(b, it, opts.include, rq.Accept.Version, &at)
		})
	}
	if opts.include == metav1.IncludeMetadata && len(page.Items) >= streamItems {
		if err := eachFromAnywhere(len(page.Items), func(i int) error {
			_, err := rq.Endpoint.row(page.Items[i], at.now)
			return err
		}); err != nil {
			return err
		}
	}
	return rq.sendItems(code, head, len(page.Items), typicalRow, func(b []byte, i int) ([]byte, error) {
		return rq.Endpoint.appendRow(b, page.Items[i], opts.include, rq.Accept.Version, &at)
	})
}

// typicalRow is how large a row is about, to decide whether to compress.
const typicalRow = 1000

// columns is the JSON of the table's columns.
func (e *endpoint) columns() []byte {
	definitions := make([]metav1.TableColumnDefinition, len(e.Info.Stored.Columns))
	for i, c := range e.Info.Stored.Columns {
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

func (e *endpoint) appendRow(b []byte, it *cache.Item, include metav1.IncludeObjectPolicy, version string, at *clock) ([]byte, error) {
	if include == metav1.IncludeMetadata && version == "v1" {
		r, err := e.row(it, at.now)
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
	obj, err := e.Registry.Object(it)
	if err != nil {
		return nil, err
	}
	return e.appendFullRow(b, it, catalog.RowInfo{Object: obj, Cells: e.cells(obj, at.now)}, include, version)
}

func (e *endpoint) cells(obj catalog.Object, at time.Time) (cells []any) {
	for _, c := range e.Info.Stored.Columns {
		cells = append(cells, c.Cell(obj, at))
	}
	return cells
}

// appendArranged appends the rows of a list that must be seen as a whole. The resources that need it have few objects.
func (e *endpoint) appendArranged(b []byte, items []*cache.Item, include metav1.IncludeObjectPolicy, version string, at time.Time) ([]byte, error) {
	rows := make([]catalog.RowInfo, len(items))
	itemOf := make(map[catalog.Object]*cache.Item, len(items))
	for i, it := range items {
		obj, err := e.Registry.Object(it)
		if err != nil {
			return nil, err
		}
		rows[i], itemOf[obj] = catalog.RowInfo{Object: obj, Cells: e.cells(obj, at)}, it
	}
	e.Info.Stored.Arrange(rows)
	for i, row := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = e.appendFullRow(b, itemOf[row.Object], row, include, version); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (e *endpoint) appendFullRow(b []byte, it *cache.Item, row catalog.RowInfo, include metav1.IncludeObjectPolicy, version string) ([]byte, error) {
	full := metav1.TableRow{Cells: row.Cells, Conditions: e.Info.Stored.RowConditions(row.Object)}
	switch include {
	case metav1.IncludeObject:
		body, err := e.json(it)
		if err != nil {
			return nil, err
		}
		full.Object.Raw = codec.AppendKind(nil, e.jsonHead, body)
	case metav1.IncludeMetadata:
		var err error
		if full.Object.Raw, err = partialJSON(row.Object, version); err != nil {
			return nil, err
		}
	}
	encoded, err := json.Marshal(full)
	return append(b, encoded...), err
}

// row makes or finds the kept row of an item.
func (e *endpoint) row(it *cache.Item, at time.Time) (*row, error) {
	if r, ok := it.Kept().(*row); ok {
		return r, nil
	}
	obj, err := e.Registry.Object(it)
	if err != nil {
		return nil, err
	}
	r := &row{Fixed: true}
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	b := append((*buffer)[:0], `{"cells":[`...)
	for i, c := range e.Info.Stored.Columns {
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
	if conditions := e.Info.Stored.RowConditions(obj); len(conditions) > 0 {
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
		it.Keep(e.hot, r, len(r.JSON))
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

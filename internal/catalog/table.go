package catalog

// Row is a row of a table: an object, and a cell for each column.
type Row[T any] struct {
	Object *T
	Cells  []any
}

// RowInfo is a Row with its type erased.
type RowInfo struct {
	Object Object
	Cells  []any
}

func eraseArrange[T any](arrange func([]Row[T])) func([]RowInfo) {
	if arrange == nil {
		return nil
	}
	return func(rows []RowInfo) {
		typed := make([]Row[T], len(rows))
		for i, row := range rows {
			typed[i] = Row[T]{any(row.Object).(*T), row.Cells}
		}
		arrange(typed)
		for i, row := range typed {
			rows[i] = RowInfo{any(row.Object).(Object), row.Cells}
		}
	}
}

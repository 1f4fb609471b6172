package differential

import (
	"regexp"
	"strings"
)

var (
	header  = regexp.MustCompile(`^[A-Z][A-Z0-9-]*(\([A-Z]\))?(( | {2,})[A-Z%][A-Z0-9-]*(\([A-Z]\))?)*$`)
	spaces  = regexp.MustCompile(` {2,}`)
	heading = regexp.MustCompile(`[^ ]+( [^ ]+)*`)
)

// events matches the header of the table of events in the output of describe.
var events = regexp.MustCompile(`^ +Type +Reason +Age +From +Message$`)

// message matches kubectl's messages after a table, and the exit status that run appends.
var message = regexp.MustCompile(`^(Error|error|Warning|No resources|\[exit|\[no end)`)

func isHeader(line string) bool {
	return header.MatchString(strings.TrimRight(line, " ")) || events.MatchString(line)
}

// tableEnd returns the index after the last row of the table whose header is at start.
func tableEnd(lines []string, start int) int {
	end := start + 1
	for end < len(lines) && lines[end] != "" && lines[end] != separator && !isHeader(lines[end]) && !message.MatchString(lines[end]) {
		end++
	}
	return end
}

// table normalises the cells of a table and aligns its columns again, because their width depends on the cells.
func (n *normaliser) table(head string, rows []string) []string {
	var starts []int
	for _, at := range heading.FindAllStringIndex(head, -1) {
		starts = append(starts, at[0])
	}
	table := [][]string{splitAt(head, starts)}
	for _, row := range rows {
		cells := splitAt(row, starts)
		if cells == nil {
			cells = splitRow(row, len(starts))
		}
		if cells == nil { // not a row
			table = append(table, []string{n.line(row)})
			continue
		}
		for i, cell := range cells {
			cells[i] = n.cell(table[0][i], cell)
		}
		table = append(table, cells)
	}
	return align(table, len(starts), head[:starts[0]])
}

func (n *normaliser) cell(column, cell string) string {
	switch {
	case ageColumns[column] && ageCell.MatchString(cell):
		return "<age>"
	case column == "REQUESTOR":
		return "<user>"
	}
	return n.values(cell)
}

// splitAt splits a row where the columns of the header start; it returns nil if the cells do not start there.
func splitAt(row string, starts []int) []string {
	var cells []string
	for i, start := range starts {
		end := len(row)
		if i+1 < len(starts) && starts[i+1] < end {
			end = starts[i+1]
		}
		if start >= len(row) {
			cells = append(cells, "")
			continue
		}
		if start > 0 && row[start-1] != ' ' {
			return nil
		}
		cell := strings.TrimSpace(row[start:end])
		if strings.Contains(cell, "  ") {
			return nil
		}
		cells = append(cells, cell)
	}
	return cells
}

// splitRow splits a row that is wider than its header, as later rows of a watch can be, at its padding.
func splitRow(row string, columns int) []string {
	cells := spaces.Split(strings.TrimRight(row, " "), -1)
	if len(cells) != columns {
		return nil
	}
	return cells
}

func align(table [][]string, columns int, indent string) []string {
	widths := make([]int, columns)
	for _, row := range table {
		if len(row) == columns {
			for i, cell := range row {
				widths[i] = max(widths[i], len(cell))
			}
		}
	}
	var lines []string
	for _, row := range table {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i+1 < len(row) {
				b.WriteString(strings.Repeat(" ", widths[i]-len(cell)+3))
			}
		}
		lines = append(lines, indent+b.String())
	}
	return lines
}

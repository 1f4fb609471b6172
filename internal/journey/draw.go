package journey

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
)

// DrawOptions are the options of Tree.Draw.
type DrawOptions struct {
	Stages bool // draw the stages of every request, not only of the first
	Later  bool // also draw what happened long after the object was ready
	Color  bool // use a terminal's colors
}

// settleTime is how long after an object was ready what happens is still drawn without DrawOptions.Later.
const settleTime = 2 * time.Second

// Draw writes a tree for people: a line for each node, with its start and duration, below its cause. The nodes on
// the critical path are marked with a star.
func (t *Tree) Draw(w io.Writer, o DrawOptions) error {
	d := drawing{out: bufio.NewWriter(w), options: o}
	fmt.Fprintf(d.out, "%s\n", t.headline())
	for i, root := range t.Roots {
		d.began, d.last = root.Start, time.Time{}
		if !o.Later && !t.Ready.IsZero() && i == 0 {
			d.last = t.Ready.Add(settleTime)
		}
		fmt.Fprintf(d.out, "\n%s\n         AT       TOOK\n", root.Start.Local().Format("2006-01-02 15:04:05.000"))
		d.line(root, root.line(true))
		d.below(root, "", i == 0 || o.Stages)
	}
	if longest := t.longest(5); len(longest) > 0 {
		fmt.Fprintf(d.out, "\nlongest on the critical path (*): %s\n", strings.Join(longest, ", "))
	}
	return d.out.Flush()
}

func (t *Tree) headline() string {
	s := t.Title()
	switch pods := t.pods(); {
	case len(t.Roots) == 0:
		return s + ": nothing is remembered of it"
	case !t.Ready.IsZero() && pods > 1:
		s += fmt.Sprintf(": %d pods ready after %s", pods, Took(t.Ready.Sub(t.Roots[0].Start)))
	case !t.Ready.IsZero():
		s += ": ready after " + Took(t.Ready.Sub(t.Roots[0].Start))
	}
	if !t.Whole {
		s += " (its beginning is not remembered)"
	}
	return s
}

// Title returns the object as people write it, such as "pod/web-1 in default".
func (t *Tree) Title() string {
	s := Describe(t.Resource, t.Name)
	if t.Namespace != "" {
		s += " in " + t.Namespace
	}
	return s
}

// pods returns the number of pods that were ready at some time.
func (t *Tree) pods() int {
	ready := map[string]bool{}
	t.each(func(n *Node) {
		if n.Kind == KindWork && n.Stage == Ready && n.Error == "" {
			ready[n.UID] = true
		}
	})
	return len(ready)
}

// each calls visit for all nodes below the first root.
func (t *Tree) each(visit func(*Node)) {
	if len(t.Roots) > 0 {
		t.Roots[0].Walk(func(n *Node, _ int) { visit(n) })
	}
}

// longest returns the parts of the critical path that took the most time, not counting their children.
func (t *Tree) longest(most int) []string {
	type part struct {
		text string
		took time.Duration
	}
	var parts []part
	t.each(func(n *Node) {
		if !n.Critical || n.Kind == KindStage {
			return
		}
		self := n.Duration
		for _, c := range n.Children {
			if c.Critical && c.Kind != KindStage && c.End().Before(n.End().Add(slack)) {
				self -= c.Duration
			}
		}
		if self > 0 {
			parts = append(parts, part{n.short() + " " + Took(self), self})
		}
	})
	slices.SortStableFunc(parts, func(a, b part) int { return cmp.Compare(b.took, a.took) })
	var out []string
	for _, p := range parts[:min(len(parts), most)] {
		out = append(out, p.text)
	}
	return out
}

// drawing is the state of drawing a tree.
type drawing struct {
	out     *bufio.Writer
	options DrawOptions
	began   time.Time // start of the root
	last    time.Time // nodes that begin later are left out; zero if none are
}

// below draws the nodes below a node; indent is the prefix of each line.
func (d *drawing) below(n *Node, indent string, stages bool) {
	var shown []*Node
	events, later := 0, 0
	for _, c := range n.Children {
		switch {
		case c.Kind == KindStage && !stages:
		case c.Kind == KindRequest && strings.HasPrefix(c.Resource, "events") && c.Code < 300:
			events++
		case !d.last.IsZero() && c.Start.After(d.last):
			c.Walk(func(n *Node, _ int) {
				if n.Kind != KindStage {
					later++
				}
			})
		default:
			shown = append(shown, c)
		}
	}
	var notes []string
	if n.Kind == KindWork {
		notes = n.verdicts()
	}
	var after []string
	if events > 0 {
		after = append(after, plural(events, "event"))
	}
	if later > 0 {
		after = append(after, plural(later, "later thing")+" left out")
	}
	if n.Elsewhere > 0 {
		after = append(after, plural(n.Elsewhere, "other thing")+" came of it")
	}
	lines := len(notes) + len(shown) + len(after)
	next := func() (string, string) {
		if lines--; lines == 0 {
			return indent + "└─ ", indent + "   "
		}
		return indent + "├─ ", indent + "│  "
	}
	for _, note := range notes {
		before, _ := next()
		fmt.Fprintf(d.out, "%24s%s%s\n", "", before, Printable(note))
	}
	for _, c := range shown {
		before, below := next()
		d.line(c, before+c.line(false))
		d.below(c, below, d.options.Stages)
	}
	for _, note := range after {
		before, _ := next()
		fmt.Fprintf(d.out, "%24s%s%s\n", "", before, note)
	}
}

func (d *drawing) line(n *Node, text string) {
	mark, on, off := " ", "", ""
	if n.Critical {
		mark = "*"
		if d.options.Color {
			on, off = "\x1b[1m", "\x1b[0m"
		}
	}
	if d.options.Color && n.failed() {
		on, off = "\x1b[31m", "\x1b[0m"
	}
	fmt.Fprintf(d.out, "%s%s%10s %10s  %s%s\n", on, mark, Took(n.Start.Sub(d.began)), Took(n.Duration), Printable(text), off)
}

func (n *Node) failed() bool { return n.Error != "" || n.Code >= 400 }

// line returns a node as a line of text.
func (n *Node) line(root bool) string {
	switch n.Kind {
	case KindStage:
		return n.Stage
	case KindRequest:
		s := n.Stage + " " + Describe(n.Resource, n.Name) + ", " + n.Component
		if root && n.User != "" {
			s += " as " + n.User
		}
		if n.Code != 0 && (n.Code >= 300 || root) {
			s += fmt.Sprintf(": %d", n.Code)
		}
		return s
	}
	if text := n.call(); text != "" {
		return text
	}
	s := n.Stage
	if details := n.details(); details != "" {
		s += " " + details
	}
	s += ", " + n.Component
	if n.Error != "" {
		s += ": " + n.Error
	}
	return s
}

// short returns a node in a few words.
func (n *Node) short() string {
	if n.Kind == KindRequest {
		return n.Stage + " " + Describe(n.Resource, n.Name)
	}
	s := n.Stage
	if called := n.called(); called != "" {
		return s + " " + called
	} else if c := n.Attribute("container"); c != "" {
		s += " " + c
	} else if n.Stage == Decide {
		return n.Component
	}
	return s + " of " + n.Name
}

// details returns the attributes that are shown in a node's line.
func (n *Node) details() string {
	var parts []string
	for _, a := range n.Attributes {
		switch {
		case strings.HasPrefix(a.Key, AboutNode):
		case n.Stage == Decide && a.Key == "key":
			parts = append(parts, a.Value+":")
		case n.Stage == Decide && a.Value == "1":
			parts = append(parts, a.Key+",")
		case n.Stage == Decide:
			parts = append(parts, a.Key+" × "+a.Value+",")
		case a.Key == "attempt" && a.Value == "1":
		case a.Key == "container":
			parts = append(parts, "of "+a.Value+",")
		case a.Key == n.Stage:
			parts = append(parts, a.Value+",")
		default:
			parts = append(parts, a.Key+" "+a.Value+",")
		}
	}
	return strings.TrimSuffix(strings.Join(parts, " "), ",")
}

// verdicts returns the attributes about nodes of the cluster, a line each.
func (n *Node) verdicts() (lines []string) {
	for _, a := range n.Attributes {
		if node, ok := strings.CutPrefix(a.Key, AboutNode); ok {
			if node == n.Attribute("node") {
				node += " (chosen)"
			}
			lines = append(lines, node+": "+a.Value)
		}
	}
	return lines
}

// Describe returns an object as people write it: "deployment.apps/nginx", "pod/web-1 binding".
func Describe(resource, name string) string {
	whole, sub, _ := strings.Cut(resource, "/")
	plural, group, grouped := strings.Cut(whole, ".")
	s := singular(plural)
	if grouped {
		s += "." + group
	}
	if name != "" {
		s += "/" + name
	}
	if sub != "" {
		s += " " + sub
	}
	return s
}

func singular(plural string) string {
	for _, rule := range [][2]string{{"ies", "y"}, {"sses", "ss"}, {"xes", "x"}, {"ches", "ch"}, {"s", ""}} {
		if stem, ok := strings.CutSuffix(plural, rule[0]); ok && plural != "endpoints" {
			return stem + rule[1]
		}
	}
	return plural
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Took formats a duration for people.
func Took(d time.Duration) string {
	switch {
	case d < 0:
		return "-" + Took(-d)
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", d.Seconds()*1e3)
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
	case d < 100*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Printable replaces the characters of a text that a terminal would take for a command.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

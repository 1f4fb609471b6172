package differential

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// A normaliser replaces values in a script's outputs that differ from run to run. Values that are identities are numbered in the order
// they first appear, so that "the same uid", "a new resourceVersion" or "another address" still compare.
type normaliser struct {
	literals string // text whose values are not replaced
	dir      string
	server   string // the server's URL
	seen     map[string]string
	counts   map[string]int
}

func newNormaliser(literals, dir, server string) *normaliser {
	return &normaliser{literals: literals, dir: dir, server: server, seen: map[string]string{}, counts: map[string]int{}}
}

// normalise returns the normalised output of a command. It must be called in the order of the script.
func (n *normaliser) normalise(output string) string {
	lines := strings.Split(strings.TrimRight(output, "\n"), "\n")
	var out []string
	unordered := -1 // the first line of unordered output; -1 outside of it
	for i := 0; i < len(lines); {
		if logLine.MatchString(lines[i]) || unenforced.MatchString(lines[i]) {
			i++
			continue
		}
		if lines[i] == separator {
			if unordered < 0 {
				unordered = len(out)
			} else {
				sortRows(out[unordered:])
				unordered = -1
			}
			i++
			continue
		}
		if isHeader(lines[i]) {
			end := tableEnd(lines, i)
			out = append(out, n.table(lines[i], lines[i+1:end])...)
			i = end
			continue
		}
		out = append(out, n.line(lines[i]))
		i++
	}
	for i := range out {
		out[i] = strings.TrimRight(out[i], " \t")
	}
	return strings.TrimRight(strings.Join(out, "\n"), "\n")
}

// separator is printed by the shell function unordered before and after its input.
const separator = "\x1e"

// sortRows sorts lines, and keeps the header of a table on top.
func sortRows(lines []string) {
	if len(lines) > 0 && isHeader(lines[0]) {
		lines = lines[1:]
	}
	slices.Sort(lines)
}

// logLine matches what kubectl's libraries log when a connection breaks, which is not part of the answer.
var logLine = regexp.MustCompile(`^[IWE][0-9]{4} [0-9:.]+ +[0-9]+ [a-z_]+\.go:[0-9]+\]`)

// unenforced matches skiff's warnings about objects that it stores and does not enforce, which TestUnenforced of internal/apiserver checks.
var unenforced = regexp.MustCompile(`^Warning: skiff does not enforce .* yet: this object is stored and has no effect$`)

// line normalises text outside tables.
func (n *normaliser) line(line string) string {
	return padding.ReplaceAllString(n.age(n.values(line)), "$1   ")
}

// padding matches the spaces after a replaced value up to the next column, whose number depends on the value.
var padding = regexp.MustCompile(`(<(?:age|time|user|random|node|pod-ip|(?:uid|version|ip|nodeport|name)-[0-9]+)>(?:/[A-Z]+)?) {2,}`)

var (
	uid       = regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b`)
	version   = regexp.MustCompile(`(resourceVersion\\?"?: ?\\?"?|Resource Version: +|ResourceVersion in record \(|Expected resource version to be [0-9]+, was )([1-9][0-9]*)`)
	revision  = regexp.MustCompile(`("metadata":\{"resourceVersion":")[1-9][0-9]*`)
	serviceIP = regexp.MustCompile(`\b10\.43\.[0-9]{1,3}\.[0-9]{1,3}\b`)
	nodePort  = regexp.MustCompile(`(odePort"?: *|\b)(3[0-2][0-9]{3})\b(/TCP|/UDP|/SCTP)?`)
	podIP     = regexp.MustCompile(`\b10\.42\.[0-9]{1,3}\.[0-9]{1,3}\b`)
	assigned  = regexp.MustCompile(`(Successfully assigned [^ ]+ to )hollow-[0-9]+`)
	container = regexp.MustCompile(`\bcontainerd://[0-9a-f]{64}\b`)
	random    = regexp.MustCompile(`([a-z0-9]-)([bcdfghjklmnpqrstvwxz2456789]{5})\b`)
	generated = regexp.MustCompile(`\bgen-([bcdfghjklmnpqrstvwxz2456789]{5})\b`)
	token     = regexp.MustCompile(`("?continue"?: ?"?)([A-Za-z0-9_-]{20,})`)
	user      = regexp.MustCompile(`("?username"?: *"?|Requesting User: *)([a-z:-]+)`)
	address   = regexp.MustCompile(`("serverAddress":")[^"]*`)
	ago       = regexp.MustCompile(`\([0-9ydhms]+ ago\)`)
	scheme    = regexp.MustCompile(`(in scheme ")[^"]*`)
	goType    = regexp.MustCompile(`(into Go value of type )(\[\][a-z]+\.[A-Za-z]+|struct \{[^}]*\})`)
	editFile  = regexp.MustCompile(`(kubectl-edit-|LIVE-|MERGED-)[0-9]+`)
	skiff     = regexp.MustCompile(`(v1\.37\.[0-9]+)\+skiff[0-9a-z.-]*`)

	timeForms = []struct {
		form   *regexp.Regexp
		layout string
	}{
		{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})`), time.RFC3339Nano},
		{regexp.MustCompile(`\b[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} [+-][0-9]{4}`), time.RFC1123Z},
		{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8} [+-][0-9]{4} [A-Z]+`), "2006-01-02 15:04:05 -0700 MST"},
		{regexp.MustCompile(`\b[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}\.[0-9]+ [+-][0-9]{4}`), "2006-01-02 15:04:05.999999999 -0700"},
	}
)

// values replaces paths, addresses, identities and times anywhere in a text.
func (n *normaliser) values(text string) string {
	text = strings.ReplaceAll(text, n.dir, "<dir>")
	if n.server != "" {
		text = strings.ReplaceAll(text, n.server, "<server>")
		text = strings.ReplaceAll(text, strings.TrimPrefix(n.server, "https://"), "<server>")
	}
	text = address.ReplaceAllString(text, "$1<server>")
	text = ago.ReplaceAllString(text, "(<age> ago)")
	text = scheme.ReplaceAllString(text, "$1<scheme>")
	text = goType.ReplaceAllString(text, "$1<type>")
	text = editFile.ReplaceAllString(text, "$1<n>")
	text = skiff.ReplaceAllString(text, "$1")
	text = token.ReplaceAllString(text, "$1<continue>")
	text = user.ReplaceAllString(text, "$1<user>")
	for _, f := range timeForms {
		text = f.form.ReplaceAllStringFunc(text, func(s string) string {
			if t, err := time.Parse(f.layout, s); err != nil || strings.Contains(n.literals, s) || time.Since(t).Abs() > 24*time.Hour {
				return s
			}
			return "<time>"
		})
	}
	text = uid.ReplaceAllStringFunc(text, func(s string) string { return n.number("uid", s) })
	text = revision.ReplaceAllString(text, "$1<revision>")
	text = version.ReplaceAllStringFunc(text, func(s string) string {
		m := version.FindStringSubmatch(s)
		return m[1] + n.number("version", m[2])
	})
	text = serviceIP.ReplaceAllStringFunc(text, func(s string) string {
		if s == "10.43.0.0" || s == "10.43.0.1" { // the service range itself, and the kubernetes Service at its first address
			return s
		}
		return n.number("ip", s)
	})
	text = generated.ReplaceAllStringFunc(text, func(s string) string { return "gen-" + n.number("name", s[len("gen-"):]) })
	// Which pod got which name, address and node is chance.
	text = random.ReplaceAllStringFunc(text, func(s string) string {
		m := random.FindStringSubmatch(s)
		if strings.Contains(n.literals, s) {
			return s
		}
		return m[1] + "<random>"
	})
	text = podIP.ReplaceAllStringFunc(text, func(s string) string {
		if strings.Contains(n.literals, s) {
			return s
		}
		return "<pod-ip>"
	})
	text = container.ReplaceAllString(text, "containerd://<id>")
	text = assigned.ReplaceAllString(text, "$1<node>")
	return nodePort.ReplaceAllStringFunc(text, func(s string) string {
		m := nodePort.FindStringSubmatch(s)
		if m[1] == "" && m[3] == "" { // just a number
			return s
		}
		return m[1] + n.number("nodeport", m[2]) + m[3]
	})
}

func (n *normaliser) number(kind, value string) string {
	if kind != "version" && strings.Contains(n.literals, value) {
		return value
	}
	key := kind + "/" + value
	if n.seen[key] == "" {
		n.counts[kind]++
		n.seen[key] = fmt.Sprintf("<%s-%d>", kind, n.counts[kind])
	}
	return n.seen[key]
}

var (
	ageColumns = map[string]bool{"AGE": true, "Age": true, "LAST SEEN": true, "FIRST SEEN": true, "DURATION": true, "LAST SCHEDULE": true, "TIMEADDED": true}
	ageCell    = regexp.MustCompile(`^[0-9][0-9ydhms]*[ydhms]( \(x[0-9]+ over [0-9ydhms]+\))?$`)

	// Outside tables a number of minutes alone is rather a thousandth of a core.
	ageLine = regexp.MustCompile(`(^Age: +|^Duration: +|[^: ] {2,}|^)([0-9][0-9ydhms]*[ydhs])(?: \(x[0-9]+ over [0-9ydhms]+\))?( {2,}|$)`)
)

// age replaces durations in a column of their own.
func (n *normaliser) age(line string) string {
	return ageLine.ReplaceAllString(line, "${1}<age>${3}")
}

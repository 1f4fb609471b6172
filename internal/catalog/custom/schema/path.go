package schema

import (
	"regexp"
	"strings"
	"sync"

	"k8s.io/client-go/util/jsonpath"
)

// path is a JSON path. Plain ones, which most are, are looked up; the others have parsers, which hold state while they run and are therefore
// pooled.
type path struct {
	source  string
	plain   []string  // the names of a plain path
	parsers sync.Pool // of *jsonpath.JSONPath
}

// plainPath matches paths of names alone, in characters that JSON path gives no meaning to.
var plainPath = regexp.MustCompile(`^(\.[A-Za-z_][A-Za-z0-9_]*)+$`)

func newPath(source string) (*path, error) {
	p := &path{source: source}
	if plainPath.MatchString(source) {
		p.plain = strings.Split(source[1:], ".")
		return p, nil
	}
	parser, err := p.parser()
	if err != nil {
		return nil, err
	}
	p.parsers.Put(parser)
	return p, nil
}

// parser returns a parser that the caller puts back into the pool.
func (p *path) parser() (*jsonpath.JSONPath, error) {
	if parser, ok := p.parsers.Get().(*jsonpath.JSONPath); ok {
		return parser, nil
	}
	parser := jsonpath.New("")
	if err := parser.Parse("{" + p.source + "}"); err != nil {
		return nil, err
	}
	return parser.AllowMissingKeys(true), nil
}

// first returns the first value at the path, and whether there is one.
func (p *path) first(obj map[string]any) (value any, found bool, err error) {
	if p.plain != nil {
		value, found = lookUp(obj, p.plain)
		return value, found, nil
	}
	value, found, _, err = p.find(obj)
	return value, found, err
}

// find runs a parser and says also whether it found more than one value.
func (p *path) find(obj map[string]any) (value any, found, more bool, err error) {
	parser, err := p.parser()
	if err != nil {
		return nil, false, false, err
	}
	results, err := parser.FindResults(obj)
	if err != nil {
		return nil, false, false, err // the parser may be amid a range
	}
	p.parsers.Put(parser)
	if len(results) == 0 || len(results[0]) == 0 {
		return nil, false, false, nil
	}
	return results[0][0].Interface(), true, len(results) > 1 || len(results[0]) > 1, nil
}

func lookUp(obj map[string]any, names []string) (value any, found bool) {
	value = obj
	for _, name := range names {
		fields, ok := value.(map[string]any)
		if !ok {
			return nil, false
		}
		if value, ok = fields[name]; !ok {
			return nil, false
		}
	}
	return value, true
}

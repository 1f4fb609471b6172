package authorization

import (
	"fmt"
	"os"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// Question is one question of a file with its answers.
type Question struct {
	Line    int
	Comment string // the lines before it, each with its #
	Text    string
	Body    string // YAML
	Answers []string

	User   string
	Groups []string
	// One of these is set.
	Access *authorizationv1.SubjectAccessReviewSpec
	Rules  string // the namespace
	Write  *Write
}

// Write is the creation or update of a role or binding. For an update Object is a merge patch.
type Write struct {
	Verb   string // create or update
	Object *unstructured.Unstructured
}

// Load reads a file of questions.
func Load(path string) ([]*Question, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var questions []*Question
	var comment strings.Builder
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		var last *Question
		if len(questions) > 0 {
			last = questions[len(questions)-1]
		}
		switch {
		case line == "" && comment.Len() > 0, strings.HasPrefix(line, "#"):
			comment.WriteString(line + "\n")
		case line == "":
		case strings.HasPrefix(line, "|") && last != nil:
			last.Body += strings.TrimPrefix(line[1:], " ") + "\n"
		case strings.HasPrefix(line, "  ") && last != nil:
			last.Answers = append(last.Answers, strings.ReplaceAll(line[2:], `\n`, "\n"))
		default:
			questions = append(questions, &Question{Line: i + 1, Comment: comment.String(), Text: line})
			comment.Reset()
		}
	}
	for _, q := range questions {
		if err := q.parse(); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, q.Line, err)
		}
	}
	return questions, nil
}

// Format returns the text that Load reads.
func Format(questions []*Question) string {
	var b strings.Builder
	for i, q := range questions {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(q.Comment + q.Text + "\n")
		for line := range strings.Lines(q.Body) {
			b.WriteString("| " + line)
		}
		for _, a := range q.Answers {
			b.WriteString("  " + strings.ReplaceAll(a, "\n", `\n`) + "\n")
		}
	}
	return b.String()
}

// parse reads "USER [GROUP…]: WHAT".
func (q *Question) parse() error {
	at := strings.LastIndex(q.Text, ": ") // a user's name may end in a colon
	if at < 0 {
		return fmt.Errorf("no user: %q", q.Text)
	}
	who, what := q.Text[:at], q.Text[at+2:]
	user, groups, _ := strings.Cut(who, " [")
	q.User, q.Groups = user, strings.Fields(strings.TrimSuffix(groups, "]"))
	words := strings.Fields(what)
	switch {
	case len(words) == 3 && words[0] == "rules" && words[1] == "in":
		q.Rules = words[2]
	case len(words) == 1 && q.Body != "":
		q.Write = &Write{Verb: words[0], Object: &unstructured.Unstructured{}}
		return yaml.Unmarshal([]byte(q.Body), &q.Write.Object.Object)
	case len(words) >= 2:
		return q.parseAccess(words[0], words[1], words[2:])
	default:
		return fmt.Errorf("not understood: %q", what)
	}
	return nil
}

func (q *Question) parseAccess(verb, what string, more []string) error {
	q.Access = &authorizationv1.SubjectAccessReviewSpec{User: q.User, Groups: q.Groups}
	if strings.HasPrefix(what, "/") {
		q.Access.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: verb, Path: what}
		return nil
	}
	r := &authorizationv1.ResourceAttributes{Verb: verb}
	q.Access.ResourceAttributes = r
	what, r.Subresource, _ = strings.Cut(what, "/")
	r.Resource, r.Group, _ = strings.Cut(what, ".")
	for ; len(more) >= 2; more = more[2:] {
		switch value := more[1]; more[0] {
		case "in":
			r.Namespace = value
		case "named":
			r.Name = value
		case "fields":
			r.FieldSelector = &authorizationv1.FieldSelectorAttributes{RawSelector: value}
		default:
			return fmt.Errorf("not understood: %q", more)
		}
	}
	if len(more) > 0 {
		return fmt.Errorf("not understood: %q", more)
	}
	return nil
}

package cluster

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"

	"go.yaml.in/yaml/v3"
	"k8s.io/client-go/tools/clientcmd"
	api "k8s.io/client-go/tools/clientcmd/api"
)

// document is the text of a kubeconfig as a tree: what is not touched is written as it was read.
type document struct {
	root     *yaml.Node // a document with one mapping
	indented bool       // list items stand further right than what they belong to; kubectl writes them flush
}

func parseDocument(data []byte) (*document, error) {
	if _, err := clientcmd.Load(data); err != nil {
		return nil, err
	}
	d := &document{root: &yaml.Node{}}
	if err := yaml.Unmarshal(data, d.root); err != nil {
		return nil, err
	}
	if d.root.Kind == 0 { // empty, or nothing but comments
		d.root.Kind, d.root.HeadComment = yaml.DocumentNode, strings.TrimSpace(string(data))
		d.root.Content = []*yaml.Node{{Kind: yaml.MappingNode, Content: []*yaml.Node{text("apiVersion"), text("v1"), text("kind"), text("Config")}}}
	}
	if d.top().Kind != yaml.MappingNode {
		return nil, errors.New("it is not a kubeconfig")
	}
	for i, value := range d.top().Content {
		if i%2 == 1 && value.Kind == yaml.SequenceNode && value.Style != yaml.FlowStyle {
			d.indented = value.Column > d.top().Content[i-1].Column
		}
	}
	return d, nil
}

func text(value string) *yaml.Node {
	n := &yaml.Node{}
	n.SetString(value)
	return n
}

func (d *document) top() *yaml.Node { return d.root.Content[0] }

// text is the document as it is to be written, indented as it was.
func (d *document) text() ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if !d.indented {
		e.CompactSeqIndent()
	}
	if err := e.Encode(d.root); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// config is what the document means.
func (d *document) config() (*api.Config, error) {
	data, err := d.text()
	if err != nil {
		return nil, err
	}
	return clientcmd.Load(data)
}

// lists are those of a kubeconfig, and what their items hold beside a name.
var lists = []struct{ list, item string }{{"clusters", "cluster"}, {"users", "user"}, {"contexts", "context"}}

// addCluster takes over the cluster, user and context of a name from another document, or brings those there are up to date: what the user
// has set beside, such as the context's namespace, stays.
func (d *document) addCluster(from *document, name string) error {
	for _, l := range lists {
		item := from.find(l.list, name)
		if item == nil {
			return errors.New("the administrator's kubeconfig has no " + l.item + " " + name)
		}
		switch there := d.find(l.list, name); {
		case there == nil:
			items := d.list(l.list)
			items.Content = append(items.Content, item)
		case l.item == "cluster":
			lay(there, item, l.item)
		case l.item == "user":
			set(there, l.item, field(item, l.item))
		}
	}
	return nil
}

// lay sets the fields of an item as another has them, and drops those that would contradict.
func lay(there, item *yaml.Node, key string) {
	fields, want := field(there, key), field(item, key)
	if fields == nil || fields.Kind != yaml.MappingNode {
		set(there, key, want)
		return
	}
	for _, other := range []string{"certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify"} {
		if field(want, other) == nil {
			unset(fields, other)
		}
	}
	for i := 0; i+1 < len(want.Content); i += 2 {
		set(fields, want.Content[i].Value, want.Content[i+1])
	}
}

// removeCluster removes the cluster, user and context of a name.
func (d *document) removeCluster(name string) {
	for _, l := range lists {
		if items := field(d.top(), l.list); items != nil {
			items.Content = slices.DeleteFunc(items.Content, func(n *yaml.Node) bool { return named(n, name) })
			if len(items.Content) == 0 {
				items.Style = yaml.FlowStyle // [], not nothing
			}
		}
	}
	if current := field(d.top(), "current-context"); current != nil && current.Value == name {
		d.set("current-context", "")
	}
}

// blank reports whether the document says nothing any more.
func (d *document) blank() bool {
	if d.root.HeadComment != "" || d.root.FootComment != "" {
		return false
	}
	for i, key := range d.top().Content {
		if i%2 > 0 {
			continue
		}
		value := d.top().Content[i+1]
		switch key.Value {
		case "apiVersion", "kind":
		default:
			if len(value.Content) > 0 || value.Kind == yaml.ScalarNode && value.Value != "" && value.Tag != "!!null" {
				return false
			}
		}
	}
	return true
}

func (d *document) set(key, value string) { set(d.top(), key, text(value)) }

// list returns a list, which it adds if there is none.
func (d *document) list(key string) *yaml.Node {
	items := field(d.top(), key)
	if items == nil || items.Kind != yaml.SequenceNode {
		items = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
		set(d.top(), key, items)
	}
	if len(items.Content) == 0 {
		items.Style = 0
	}
	return items
}

func (d *document) find(list, name string) *yaml.Node {
	items := field(d.top(), list)
	if items == nil {
		return nil
	}
	if i := slices.IndexFunc(items.Content, func(n *yaml.Node) bool { return named(n, name) }); i >= 0 {
		return items.Content[i]
	}
	return nil
}

func named(item *yaml.Node, name string) bool {
	n := field(item, "name")
	return n != nil && n.Value == name
}

// field is a mapping's value of a key, or nil.
func field(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func set(mapping *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content[i+1] = value
			return
		}
	}
	mapping.Content = append(mapping.Content, text(key), value)
}

func unset(mapping *yaml.Node, key string) {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			mapping.Content = slices.Delete(mapping.Content, i, i+2)
			return
		}
	}
}

// keepOwner gives a file the owner of another, where that is allowed: root may change a user's file, and it must stay the user's.
func keepOwner(f *os.File, like os.FileInfo) {
	if stat, ok := like.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(stat.Uid), int(stat.Gid))
	}
}

package kubeconfig

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

// document is a kubeconfig as a tree of YAML nodes: nodes that are not changed are written as they were read.
type document struct {
	root          *yaml.Node // a document with one mapping
	listsIndented bool       // list items are indented below their key; kubectl writes them flush with it
}

// parseDocument parses a kubeconfig. An empty file becomes a kubeconfig without entries.

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
		return nil, errors.New("the file is not a kubeconfig: its top level is not a mapping")
	}
	for i, value := range d.top().Content {
		if i%2 == 1 && value.Kind == yaml.SequenceNode && value.Style != yaml.FlowStyle {
			d.listsIndented = value.Column > d.top().Content[i-1].Column
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

// text returns the document as it is to be written, with lists indented as they were.
func (d *document) text() ([]byte, error) {
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if !d.listsIndented {
		e.CompactSeqIndent()
	}
	if err := e.Encode(d.root); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

// config returns the document as client-go reads it.
func (d *document) config() (*api.Config, error) {
	data, err := d.text()
	if err != nil {
		return nil, err
	}
	return clientcmd.Load(data)
}

// entryLists are the lists of a kubeconfig, and the key that their items have beside their name.
var entryLists = []struct{ list, item string }{{"clusters", "cluster"}, {"users", "user"}, {"contexts", "context"}}

// addCluster adds the cluster, user and context of a name from another document, or brings existing ones up to date. What the user has set in them besides,
// such as the context's namespace, stays.
func (d *document) addCluster(from *document, name string) error {
	for _, l := range entryLists {
		item := from.find(l.list, name)
		if item == nil {
			return errors.New("the administrator's kubeconfig has no " + l.item + " " + name)
		}
		switch existing := d.find(l.list, name); {
		case existing == nil:
			items := d.list(l.list)
			items.Content = append(items.Content, item)
		case l.item == "cluster":
			updateFields(existing, item, l.item)
		case l.item == "user":
			set(existing, l.item, field(item, l.item))
		}
	}
	return nil
}

// updateFields sets the fields that item has under key in existing too, and removes those about trust that would contradict them.
func updateFields(existing, item *yaml.Node, key string) {
	fields, want := field(existing, key), field(item, key)
	if fields == nil || fields.Kind != yaml.MappingNode {
		set(existing, key, want)
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
	for _, l := range entryLists {
		if items := field(d.top(), l.list); items != nil {
			items.Content = slices.DeleteFunc(items.Content, func(n *yaml.Node) bool { return named(n, name) })
			if len(items.Content) == 0 {
				items.Style = yaml.FlowStyle // written as [], not as null
			}
		}
	}
	if current := field(d.top(), "current-context"); current != nil && current.Value == name {
		d.set("current-context", "")
	}
}

// isEmpty reports whether the document has neither entries nor comments left.
func (d *document) isEmpty() bool {
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

// list returns a list of the document, which it adds if there is none.
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

// find returns the item of a name in a list, or nil.
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

// field returns a mapping's value of a key, or nil.
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

// keepOwner gives a file the owner that info has, where that is allowed: root may change a user's file, and it must stay the user's.
func keepOwner(f *os.File, info os.FileInfo) {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		_ = f.Chown(int(stat.Uid), int(stat.Gid))
	}
}

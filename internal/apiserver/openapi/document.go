package openapi

import (
	"bytes"
	"compress/gzip"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"skiff/internal/apiserver/openapi/gnostic"
)

//go:embed documents/*.json.gz
var files embed.FS

// embedded is a row of the generated index.
type embedded struct {
	path, file string
	size       int64
	hash       string
}

// pathV2 is the path of the OpenAPI v2 document in the index; all other paths are below /openapi/v3/.
const pathV2 = "v2"

// document is a compressed JSON document.
type document struct {
	size int64  // of the uncompressed JSON
	hash string // as in URLs and ETags: of a built-in document, the SHA-512 of its JSON
	open func() (io.ReadSeeker, error)

	build   func() (document, error) // if set, returns the document; open is nil
	encoded bool                     // the content is protobuf
}

func (e embedded) document() document {
	return document{size: e.size, hash: e.hash, open: func() (io.ReadSeeker, error) {
		f, err := files.Open("documents/" + e.file)
		if err != nil {
			return nil, err
		}
		return f.(io.ReadSeeker), nil // embedded files implement it
	}}
}

func builtinDocument(path string) (document, bool) {
	for _, e := range builtin {
		if e.path == path {
			return e.document(), true
		}
	}
	return document{}, false
}

// json returns the uncompressed document.
func (d document) json() ([]byte, error) {
	compressed, err := d.open()
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(compressed)
	if err != nil {
		return nil, err
	}
	data := make([]byte, d.size)
	if _, err := io.ReadFull(r, data); err != nil {
		return nil, err
	}
	return data, nil
}

// JSON returns the OpenAPI v3 document of a built-in path such as "apis/apps/v1".
func JSON(path string) ([]byte, error) {
	d, ok := builtinDocument(path)
	if !ok || path == pathV2 {
		return nil, fmt.Errorf("there is no built-in OpenAPI v3 document %q", path)
	}
	return d.json()
}

// Schemas returns the definitions in the OpenAPI v3 document of a built-in path, by name.
func Schemas(path string) (map[string]json.RawMessage, error) {
	data, err := JSON(path)
	if err != nil {
		return nil, err
	}
	schemas := map[string]json.RawMessage{}
	err = descend(data, []string{"components", "schemas"}, func(name string, value []byte) { schemas[name] = value })
	return schemas, err
}

// Definition returns a definition of the built-in OpenAPI v2 document. The whole document is read for it.
func Definition(name string) (json.RawMessage, error) {
	d, _ := builtinDocument(pathV2)
	data, err := d.json()
	if err != nil {
		return nil, err
	}
	var found json.RawMessage
	err = descend(data, []string{sectionNames[definitions]}, func(n string, value []byte) {
		if n == name {
			found = bytes.Clone(value)
		}
	})
	if err == nil && found == nil {
		err = fmt.Errorf("the built-in OpenAPI v2 document has no definition %q", name)
	}
	return found, err
}

// descend calls f for each member of the object at a path inside another.
func descend(object []byte, path []string, f func(name string, value []byte)) error {
	return gnostic.Members(object, func(name string, value []byte) error {
		switch {
		case len(path) == 0:
			f(name, value)
		case name == path[0]:
			return descend(value, path[1:], f)
		}
		return nil
	})
}

// inflating is a ReadSeeker that decompresses a document while it is read. It starts over to seek backwards.
type inflating struct {
	document
	offset int64 // where the next Read starts
	at     int64 // position of the reader
	reader *gzip.Reader
}

func (i *inflating) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += i.offset
	case io.SeekEnd:
		offset += i.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the document")
	}
	i.offset = offset
	return offset, nil
}

func (i *inflating) Read(p []byte) (int, error) {
	if i.offset >= i.size {
		return 0, io.EOF
	}
	if i.reader == nil || i.at > i.offset {
		compressed, err := i.open()
		if err != nil {
			return 0, err
		}
		if i.reader, err = gzip.NewReader(compressed); err != nil {
			return 0, err
		}
		i.at = 0
	}
	skipped, err := io.CopyN(io.Discard, i.reader, i.offset-i.at)
	i.at += skipped
	if err != nil {
		return 0, err
	}
	n, err := i.reader.Read(p)
	i.at += int64(n)
	i.offset = i.at
	return n, err
}

// onDemand is a ReadSeeker that makes its content at the first call, so that a request that is answered without it costs nothing.
type onDemand struct {
	make    func() ([]byte, error)
	content *bytes.Reader
}

func (o *onDemand) ready() error {
	if o.content != nil {
		return nil
	}
	data, err := o.make()
	if err != nil {
		return err
	}
	o.content = bytes.NewReader(data)
	return nil
}

func (o *onDemand) Seek(offset int64, whence int) (int64, error) {
	if err := o.ready(); err != nil {
		return 0, err
	}
	return o.content.Seek(offset, whence)
}

func (o *onDemand) Read(p []byte) (int, error) {
	if err := o.ready(); err != nil {
		return 0, err
	}
	return o.content.Read(p)
}

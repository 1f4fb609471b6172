package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"embed"
	"errors"
	"fmt"
	"io"
)

//go:embed documents/*.json.gz
var files embed.FS

// embedded is a row of the generated index.
type embedded struct {
	path, file string
	size       int64
	hash       string
}

// pathV2 stands for the document of OpenAPI v2; all other paths are below /openapi/v3/.
const pathV2 = "v2"

// document is a document at rest: compressed JSON, of which size and hash are known.
type document struct {
	size int64
	hash string // SHA-512 of the JSON, as it shows in URLs and ETags
	open func() (io.ReadSeeker, error)
}

func (e embedded) document() document {
	return document{size: e.size, hash: e.hash, open: func() (io.ReadSeeker, error) {
		f, err := files.Open("documents/" + e.file)
		if err != nil {
			return nil, err
		}
		return f.(io.ReadSeeker), nil // as embed promises
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

// compress puts a document to rest.
func compress(json []byte) document {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(json) // a Buffer takes everything
	w.Close()
	return document{size: int64(len(json)), hash: fmt.Sprintf("%X", sha512.Sum512(json)),
		open: func() (io.ReadSeeker, error) { return bytes.NewReader(b.Bytes()), nil }}
}

// json reads the whole document.
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

// inflating reads a document from anywhere in it, decompressing as it goes. It starts over if it has to go back.
type inflating struct {
	document
	offset int64 // where the next Read is to start
	at     int64 // how far the reader has come
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

// onDemand makes its content when it is first looked at, so that a request that is answered without it costs nothing.
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

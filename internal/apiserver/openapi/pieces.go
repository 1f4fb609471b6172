package openapi

import (
	"errors"
	"io"
	"sort"
)

// piecesReader reads pieces one after the other.
type piecesReader struct {
	pieces pieces
	ends   []int64 // offset of the end of each piece
	offset int64
}

func (r *piecesReader) size() int64 {
	if len(r.ends) == 0 {
		return 0
	}
	return r.ends[len(r.ends)-1]
}

func (r *piecesReader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.offset
	case io.SeekEnd:
		offset += r.size()
	}
	if offset < 0 {
		return 0, errors.New("seek before the start of the document")
	}
	r.offset = offset
	return offset, nil
}

// WriteTo writes the rest. io.Copy uses it, which needs no buffer then.
func (r *piecesReader) WriteTo(w io.Writer) (int64, error) {
	written := int64(0)
	for r.offset < r.size() {
		n, err := w.Write(r.rest())
		written += int64(n)
		r.offset += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

func (r *piecesReader) Read(p []byte) (int, error) {
	if r.offset >= r.size() {
		return 0, io.EOF
	}
	n := copy(p, r.rest())
	r.offset += int64(n)
	return n, nil
}

// rest returns what is left of the piece at the offset, which is before the end.
func (r *piecesReader) rest() []byte {
	i := sort.Search(len(r.ends), func(i int) bool { return r.ends[i] > r.offset })
	return r.pieces[i][int64(len(r.pieces[i]))-(r.ends[i]-r.offset):]
}

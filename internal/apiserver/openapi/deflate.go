package openapi

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"io"
	"sync"
)

// segment is a compressed piece of a document: DEFLATE blocks that end on a byte, of which none is the last. Segments that follow one another
// are one compressed stream, so a document is made from pieces without compressing them again. Members of gzip would be simpler, but clients
// that are not written in Go read only the first.
type segment struct {
	data  []byte
	size  int64  // of the content
	crc   uint32 // of the content
	shift uint32 // what the content does to the CRC of what is before it: see zeroBytes
}

// writers has *flate.Writers, of which each has more than a megabyte. The garbage collector empties it.
var writers sync.Pool

func newSegment(content []byte) segment {
	var b bytes.Buffer
	w, ok := writers.Get().(*flate.Writer)
	if ok {
		w.Reset(&b)
	} else {
		w, _ = flate.NewWriter(&b, flate.DefaultCompression) // the level is valid
	}
	defer writers.Put(w)
	return deflated(content, w, &b)
}

// newLargeSegment is for megabytes: it takes a fifth of the time, and the segment is larger.
func newLargeSegment(content []byte) segment {
	var b bytes.Buffer
	w, _ := flate.NewWriter(&b, flate.BestSpeed) // the level is valid
	return deflated(content, w, &b)
}

func deflated(content []byte, w *flate.Writer, b *bytes.Buffer) segment {
	if len(content) == 0 {
		return segment{}
	}
	w.Write(content) // a Buffer takes everything
	w.Flush()
	size := int64(len(content))
	return segment{data: bytes.Clone(b.Bytes()), size: size, crc: crc32.ChecksumIEEE(content), shift: zeroBytes(size)}
}

// content returns what a segment was made from.
func (s segment) content() ([]byte, error) {
	content := make([]byte, s.size)
	_, err := io.ReadFull(flate.NewReader(bytes.NewReader(s.data)), content)
	return content, err
}

var (
	gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff} // DEFLATE, no name, no time, unknown system
	lastBlock  = []byte{3, 0}                                  // an empty block that is marked as the last
)

// joined returns the document, in gzip form, whose content is that of the segments one after the other. It refers to their data.
func joined(hash string, segments []segment) document {
	pieces := make(pieces, 0, len(segments)+2)
	pieces = append(pieces, gzipHeader)
	size, crc := int64(0), uint32(0)
	for _, s := range segments {
		if s.size == 0 {
			continue
		}
		pieces = append(pieces, s.data)
		crc = multiply(s.shift, crc) ^ s.crc
		size += s.size
	}
	end := bytes.Clone(lastBlock)
	end = binary.LittleEndian.AppendUint32(end, crc)
	end = binary.LittleEndian.AppendUint32(end, uint32(size))
	pieces = append(pieces, end)
	return document{size: size, hash: hash, open: pieces.open}
}

// A CRC is the remainder of a polynomial over GF(2) whose coefficients are the bits of the content; the most significant bit of the
// uint32 is the coefficient of x^0. So the CRC of two contents is that of the first, multiplied by x to the number of bits of the second,
// plus that of the second.

// multiply returns the product of two polynomials modulo that of the CRC.
func multiply(a, b uint32) uint32 {
	product := uint32(0)
	for bit := uint32(1) << 31; bit != 0; bit >>= 1 {
		if a&bit != 0 {
			product ^= b
		}
		carry := b & 1
		b >>= 1
		if carry != 0 {
			b ^= crc32.IEEE
		}
	}
	return product
}

// zeroBytes returns x to the power of 8n, by which n bytes that follow shift a CRC.
func zeroBytes(n int64) uint32 {
	const one, byteShift = uint32(1) << 31, uint32(1) << (31 - 8)
	power := one
	for square := byteShift; n > 0; n >>= 1 {
		if n&1 != 0 {
			power = multiply(square, power)
		}
		square = multiply(square, square)
	}
	return power
}

// pieces are the bytes of a document, in parts that may be shared with others.
type pieces [][]byte

func (p pieces) open() (io.ReadSeeker, error) {
	r := &piecesReader{pieces: p, ends: make([]int64, len(p))}
	size := int64(0)
	for i, piece := range p {
		size += int64(len(piece))
		r.ends[i] = size
	}
	return r, nil
}

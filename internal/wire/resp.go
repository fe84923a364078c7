package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

// This file encodes commands and decodes replies, those of RESP3 to what RESP2 would have: an array for a map or a set,
// 1 or 0 for a boolean, a string for any other number.

const (
	// readBuffer is the size of a read buffer, and of the longest line.
	readBuffer = 16 << 10

	maxDepth = 32
	maxReply = 16 << 20

	// valueSize bounds the memory that a value takes besides its bytes.
	valueSize = 48
)

const crlf = "\r\n"

// AppendCommand appends a command to b, as an array of bulk strings. If an element is neither a string nor an int nor an
// int64, it returns an error and b unchanged.
func AppendCommand(b []byte, args []any) ([]byte, error) {
	begin := len(b)
	b = appendHeader(b, '*', len(args))
	for _, arg := range args {
		switch v := arg.(type) {
		case string:
			b = appendHeader(b, '$', len(v))
			b = append(b, v...)
			b = append(b, crlf...)
		case int:
			b = appendInt(b, int64(v))
		case int64:
			b = appendInt(b, v)
		default:
			return b[:begin], fmt.Errorf("pool: an element of Args is a %T: want a string, an int or an int64", arg)
		}
	}
	return b, nil
}

func appendHeader(b []byte, kind byte, n int) []byte {
	const digits = "0123456789"
	switch {
	case n < 10:
		return append(b, kind, digits[n], '\r', '\n')
	case n < 100:
		return append(b, kind, digits[n/10], digits[n%10], '\r', '\n')
	}
	b = append(b, kind)
	b = strconv.AppendInt(b, int64(n), 10)
	return append(b, crlf...)
}

func appendInt(b []byte, n int64) []byte {
	var room [20]byte
	digits := strconv.AppendInt(room[:0], n, 10)
	b = appendHeader(b, '$', len(digits))
	b = append(b, digits...)
	return append(b, crlf...)
}

// A refusal is an error that a node answered with: a redis.Error.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

// errMalformed means that bytes are no reply. Nothing after them can be decoded.
var errMalformed = errors.New("the node sent something that is no reply")

// okReply is boxed once: every successful SET has this answer.
var okReply any = "OK"

// A push is what a node sends without being asked, in RESP3 only.
type push []any

// readReply reads one reply: nil, string, int64, []any of these, or refusal. Or it returns a push. An error ends the
// connection.
func readReply(r *bufio.Reader) (any, error) {
	d := decoder{Reader: r, left: maxReply}
	return d.value(0)
}

type decoder struct {
	*bufio.Reader
	left int // memory for the rest of the reply
}

func (d *decoder) value(depth int) (any, error) {
	value, err := d.valueOrAttribute(depth)
	for err == nil && value == attribute {
		value, err = d.valueOrAttribute(depth)
		err = broken(err, true)
	}
	return value, err
}

// attribute stands for an attribute of the value that follows it.
var attribute any = new(byte)

func (d *decoder) valueOrAttribute(depth int) (any, error) {
	line, err := d.line()
	if err != nil {
		return nil, err
	}
	kind, text := line[0], line[1:]
	switch kind {
	case '+':
		if string(text) == "OK" {
			return okReply, nil
		}
		return string(text), nil
	case '-':
		return refusal(said(string(text))), nil
	case '_':
		if len(text) > 0 {
			return nil, errMalformed
		}
		return nil, nil
	case '#':
		switch string(text) {
		case "t":
			return int64(1), nil
		case "f":
			return int64(0), nil
		}
		return nil, errMalformed
	case ',', '(':
		if len(text) == 0 {
			return nil, errMalformed
		}
		return string(text), nil
	}
	n, err := parseInt(text)
	if err != nil {
		return nil, err
	}
	switch kind {
	case ':':
		return n, nil
	case '$':
		return d.bulk(n)
	case '*':
		return d.array(n, depth)
	}
	return d.resp3(kind, n, depth)
}

func (d *decoder) resp3(kind byte, n int64, depth int) (any, error) {
	if n < 0 { // only RESP2 writes null so
		return nil, errMalformed
	}
	switch kind {
	case '~':
		return d.array(n, depth)
	case '%':
		return d.pairs(n, depth)
	case '|':
		if _, err := d.pairs(n, depth); err != nil {
			return nil, err
		}
		return attribute, nil
	case '>':
		if depth > 0 {
			return nil, errMalformed
		}
		values, err := d.array(n, depth)
		if err != nil {
			return nil, err
		}
		return push(values.([]any)), nil
	case '!', '=':
		value, err := d.bulk(n)
		if err != nil {
			return nil, err
		}
		text := value.(string)
		if kind == '!' {
			return refusal(said(text)), nil
		}
		if len(text) < 4 || text[3] != ':' { // a format of three letters comes first
			return nil, errMalformed
		}
		return text[4:], nil
	}
	return nil, errMalformed
}

func (d *decoder) pairs(n int64, depth int) (any, error) {
	if n > maxReply {
		return nil, errMalformed
	}
	return d.array(2*n, depth)
}

// line returns the next line, valid until the next read.
func (d *decoder) line() ([]byte, error) {
	line, err := d.ReadSlice('\n')
	if err != nil {
		return nil, broken(err, len(line) > 0)
	}
	text, found := bytes.CutSuffix(line, []byte(crlf))
	if !found || len(text) == 0 || !d.take(valueSize+len(text)) {
		return nil, errMalformed
	}
	return text, nil
}

func (d *decoder) bulk(n int64) (any, error) {
	if n == -1 {
		return nil, nil
	}
	if n < 0 || n > maxReply || !d.take(int(n)) {
		return nil, errMalformed
	}
	size := int(n) + len(crlf)
	if size > d.Size() {
		return d.longBulk(int(n))
	}
	b, err := d.Peek(size)
	if err != nil {
		return nil, broken(err, true)
	}
	text, found := bytes.CutSuffix(b, []byte(crlf))
	if !found {
		return nil, errMalformed
	}
	value := string(text)
	_, _ = d.Discard(size)
	return value, nil
}

// longBulk reads long strings. Memory grows with what arrives, not with the announced length.
func (d *decoder) longBulk(n int) (any, error) {
	var b bytes.Buffer
	if _, err := io.CopyN(&b, d.Reader, int64(n+len(crlf))); err != nil {
		return nil, broken(err, true)
	}
	text, found := bytes.CutSuffix(b.Bytes(), []byte(crlf))
	if !found {
		return nil, errMalformed
	}
	return string(text), nil
}

func (d *decoder) array(n int64, depth int) (any, error) {
	if n == -1 {
		return nil, nil
	}
	if n < 0 || n > maxReply/valueSize || depth == maxDepth {
		return nil, errMalformed
	}
	values := make([]any, 0, min(n, 64)) // grows as elements arrive
	for range n {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, broken(err, true)
		}
		values = append(values, v)
	}
	return values, nil
}

func (d *decoder) take(n int) bool {
	d.left -= n
	return d.left >= 0
}

// broken converts the error of a failed read. Within a reply an end is unexpected.
func broken(err error, within bool) error {
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return errMalformed
	case within && errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseInt(text []byte) (int64, error) {
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 19 {
		return 0, errMalformed
	}
	var n uint64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, errMalformed
		}
		n = 10*n + uint64(c-'0')
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), nil //nolint:gosec // -1<<63 is its own negative
	case !negative && n <= math.MaxInt64:
		return int64(n), nil
	}
	return 0, errMalformed
}

package header

import (
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/net/http2/hpack"

	"github.com/freshmesh/freshmesh/pkg/dataplane/message"
)

// TableSize is that of the compression tables, in bytes: what HTTP/2 begins with, which we never change.
const TableSize = 4096

// ErrTooLarge says that a list is longer than the limits allow. The block was read to its end.
var ErrTooLarge = errors.New("the header list is longer than allowed")

// Malformed is the error of a list that RFC 9113 section 8 forbids: an error of its stream
// alone. The block was read to its end.
type Malformed struct{ Err error }

// Error names the rule.
func (m *Malformed) Error() string { return "malformed: " + m.Err.Error() }

// Unwrap gives the rule.
func (m *Malformed) Unwrap() error { return m.Err }

// Limits bound a header list.
type Limits struct {
	// Bytes is the size as RFC 9113 section 10.5.1 counts it: 32 are added for each field.
	Bytes int
	// Fields is how many there may be.
	Fields int
}

// Decoder reads the blocks of one direction of a connection, in their order.
// Errors other than *Malformed and ErrTooLarge mean that the compression state
// is lost, and with it the connection (RFC 9113 section 4.3).
type Decoder struct {
	hp     *hpack.Decoder
	limits Limits
	// seen are fields found valid before; hpack gives those in its table with the same memory each time. Its
	// length is a power of two, and grows where many lost their places to others; lost is how many did since.
	seen []known
	lost int

	// Of the block that is being read: what it is, and what it has said so far.
	kind    kind
	fields  []message.Field
	request message.Request
	status  int
	length  int64
	host    string
	grpc    bool
	// has are the pseudo-header fields that came, a bit for each class; regular: another field came after them.
	has     uint8
	regular bool
	// count and size are what Limits bound; tooLarge: they were over. bad is the first rule that was broken.
	count, size int
	tooLarge    bool
	bad         error
}

// kind is what a block belongs to.
type kind uint8

const (
	requestList kind = iota
	responseList
	trailerList
)

// known is the memory of a field's text, and what was found of it.
type known struct {
	name, value         *byte
	nameSize, valueSize uint16
	class               class
}

const (
	// firstSeen is how many fields a connection remembers at first, mostSeen at most.
	firstSeen, mostSeen = 8, 64
	// longest is how long a name or a value may be to be remembered.
	longest = 256
)

// NewDecoder makes a decoder with a table of TableSize.
func NewDecoder(l Limits) *Decoder {
	d := &Decoder{limits: l, seen: make([]known, firstSeen)}
	d.hp = hpack.NewDecoder(TableSize, d.emit)
	return d
}

// Request reads the block of a request into r, whose Fields are used again.
// Fields holds everything but the pseudo-header fields, Host, and what is
// between neighbours; content-length and te stay in it. r.Length is the
// declared one, -1 where none is. grpc tells whether the content type is one of gRPC.
func (d *Decoder) Request(block []byte, r *message.Request) (grpc bool, err error) {
	d.begin(requestList, r.Fields)
	if err := d.read(block); err != nil {
		return false, err
	}
	if d.host != "" {
		if d.request.Authority == "" && d.request.Method != "CONNECT" {
			d.request.Authority = d.host
		} else if !strings.EqualFold(d.host, d.request.Authority) {
			return false, &Malformed{errHost}
		}
	}
	if err := judge(&d.request, d.has); err != nil {
		return false, &Malformed{err}
	}
	*r = d.request
	r.Fields, r.Length = d.fields, d.length
	return d.grpc, nil
}

// Response reads the block of a response into r, as Request does.
func (d *Decoder) Response(block []byte, r *message.Response) error {
	d.begin(responseList, r.Fields)
	if err := d.read(block); err != nil {
		return err
	}
	if d.status == 0 {
		return &Malformed{errMissing}
	}
	r.Status, r.Fields, r.Length = d.status, d.fields, d.length
	return nil
}

// Trailers reads the block of trailers; into is used again.
func (d *Decoder) Trailers(block []byte, into []message.Field) ([]message.Field, error) {
	d.begin(trailerList, into)
	err := d.read(block)
	return d.fields, err
}

// Skip reads a block that nobody wants, to stay in step.
func (d *Decoder) Skip(block []byte) error {
	d.begin(trailerList, d.fields)
	d.hp.SetEmitEnabled(false)
	if _, err := d.hp.Write(block); err != nil {
		return fmt.Errorf("header block: %w", err)
	}
	return d.hp.Close()
}

func (d *Decoder) begin(k kind, into []message.Field) {
	d.kind, d.fields, d.length = k, into[:0], -1
	d.request, d.status, d.host, d.has = message.Request{}, 0, "", 0
	d.count, d.size, d.grpc, d.regular, d.tooLarge, d.bad = 0, 0, false, false, false, nil
	d.hp.SetEmitEnabled(true)
}

// read reads a whole block, field by field through emit.
func (d *Decoder) read(block []byte) error {
	if _, err := d.hp.Write(block); err != nil {
		return fmt.Errorf("header block: %w", err)
	}
	if err := d.hp.Close(); err != nil {
		return fmt.Errorf("header block: %w", err)
	}
	switch {
	case d.tooLarge:
		return ErrTooLarge
	case d.bad != nil:
		return &Malformed{d.bad}
	}
	return nil
}

// emit takes one field from hpack.
func (d *Decoder) emit(f hpack.HeaderField) {
	d.count++
	d.size += len(f.Name) + len(f.Value) + 32
	if d.size > d.limits.Bytes || d.count > d.limits.Fields {
		d.tooLarge = true
		d.hp.SetEmitEnabled(false)
		return
	}
	if d.bad != nil {
		return
	}
	c, err := d.classify(f)
	if err == nil {
		err = d.take(c, f)
	}
	d.bad = err
}

// classify judges a field's bytes, unless it did so before.
func (d *Decoder) classify(f hpack.HeaderField) (class, error) {
	n, v := unsafe.StringData(f.Name), unsafe.StringData(f.Value)
	at := uintptr(unsafe.Pointer(n)) ^ uintptr(unsafe.Pointer(v))
	k := &d.seen[(at>>3^at>>9)&uintptr(len(d.seen)-1)]
	// What is remembered is kept alive, so the same address is the same text.
	if k.name == n && k.value == v && int(k.nameSize) == len(f.Name) && int(k.valueSize) == len(f.Value) && f.Name != "" {
		return k.class, nil
	}
	if !validName(f.Name) {
		return 0, errName
	}
	if !validValue(f.Value) {
		return 0, errValue
	}
	c := classOf(f.Name)
	if len(f.Value) <= longest && len(f.Name) <= longest {
		if k.name != nil {
			d.lose()
		}
		*k = known{n, v, uint16(len(f.Name)), uint16(len(f.Value)), c}
	}
	return c, nil
}

// lose notes that one lost its place. After as many as there are places there will be twice as many, all free.
func (d *Decoder) lose() {
	if d.lost++; d.lost > len(d.seen) && len(d.seen) < mostSeen {
		d.seen, d.lost = make([]known, 2*len(d.seen)), 0
	}
}

// take puts a valid field where it belongs; an error is a rule that it breaks by where it stands, or with others.
func (d *Decoder) take(c class, f hpack.HeaderField) error {
	if f.Name[0] == ':' {
		return d.pseudo(c, f.Value)
	}
	d.regular = true
	out := message.Field{Name: f.Name, Value: f.Value, Sensitive: f.Sensitive}
	switch c {
	case forbidden:
		return errForbidden
	case neighbour:
		return nil
	case te:
		if f.Value != "trailers" {
			return errTE
		}
	case host:
		if d.kind != requestList {
			return nil
		}
		if d.host != "" || f.Value == "" {
			return errHost
		}
		d.host = f.Value
		return nil
	case contentLength:
		if d.kind == trailerList {
			return nil
		}
		n, ok := number(f.Value)
		if !ok || d.length >= 0 {
			return errLength
		}
		d.length = n
	case contentType:
		d.grpc = message.IsGRPC(f.Value)
	case credential:
		out.Sensitive = true
	default:
	}
	d.fields = append(d.fields, out)
	return nil
}

// pseudo takes a pseudo-header field (RFC 9113 section 8.3).
func (d *Decoder) pseudo(c class, value string) error {
	switch {
	case d.kind == trailerList:
		return errTrailerList
	case d.regular, c == unknownPseudo, d.has&(1<<c) != 0, (c == status) != (d.kind == responseList):
		return errPseudo
	}
	d.has |= 1 << c
	switch c {
	case method:
		d.request.Method = value
	case scheme:
		d.request.Scheme = value
	case authority:
		d.request.Authority = value
	case path:
		d.request.Path = value
	case protocol:
		d.request.Protocol = value
	case status:
		n, ok := number(value)
		if !ok || len(value) != 3 || n < 100 || n == 101 {
			return errStatus
		}
		d.status = int(n)
	default:
		return errPseudo
	}
	return nil
}

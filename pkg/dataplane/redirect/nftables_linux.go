package redirect

import (
	"errors"
	"fmt"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// loopback as the kernel gives an interface's name: 16 bytes, filled with zeroes.
var loopback = append([]byte("lo"), make([]byte, unix.IFNAMSIZ-2)...)

// Apply puts the rules in force, in place of those of an earlier call. It
// either succeeds as a whole or changes nothing.
func Apply(r Rules) error {
	if err := r.validate(); err != nil {
		return err
	}
	w, err := newWriter()
	if err != nil {
		return err
	}
	w.fresh()
	w.output(r)
	w.prerouting(r)
	return w.flush("redirect")
}

// Remove takes the rules away; it is no error when there are none.
func Remove() error {
	w, err := newWriter()
	if err != nil {
		return err
	}
	w.gone()
	return w.flush("remove the redirection")
}

// writer collects one transaction.
type writer struct {
	conn  *nftables.Conn
	table *nftables.Table
	chain *nftables.Chain
}

func newWriter() (*writer, error) {
	conn, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	return &writer{conn: conn, table: &nftables.Table{Family: nftables.TableFamilyINet, Name: table}}, nil
}

// gone removes the table. To remove what is not there is an error, so it is made first.
func (w *writer) gone() {
	w.conn.AddTable(w.table)
	w.conn.DelTable(w.table)
}

func (w *writer) fresh() {
	w.gone()
	w.table = w.conn.AddTable(w.table)
}

func (w *writer) flush(what string) error {
	err := w.conn.Flush()
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%s: %w: it needs the capability NET_ADMIN", what, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (w *writer) begin(name string, kind nftables.ChainType, hook *nftables.ChainHook, priority *nftables.ChainPriority) {
	w.chain = w.conn.AddChain(&nftables.Chain{Table: w.table, Name: name, Type: kind, Hooknum: hook, Priority: priority})
}

func (w *writer) rule(parts ...[]expr.Any) {
	var all []expr.Any
	for _, p := range parts {
		all = append(all, p...)
	}
	w.conn.AddRule(&nftables.Rule{Table: w.table, Chain: w.chain, Exprs: all})
}

func (w *writer) output(r Rules) {
	w.begin("output", nftables.ChainTypeNAT, nftables.ChainHookOutput, nftables.ChainPriorityNATDest)
	for _, uid := range append([]uint32{r.ProxyUID}, r.SkipUIDs...) {
		w.rule(meta(expr.MetaKeySKUID, binaryutil.NativeEndian.PutUint32(uid)), leave())
	}
	w.rule(meta(expr.MetaKeyOIFNAME, loopback), leave())
	for _, port := range r.SkipOutboundPorts {
		w.rule(tcp(), to(port), leave())
	}
	w.rule(tcp(), lead(r.OutboundPort))
}

func (w *writer) prerouting(r Rules) {
	w.begin("prerouting", nftables.ChainTypeNAT, nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest)
	w.rule(meta(expr.MetaKeyIIFNAME, loopback), leave())
	for _, port := range append([]uint16{r.HealthPort}, r.SkipInboundPorts...) {
		w.rule(tcp(), to(port), leave())
	}
	w.rule(tcp(), lead(r.InboundPort))
}

// meta compares something about the packet.
func meta(key expr.MetaKey, with []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: with}}
}

func tcp() []expr.Any { return meta(expr.MetaKeyL4PROTO, []byte{unix.IPPROTO_TCP}) }

// to compares the destination port, which stands in the bytes 2 and 3 of a TCP header.
func to(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
	}
}

func leave() []expr.Any { return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}} }

// lead changes the destination to this machine, and this port.
func lead(port uint16) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: 1, Data: binaryutil.BigEndian.PutUint16(port)},
		&expr.Redir{RegisterProtoMin: 1},
	}
}

package config

import (
	"fmt"
	"strconv"
	"time"
)

// UnknownDestinations is what happens to captured connections to what the control plane does not know.
type UnknownDestinations string

// The ways.
const (
	Pass   UnknownDestinations = "pass"
	Refuse UnknownDestinations = "refuse"
)

// Limits bound what clients of the data plane can take.
type Limits struct {
	Connections, HeaderBytes, HeaderCount int
	HeaderTime, BodyIdle, WriteIdle       time.Duration
	TCPIdle                               time.Duration
	// MemoryBytes is where new work is shed; 0 is four fifths of what the control group allows.
	MemoryBytes uint64
}

func defaultLimits() Limits {
	return Limits{
		Connections: 10_000, HeaderBytes: 64 << 10, HeaderCount: 200,
		HeaderTime: 30 * time.Second, BodyIdle: 5 * time.Minute, WriteIdle: 5 * time.Minute, TCPIdle: time.Hour,
	}
}

func captureFields(t *table, c *Dataplane) {
	boolean(t, &c.Transparent, "transparent", "let TPROXY lead connections to the outbound and inbound address (needs CAP_NET_ADMIN)")
	list(t, &c.OpaquePorts, "opaque-ports", "port", "destination ports whose bytes are not looked at; repeat it, or separate with commas",
		commasAndSpaces, parsePort, formatPort)
	list(t, &c.SkipPorts, "skip-ports", "port", "destination ports that pass untouched when they are captured all the same",
		commasAndSpaces, parsePort, formatPort)
	parse := func(s string) (UnknownDestinations, error) {
		if u := UnknownDestinations(s); u == Pass || u == Refuse {
			return u, nil
		}
		return "", fmt.Errorf("%q is neither pass nor refuse", s)
	}
	scalar(t, &c.UnknownDestinations, "unknown-destinations", "pass|refuse", "what to do with captured connections to what is no service",
		parse, func(u UnknownDestinations) string { return string(u) })
}

func limitFields(t *table, l *Limits) {
	count(t, &l.Connections, "max-connections", "connections that all listeners of traffic hold together")
	count(t, &l.HeaderBytes, "max-header-bytes", "size of a request's header")
	count(t, &l.HeaderCount, "max-headers", "number of fields in a request's header")
	duration(t, &l.HeaderTime, "header-timeout", "how long the header of an HTTP/1 request may take")
	duration(t, &l.BodyIdle, "body-timeout", "how long an upload may pause")
	duration(t, &l.WriteIdle, "write-timeout", "how long a client may take nothing of a response that is there")
	duration(t, &l.TCPIdle, "tcp-idle-timeout", "how long an opaque connection may be silent")
	f := scalar(t, &l.MemoryBytes, "max-memory", "bytes", "shed new work above this; 0 is four fifths of the control group's limit",
		func(s string) (uint64, error) {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%q is not a number of bytes", s)
			}
			return n, nil
		}, func(n uint64) string { return strconv.FormatUint(n, 10) })
	f.plain = true
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no port from 1 to 65535", s)
	}
	return uint16(n), nil
}

func formatPort(p uint16) string { return strconv.Itoa(int(p)) }

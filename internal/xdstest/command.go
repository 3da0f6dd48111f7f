package xdstest

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// command is one line of a transcript.
type command struct {
	name string
	// words are the arguments without "=", in order.
	words []string
	// options are the others, key → values; no value list is empty.
	options map[string][]string
}

// commandOptions are the options that a command knows.
var commandOptions = map[string]string{
	"delta-open": "node as agent only", "sotw-open": "node as agent only",
	"subscribe": "on held", "unsubscribe": "on", "resend": "on",
	"ack": "on subscribe unsubscribe", "nack": "on version", "refuse": "on", "pause": "on", "resume": "on", "close": "on",
	"put": "service",
}

func parseCommand(name string, args []datadriven.CmdArg) (command, error) {
	c := command{name: name, options: map[string][]string{}}
	known := strings.Fields(commandOptions[c.name])
	for _, a := range args {
		if len(a.Vals) == 0 {
			c.words = append(c.words, a.Key)
			continue
		}
		if !slices.Contains(known, a.Key) {
			return c, fmt.Errorf("%s has no option %q", c.name, a.Key)
		}
		c.options[a.Key] = a.Vals
	}
	return c, nil
}

// option gives the option's first value, or otherwise.
func (c command) option(key, otherwise string) string {
	if v := c.options[key]; v != nil {
		return v[0]
	}
	return otherwise
}

func (c command) typeAndNames() (mesh.Type, []string, error) {
	if len(c.words) == 0 {
		return "", nil, fmt.Errorf("%s wants a type", c.name)
	}
	if c.words[0] == "-" {
		return "", c.words[1:], nil
	}
	t, ok := mesh.ParseType(c.words[0])
	if !ok {
		return "", nil, fmt.Errorf("type %q is unknown", c.words[0])
	}
	return t, c.words[1:], nil
}

// addTo adds a put or delete to an update.
func (c command) addTo(u *mesh.Update) error {
	t, words, err := c.typeAndNames()
	switch {
	case err != nil:
		return err
	case c.name == "put" && len(words) == 2:
		r := Resource(t, words[0], words[1])
		if service := c.option("service", ""); service != "" {
			r.FollowedBy = []mesh.ResourceName{{Type: mesh.TypeEndpoint, Name: service}}
		}
		u.Put = append(u.Put, r)
	case c.name == "delete" && len(words) == 1:
		u.Remove = append(u.Remove, mesh.Removal{ResourceName: mesh.ResourceName{Type: t, Name: words[0]}})
	default:
		return fmt.Errorf("%s %s %q: want put TYPE NAME LABEL, or delete TYPE NAME", c.name, t.Short(), words)
	}
	return nil
}

// answer acknowledges or refuses a response.
func (n *namedStream) answer(c command) error {
	number, words, err := n.pick(c.words)
	if err != nil {
		return err
	}
	n.answered[number] = true
	r := n.received[number-1]
	if c.name == "nack" {
		return n.refuse(r, cmp.Or(strings.Join(words, " "), "refused"), c.option("version", "held"))
	}
	if len(words) > 0 {
		return fmt.Errorf("ack: what is %q?", words)
	}
	return n.ackAnd(r, c.options["subscribe"], c.options["unsubscribe"])
}

// refuse sends a NACK with the version held, or with the one refused.
func (n *namedStream) refuse(r *Response, message, version string) error {
	switch version {
	case "held":
		n.Nack(r, message)
	case "new":
		n.Send(Request{Type: r.Type, Nonce: r.Nonce, Error: message, Version: r.Version, Names: n.typeState(r.Type).names})
	default:
		return fmt.Errorf("nack: version=%s is neither held nor new", version)
	}
	return nil
}

// pick gives the number of the response that an answer is for, and the other words.
func (n *namedStream) pick(words []string) (int, []string, error) {
	if len(words) > 0 && strings.HasPrefix(words[0], "#") {
		number, err := strconv.Atoi(words[0][1:])
		if err != nil || number < 1 || number > len(n.received) {
			return 0, nil, fmt.Errorf("stream %s has no response %s", n.name, words[0])
		}
		return number, words[1:], nil
	}
	for i := range n.received {
		if !n.answered[i+1] {
			return i + 1, words, nil
		}
	}
	return 0, nil, fmt.Errorf("stream %s has no unanswered response", n.name)
}

// ackAnd acknowledges r, and changes the subscription in the same request.
func (n *namedStream) ackAnd(r *Response, subscribe, unsubscribe []string) error {
	if subscribe == nil && unsubscribe == nil {
		n.Ack(r)
		return nil
	}
	if n.Protocol != Delta {
		return fmt.Errorf("subscription changes in an ack are for delta streams")
	}
	n.Send(Request{Type: r.Type, Nonce: r.Nonce, Subscribe: subscribe, Unsubscribe: unsubscribe})
	return nil
}

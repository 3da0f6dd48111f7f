package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/freshmesh/freshmesh/pkg/ack"
	"github.com/freshmesh/freshmesh/pkg/admin/replicas"
	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// client asks servers, each about several things.
type client struct{ *replicas.Client }

// ask gives a server's audit. What cannot be one is an error: an address of
// something else must not pass for a mesh without nodes.
func (c *client) ask(ctx context.Context, server string, node mesh.NodeID) (ack.Audit, error) {
	target := server + "/audit"
	if node != "" {
		target += "?node=" + url.QueryEscape(string(node))
	}
	body, err := c.Get(ctx, target)
	if err != nil {
		return ack.Audit{}, err
	}
	return decode(body)
}

// decode reads an audit; fields that this build does not know are ignored.
func decode(body []byte) (ack.Audit, error) {
	var a ack.Audit
	if err := json.Unmarshal(body, &a); err != nil {
		return a, fmt.Errorf("answer is no audit: %w", err)
	}
	if a.Time.IsZero() {
		return a, errors.New("answer is no audit: it has no time")
	}
	for _, n := range a.Nodes {
		if n.State.Precedence() < 0 {
			return a, fmt.Errorf("answer is no audit: node %q has the unknown state %q", n.ID, n.State)
		}
	}
	return a, nil
}

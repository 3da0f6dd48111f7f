package xds

import (
	"strings"

	"github.com/freshmesh/freshmesh/pkg/xds/ads"
	"google.golang.org/grpc/codes"
)

// What a client says of itself is kept for as long as the node is known, and
// shown in the audit: without bounds a few clients could fill the memory.
const (
	// maxName bounds, in bytes, a node's id and each other text about it, the
	// type URL, and the name of a resource. Longer ones are refused.
	maxName = 1024
	// maxMessage bounds a NACK's message and the client's name and version,
	// in bytes. What is longer is cut.
	maxMessage = 4096
)

// check refuses a request with names that are too long.
func check(r ads.Request) error {
	if len(r.Type) > maxName {
		return tooLong("type_url", len(r.Type))
	}
	for field, names := range map[string][]string{
		"resource_names": r.Names, "resource_names_subscribe": r.Subscribe, "resource_names_unsubscribe": r.Unsubscribe,
	} {
		for _, name := range names {
			if len(name) > maxName {
				return tooLong(field, len(name))
			}
		}
	}
	return nil
}

func (n Node) check() error {
	for field, text := range map[string]string{
		"id": string(n.ID), "locality.region": n.View.Region, "locality.zone": n.View.Zone,
		"metadata.namespace": n.View.Namespace, "metadata.node": n.View.Node,
	} {
		if len(text) > maxName {
			return tooLong("node."+field, len(text))
		}
	}
	return nil
}

func tooLong(field string, bytes int) error {
	return refusal(RefusedMalformed, codes.InvalidArgument, "%s: %d bytes, at most %d are taken", field, bytes, maxName)
}

// cut gives at most maxMessage bytes of text. The result shares no memory with a longer one.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}

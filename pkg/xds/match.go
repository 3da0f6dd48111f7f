package xds

import (
	"regexp"
	"strings"

	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc/codes"
)

// nodeMatch fits the nodes that a CSDS request asks for.
type nodeMatch struct {
	// any fits a node when one of these does; without them every node fits.
	any []func(id string) bool
}

func (m nodeMatch) fits(id string) bool {
	for _, fits := range m.any {
		if fits(id) {
			return true
		}
	}
	return len(m.any) == 0
}

// newNodeMatch reads node_matchers. Only their node_id is understood; the error
// names what is not.
func newNodeMatch(matchers []*matcherv3.NodeMatcher) (nodeMatch, error) {
	var out nodeMatch
	for i, m := range matchers {
		if len(m.GetNodeMetadatas()) > 0 {
			return out, refusal(RefusedMalformed, codes.InvalidArgument, "node_matchers[%d].node_metadatas: nodes are matched by node_id only", i)
		}
		if m.GetNodeId() == nil {
			out.any = append(out.any, func(string) bool { return true })
			continue
		}
		fits, reason := stringMatch(m.GetNodeId())
		if fits == nil {
			return out, refusal(RefusedMalformed, codes.InvalidArgument, "node_matchers[%d].node_id: %s", i, reason)
		}
		out.any = append(out.any, fits)
	}
	return out, nil
}

// stringMatch gives a StringMatcher as a function, or nil and what is wrong with it.
func stringMatch(m *matcherv3.StringMatcher) (fits func(string) bool, reason string) {
	fold := func(s string) string { return s }
	if m.GetIgnoreCase() {
		fold = strings.ToLower
	}
	switch p := m.GetMatchPattern().(type) {
	case *matcherv3.StringMatcher_Exact:
		return func(s string) bool { return fold(s) == fold(p.Exact) }, ""
	case *matcherv3.StringMatcher_Prefix:
		return func(s string) bool { return strings.HasPrefix(fold(s), fold(p.Prefix)) }, ""
	case *matcherv3.StringMatcher_Suffix:
		return func(s string) bool { return strings.HasSuffix(fold(s), fold(p.Suffix)) }, ""
	case *matcherv3.StringMatcher_Contains:
		return func(s string) bool { return strings.Contains(fold(s), fold(p.Contains)) }, ""
	case *matcherv3.StringMatcher_SafeRegex:
		// The whole text has to match, and ignore_case does not count.
		expression, err := regexp.Compile(`^(?:` + p.SafeRegex.GetRegex() + `)$`)
		if err != nil {
			return nil, "safe_regex: " + err.Error()
		}
		return expression.MatchString, ""
	}
	return nil, "none of exact, prefix, suffix, contains, safe_regex"
}

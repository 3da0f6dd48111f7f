package upstream

import (
	"fmt"
	"strings"
	"testing"

	"github.com/freshmesh/freshmesh/internal/testpage"
)

// TestDeadPeersPage holds what docs/capture.md says of dead peers against the
// code. The kernel gives one up that has been silent for the user timeout and
// has let a keepalive go unanswered (tcp(7)).
func TestDeadPeersPage(t *testing.T) {
	text := strings.Join(strings.Fields(testpage.Read(t, "capture.md")), " ")
	want := fmt.Sprintf("not acknowledged for %s, or it has been silent for %s and then does not answer for %s", userTimeout, max(keepAliveIdle, userTimeout), keepAliveInterval)
	if !strings.Contains(text, want) {
		t.Errorf("docs/capture.md lacks %q", want)
	}
}

package translate

import (
	"testing"
	"time"

	"github.com/freshmesh/freshmesh/pkg/mesh"
)

// A drain of 0 is something that was said, and so is "retry: off".
func TestWhatIsSaidWithNothing(t *testing.T) {
	report := func(field, reason string) { t.Errorf("%s: %s", field, reason) }
	s := readSettings(&mesh.Service{Annotations: map[string]string{"drain": "0", "retry": "off", "timeout": "15s"}}, report)
	if s.drain == nil || *s.drain != 0 || s.timeout != 15*time.Second || s.retry.proto() != nil {
		t.Errorf("%+v", s)
	}
	fields := s.metadata(80, protocol{http: true}).GetFilterMetadata()[mesh.MetadataNamespace].GetFields()
	if fields["drain"].GetStringValue() != "0s" || fields["timeout"].GetStringValue() != "15s" || fields["retry"].GetStructValue().GetFields()["on"].GetStringValue() != "" {
		t.Errorf("%v", fields)
	}
}

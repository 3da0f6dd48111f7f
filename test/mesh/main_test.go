package mesh

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const authority = "echo.default.svc.cluster.local:8080"

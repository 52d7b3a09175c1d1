package mcpserver

import (
	"testing"

	"go.uber.org/goleak"

	"secbox/sandbox/process"
)

func TestMain(m *testing.M) {
	process.Main() // the commands of sandbox none are run by this program, started once more
	goleak.VerifyTestMain(m)
}

package userservers

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	commands "secbox/sandbox/process"
)

// serverArg makes this program one of the servers in servers_test.go.
const serverArg = "-mcp-server"

func TestMain(m *testing.M) {
	commands.Main() // the commands of sandbox none are run by this program, started once more
	if len(os.Args) > 2 && os.Args[1] == serverArg {
		serve(os.Args[2])
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

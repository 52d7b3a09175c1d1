package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"secbox/sandbox/process"
)

// asSecbox is the environment variable that turns this program into secbox, for tests that need a
// separate process.
const asSecbox = "BE_SECBOX"

func TestMain(m *testing.M) {
	process.Main()
	if os.Getenv(asSecbox) != "" {
		_ = os.Unsetenv(asSecbox)
		main()
		return
	}
	goleak.VerifyTestMain(m)
}

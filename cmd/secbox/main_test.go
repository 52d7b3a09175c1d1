package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"secbox/sandbox/process"
)

// asSecbox is the environment variable that makes of this program secbox itself, for tests that need it as a process of its own.
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

package remote_test

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"secbox/sandbox/process"
)

func TestMain(m *testing.M) {
	process.Main() // commands of real runners are started through this very program
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

func init() { http.DefaultTransport.(*http.Transport).DisableKeepAlives = true } // no connection outlives its test

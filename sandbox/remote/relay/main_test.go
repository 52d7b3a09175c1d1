package relay_test

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"secbox/sandbox/process"
)

func TestMain(m *testing.M) {
	process.Main() // real runners start commands through this program
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

func init() { http.DefaultTransport.(*http.Transport).DisableKeepAlives = true } // no connection outlives its test

package remote_test

import (
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit))
}

func init() { http.DefaultTransport.(*http.Transport).DisableKeepAlives = true } // no connection outlives its test

package sandbox_test

import (
	"slices"
	"testing"

	"secbox/fault"
	"secbox/sandbox"
)

func TestInherited(t *testing.T) {
	t.Parallel()
	got := sandbox.Inherited([]string{
		"PATH=/bin", "KUBERNETES_SERVICE_HOST=10.0.0.1", "SERVICE_ACCOUNT=x", "SECRET_KEY=x", "secret_key=x", "Secret_Key=x",
		"CORE_API_ADMIN_TOKEN=x", "SECBOX_TOKEN=x", "DATABASE_URL=x", "DATABASE_URL_REPLICA=x", "database_url=x",
		"MY_SECRET_KEY=kept", "SERVICE=kept", "KUBERNETES=kept", "EMPTY=", "HOME=/root", "=C:=C:\\dir", "ODD",
	})
	want := []string{"PATH=/bin", "MY_SECRET_KEY=kept", "SERVICE=kept", "KUBERNETES=kept", "EMPTY=", "HOME=/root", "=C:=C:\\dir", "ODD"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := sandbox.Inherited(nil); len(got) != 0 {
		t.Errorf("of nothing came %q", got)
	}
}

func TestCheckEnv(t *testing.T) {
	t.Parallel()
	for _, kv := range []string{
		"KUBERNETES_X=1", "SERVICE_X=1", "SECRET_X=1", "secret_x=1", "Service_=", "no value", "", "=x", "A=\x00", "\x00=a",
	} {
		err := sandbox.CheckEnv([]string{"FINE=1", kv})
		if !fault.Is(err, fault.InvalidRequest) || len(fault.From(err).Fields) != 1 || fault.From(err).Fields[0].Field != "env" {
			t.Errorf("%q: %v", kv, err)
		}
	}
	// Users may pass their own tokens to their commands.
	if err := sandbox.CheckEnv([]string{"A=b", "A=c", "EMPTY=", "X=a=b\n", "SECBOX_TOKEN=mine", "DATABASE_URL=mine", "ü=ü"}); err != nil {
		t.Error(err)
	}
}

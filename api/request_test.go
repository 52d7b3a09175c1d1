package api

import (
	"testing"

	"secbox/access/tokens"
	"secbox/api/decode"
	"secbox/api/wire"
)

// TestDigestIsStable: records of earlier versions have these digests, and a repeated
// Idempotency-Key is compared with them.
func TestDigestIsStable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"project_id":"demo","exec":{"script":"true"}}`:                                                     "22589eccd2789ea7947e134e470e06e37a5c45f9ae42499a1270d66642521ea8",
		`{"project_id":"demo","exec":{"script":"true"},"policy_overrides":{"fs":{"read":["a"],"write":[]}}}`: "c8fd943a02f989bef4655cba5fdd2cbce52196172b7e23a5deafcd5bde7ba641",
		`{"project_id":"demo","exec":{"code":"print(1)"}}`:                                                   "10a121ab32afc33cd8b28845f0cc3de343ccc5ed10fa9d825edd0a46088b3d88",
		`{"project_id":"demo","exec":{"kind":"python","command":"python","args":["-c","print(1)"]}}`:         "10a121ab32afc33cd8b28845f0cc3de343ccc5ed10fa9d825edd0a46088b3d88",
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1"}},"policy_overrides":{
			"timeout_ms":5,"cpu_cores":0.5,"memory_mb":64,"pids":3,"tmp_mb":4,"max_stdout_bytes":7,"max_stderr_bytes":8,
			"max_artifacts_bytes_total":9,"image":"x","net":{"mode":"none"},"fs.read":[]}}`: "54bae711a0883e4c71a808b7c535a89f6c248921c3347b065d21ed4df0589f94",
	} {
		var body wire.ExecRequest
		if err := decode.Strict([]byte(text), &body); err != nil {
			t.Fatal(err)
		}
		req, err := execRequest(body, false, nil, tokens.Token{ID: "t", Role: tokens.Worker})
		if err != nil || req.Digest != want {
			t.Errorf("%s: digest %s, want %s (%v)", text, req.Digest, want, err)
		}
	}
}

package api

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"secbox/access/tokens"
	"secbox/api/decode"
	"secbox/api/wire"
	"secbox/fault"
)

// FuzzDecodeExec checks that any bytes are a request or refused with a useful message, and that a
// request has the same digest after Go has encoded it.
func FuzzDecodeExec(f *testing.F) {
	for _, seed := range []string{
		`{"project_id":"demo","exec":{"kind":"shell","command":"bash","args":["-lc","true"],"env":{"A":"1"},"stdin":"x","cwd":"/workspace/work"}}`,
		`{"exec":{"kind":"python","command":"python"},"inputs":[{"path":"a","content":"aGk=","encoding":"base64"}],"policy_overrides":{"timeout_ms":5,"cpu_cores":0.5,"net":{"mode":"none"},"fs.read":[]},"task_ref":{"task_id":"t"}}`,
		`{"exec":null}`, `{"exec":{"foo":1}}`, `{"a":1,"a":2}`, `{"policy_overrides":{"memory_mb":9223372036854775808}}`, `{"inputs":[{},{"path":[]}]}`,
		`[`, ``, `{"":1}`, `{"exec":{"env":{"":"1","":"2"}}}`, `{"project_id":"\ud800"}`, "{\"x\xff\":1}", `{"exec":{"env":{"0":null}}} x`,
		`{"policy_overrides":{"fs":{"read":["a"]},"fs.read":["b"]}}`,
	} {
		f.Add([]byte(seed))
	}
	strict := decode.NewJSON()
	f.Fuzz(func(t *testing.T, text []byte) {
		var body wire.ExecRequest
		if err := strict.Decode(bytes.NewReader(text), &body); err != nil {
			refused(t, err, fault.InvalidJSON, fault.InvalidRequest)
			return
		}
		if !json.Valid(text) || !utf8.Valid(text) {
			t.Fatalf("took %q", text)
		}
		req, err := execRequest(body, false, nil, tokens.Token{ID: "t", Role: tokens.Worker})
		if err != nil {
			refused(t, err, fault.InvalidRequest)
			return
		}
		again, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var second wire.ExecRequest
		if err := strict.Decode(bytes.NewReader(again), &second); err != nil {
			t.Fatalf("took %q, but not its own spelling %q: %v", text, again, err)
		}
		if req2, err := execRequest(second, false, nil, tokens.Token{ID: "t", Role: tokens.Worker}); err != nil || req2.Digest != req.Digest {
			t.Fatalf("%q has another digest as %q (%v)", text, again, err)
		}
	})
}

// FuzzDecodeInvoke is FuzzDecodeExec for skills, whose inputs are passed on as written.
func FuzzDecodeInvoke(f *testing.F) {
	for _, seed := range []string{
		`{"project_id":"demo","inputs":{"n":9007199254740993,"none":null,"deep":[[{"a":1e400}]]},"files":[{"path":"a","content":"aGk=","encoding":"base64"}],"task_ref":{"task_id":"t"}}`,
		`{"inputs":{"b":1,"a":"\u00e4","":{}},"policy_overrides":{"fs.read":[]}}`, `{"inputs":null}`, `{"inputs":[1,"x",true]}`, `{"inputs":{"a":1,"a":2}}`,
		`{"inputs":{"l":[{"a":1,"a":2}]}}`, `{"inputs":"\ud800"}`, `{"inputs":-0}`, `{"inputs":{"a":1.50,"b":1E+2}}`, `{"files":[{}]}`, `{"input":{}}`,
		`{"inputs": {"a" : 1 } }`, `[`, ``,
	} {
		f.Add([]byte(seed))
	}
	strict := decode.NewJSON()
	decodeInvoke := func(text []byte) (wire.InvokeRequest, error) {
		var body wire.InvokeRequest
		err := strict.Decode(bytes.NewReader(text), &body)
		return body, err
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		body, err := decodeInvoke(text)
		if err != nil {
			refused(t, err, fault.InvalidJSON, fault.InvalidRequest)
			return
		}
		if !json.Valid(text) || !utf8.Valid(text) || len(body.Inputs) > 0 && !bytes.Contains(text, body.Inputs) {
			t.Fatalf("took %q with the inputs %q", text, body.Inputs)
		}
		req, err := invokeRequest("shell.run", body, false, nil, tokens.Token{ID: "t", Role: tokens.Worker})
		if err != nil {
			refused(t, err, fault.InvalidRequest)
			return
		}
		if !bytes.Equal(req.Inputs, body.Inputs) {
			t.Fatalf("%q went on as %q", body.Inputs, req.Inputs)
		}
		again, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		second, err := decodeInvoke(again)
		if err != nil {
			t.Fatalf("took %q, but not its own spelling %q: %v", text, again, err)
		}
		if req2, err := invokeRequest("shell.run", second, false, nil, tokens.Token{ID: "t", Role: tokens.Worker}); err != nil || req2.Digest != req.Digest {
			t.Fatalf("%q has another digest as %q (%v)", text, again, err)
		}
	})
}

// refused checks that err has one of the codes and a short message of valid UTF-8.
func refused(t *testing.T, err error, codes ...fault.Code) {
	t.Helper()
	e := fault.From(err)
	known := false
	for _, code := range codes {
		known = known || e.Code == code
	}
	if !known || e.Message == "" || len(e.Message) > 2000 || !utf8.ValidString(e.Message) {
		t.Fatalf("refused with %v", e)
	}
	for _, field := range e.Fields {
		if field.Field == "" || field.Reason == "" || !utf8.ValidString(field.Field) {
			t.Fatalf("refused with %+v", e.Fields)
		}
	}
}

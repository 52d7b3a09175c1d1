package proof

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/secure-systems-lab/go-securesystemslib/signerverifier"
	"golang.org/x/mod/sumdb/note"

	"secbox/audit"
	"secbox/fault"
)

// attest makes a key and an attestation with it.
func attest(t testing.TB) (file []byte, key string) {
	t.Helper()
	private, public, err := note.GenerateKey(nil, "secbox/test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	r := audit.Record{
		ExecID: "e1", Kind: audit.KindExec, Cmd: "bash", Args: []string{"-lc", "echo <b>"}, Status: audit.Failed, ExitCode: new(3),
		CreatedAt: time.Unix(1, 0), ManifestDigest: "sha256:" + strings.Repeat("aa", 32),
	}
	file, err = Attest(signer, r, []Subject{NewSubject("out/=a.txt", strings.Repeat("bb", 32))})
	if err != nil {
		t.Fatal(err)
	}
	return file, public
}

func TestAttestation(t *testing.T) {
	t.Parallel()
	file, key := attest(t)
	a, err := CheckAttestation(file, key)
	if err != nil || !IsAttestation(file) || a.Origin != "secbox/test" || a.Record.ExecID != "e1" || *a.Record.ExitCode != 3 ||
		!slices.Equal(a.Subjects, []Subject{NewSubject("manifest.json", strings.Repeat("aa", 32)), NewSubject("out/=a.txt", strings.Repeat("bb", 32))}) {
		t.Errorf("%+v, %v", a, err)
	}
	_, other := attest(t)
	if _, err := CheckAttestation(file, other); !fault.Is(err, fault.InvalidProof) {
		t.Errorf("of another key: %v", err)
	}
	if _, err := CheckAttestation(file, "key"); !fault.Is(err, fault.InvalidRequest) {
		t.Errorf("no key: %v", err)
	}
	for name, text := range map[string]string{
		"nothing": "", "no envelope": "{}", "a proof": string(read(t, "sqlite.json")),
		"too large": `"` + strings.Repeat("x", MaxBytes),
	} {
		if _, err := CheckAttestation([]byte(text), key); !fault.Is(err, fault.InvalidProof) || IsAttestation([]byte(text)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIndependentVerifierOfAttestations: the library of secure-systems-lab accepts the envelope
// with the bare Ed25519 key, and refuses a changed one.
func TestIndependentVerifierOfAttestations(t *testing.T) {
	t.Parallel()
	file, key := attest(t)
	var envelope dsse.Envelope
	if err := json.Unmarshal(file, &envelope); err != nil {
		t.Fatal(err)
	}
	parts := strings.SplitN(key, "+", 3) // name+hash+base64 of the algorithm and the key
	raw, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil {
		t.Fatal(err)
	}
	public, err := signerverifier.NewED25519SignerVerifierFromSSLibKey(&signerverifier.SSLibKey{
		KeyID: parts[0] + "+" + parts[1], KeyVal: signerverifier.KeyVal{Public: hex.EncodeToString(raw[1:])},
	})
	if err != nil {
		t.Fatal(err)
	}
	verifier, err := dsse.NewEnvelopeVerifier(public)
	if err != nil {
		t.Fatal(err)
	}
	_, body, err := verifier.VerifyAndDecode(context.Background(), &envelope)
	if err != nil {
		t.Fatal(err)
	}
	var s map[string]any
	if err := json.Unmarshal(body, &s); err != nil || s["_type"] != "https://in-toto.io/Statement/v1" || s["predicateType"] != "urn:secbox:exec-record:v1" ||
		len(s["subject"].([]any)) != 2 {
		t.Errorf("%v, %v", s, err)
	}
	envelope.Payload = base64.StdEncoding.EncodeToString(bytes.Replace(body, []byte(`"exit_code":3`), []byte(`"exit_code":0`), 1))
	if _, err := verifier.Verify(context.Background(), &envelope); err == nil {
		t.Error("accepted another exit code")
	}
}

// TestOneChangedBitOfAnAttestation: what is still accepted says the same.
func TestOneChangedBitOfAnAttestation(t *testing.T) {
	t.Parallel()
	file, key := attest(t)
	want, err := CheckAttestation(file, key)
	if err != nil {
		t.Fatal(err)
	}
	for i := range file {
		changed := bytes.Clone(file)
		changed[i] ^= 1 << (i % 8)
		got, err := CheckAttestation(changed, key)
		if err == nil && (got.Record.ExecID != want.Record.ExecID || *got.Record.ExitCode != 3 || !slices.Equal(got.Subjects, want.Subjects)) {
			t.Errorf("byte %d: accepted %+v", i, got)
		} else if err != nil && !fault.Is(err, fault.InvalidProof) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

// TestStatementsOfOthers: a statement that the key has signed for another purpose is no attestation
// of an exec.
func TestStatementsOfOthers(t *testing.T) {
	t.Parallel()
	private, key, err := note.GenerateKey(nil, "secbox/test")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	envelopes, err := dsse.NewEnvelopeSigner(logSigner{signer})
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"_type":"https://in-toto.io/Statement/v1","subject":[{"name":"manifest.json","digest":{"sha256":"aa"}}],"predicateType":"urn:secbox:exec-record:v1","predicate":{"exec_id":"e","manifest_digest":"aa"}}`
	for name, c := range map[string]struct {
		kind, old, now string
		ok             bool
	}{
		"a good one":        {payloadType, "", "", true},
		"another payload":   {"application/json", "", "", false},
		"another statement": {payloadType, "Statement/v1", "Statement/v2", false},
		"another predicate": {payloadType, "exec-record:v1", "exec-record:v9", false},
		"another manifest":  {payloadType, `"manifest_digest":"aa"`, `"manifest_digest":"bb"`, false},
		"no subject":        {payloadType, `{"name":"manifest.json","digest":{"sha256":"aa"}}`, "", false},
		"no JSON":           {payloadType, `{"_type"`, `"_type"`, false},
		"a record of lists": {payloadType, `"exec_id":"e"`, `"exec_id":[]`, false},
	} {
		envelope, err := envelopes.SignPayload(context.Background(), c.kind, []byte(strings.Replace(good, c.old, c.now, 1)))
		if err != nil {
			t.Fatal(err)
		}
		file, err := json.Marshal(envelope)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckAttestation(file, key); (err == nil) != c.ok || err != nil && !fault.Is(err, fault.InvalidProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzCheckAttestation(f *testing.F) {
	file, key := read(f, "attestation.json"), string(read(f, "attestation.pub"))
	if _, err := CheckAttestation(file, key); err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Fuzz(func(t *testing.T, file []byte) {
		a, err := CheckAttestation(file, key)
		if err == nil && (a.Record.ExecID != "e1" || len(a.Subjects) != 2) {
			t.Errorf("accepted %+v", a)
		}
	})
}

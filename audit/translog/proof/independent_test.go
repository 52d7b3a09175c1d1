package proof_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/transparency-dev/formats/log"
	tproof "github.com/transparency-dev/formats/proof"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"secbox/audit/admin"
	"secbox/audit/translog/logtest"
	"secbox/audit/translog/proof"
)

// adminProof makes a small file: the proof of the second event of a log of two.
func adminProof(t *testing.T) (file []byte, key string) {
	t.Helper()
	secret, key, err := note.GenerateKey(rand.Reader, "secbox/a")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := note.NewSigner(secret)
	if err != nil {
		t.Fatal(err)
	}
	salt := bytes.Repeat([]byte{7}, proof.SaltSize)
	event := proof.AdminDocument{Seq: 2, Kind: admin.NodeStarted, Data: "{}"}.Canonical()
	entry := proof.Entry(salt, event)
	first := tlog.RecordHash([]byte("the first entry"))
	root := tlog.NodeHash(first, tlog.RecordHash(entry[:]))
	point, err := note.Sign(&note.Note{Text: string(log.Checkpoint{Origin: "secbox/a", Size: 2, Hash: root[:]}.Marshal())}, signer)
	if err != nil {
		t.Fatal(err)
	}
	p := tproof.TLogProof{Index: 1, Hashes: [][32]byte{first}, Checkpoint: point}
	file, err = proof.NewAdminFile(proof.Event{Event: string(event), Salt: salt, TLogProof: string(p.Marshal())}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return file, key
}

// TestIndependentVerifier verifies our files with code that is not ours, and the same files with
// each bit changed, or some bits of a larger file. What is still accepted must say the same.
func TestIndependentVerifier(t *testing.T) {
	t.Parallel()
	small, smallKey := adminProof(t)
	key, err := os.ReadFile(filepath.Join("testdata", "log.pub"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		file []byte
		key  string
		step int // bits; odd, so that each bit of a byte gets its turn
	}{
		"an administrative event": {small, smallKey, 1},
		"an exec":                 {nil, string(key), 397},
	} {
		if c.file == nil {
			if c.file, err = os.ReadFile(filepath.Join("testdata", "postgres.json")); err != nil {
				t.Fatal(err)
			}
		}
		want, err := logtest.VerifyProof(c.key, c.file)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		refused := 0
		for bit := 0; bit < 8*len(c.file); bit += c.step {
			changed := bytes.Clone(c.file)
			changed[bit/8] ^= 1 << (bit % 8)
			got, err := logtest.VerifyProof(c.key, changed)
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Errorf("%s: bit %d: accepted %q", name, bit, changed[max(0, bit/8-20):min(len(changed), bit/8+20)])
			}
			if err != nil {
				refused++
			}
			if c.step > 1 || !json.Valid(changed) {
				continue // TestOneChangedBit does it for files of execs
			}
			if ours, err := proof.CheckAdmin(changed, c.key); err == nil && string(ours.Event.Canonical()) != string(want[0]) {
				t.Errorf("%s: bit %d: our check accepted %+v", name, bit, ours)
			}
		}
		if refused == 0 {
			t.Errorf("%s: nothing was refused", name)
		}
	}
}

package translog

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"secbox/fault"
	"secbox/statedir"
)

// KeyFile is the name of the signing key in the state dir, unless the settings name another file.
const KeyFile = "log.key"

// Key signs checkpoints.
type Key struct {
	Signer   note.Signer
	Verifier string // the public key, in the format of note.NewVerifier
}

// Origin returns the name of an installation's log and of its key.
func Origin(installationID string) string { return "secbox/" + installationID }

// ReadKey reads the key of the log with this origin. It fails with fault.InvalidSettings if the file is damaged or has the key of another
// log, and with an error that also wraps fs.ErrNotExist if there is no file.
func ReadKey(path, origin string) (Key, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "cannot read the transparency log's key %s: %s", path, fault.Reason(err))
	}
	key, err := ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "the transparency log's key %s is damaged; restore it from a backup", path)
	}
	if key.Signer.Name() != origin {
		return Key{}, fault.New(fault.InvalidSettings, "the key %s is of the log %q, and this installation's log is %q; name another file in audit.log_key_file",
			path, key.Signer.Name(), origin)
	}
	return key, nil
}

// ParseKey reads a key in the format of note.GenerateKey.
func ParseKey(text string) (Key, error) {
	signer, err := note.NewSigner(text)
	if err != nil {
		return Key{}, err // never has the key
	}
	const seedAt = 1                      // after the algorithm, which NewSigner has checked
	parts := strings.SplitN(text, "+", 5) // PRIVATE+KEY+name+hash+data, and the data may have a +
	data, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil || len(data) != seedAt+ed25519.SeedSize {
		return Key{}, fmt.Errorf("not an Ed25519 key")
	}
	verifier, err := note.NewEd25519VerifierKey(signer.Name(), ed25519.NewKeyFromSeed(data[seedAt:]).Public().(ed25519.PublicKey))
	return Key{Signer: signer, Verifier: verifier}, err
}

// MakeKey makes a key for the log with this origin in a new file that only this user can read, durably. It fails if the file exists.
func MakeKey(path, origin string) (Key, error) {
	text, _, err := note.GenerateKey(rand.Reader, origin)
	if err != nil {
		return Key{}, fault.Wrap(fault.Internal, err, "cannot make the transparency log's key")
	}
	if err := statedir.WriteNew(path, text+"\n"); err != nil {
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "cannot write the transparency log's key %s: %s", path, fault.Reason(err))
	}
	return ReadKey(path, origin)
}

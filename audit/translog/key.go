package translog

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"

	"golang.org/x/mod/sumdb/note"

	"secbox/fault"
	"secbox/internal/statedir"
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

// ReadKey reads the key of the log with this origin. It fails with fault.InvalidSettings if the
// file is damaged or has the key of another log, or is none that statedir.ReadSecret reads, and
// with an error that also wraps fs.ErrNotExist if there is no file.
func ReadKey(path, origin string) (Key, error) {
	text, err := statedir.ReadSecret(path)
	if err != nil {
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "cannot read the transparency log's key %s: %s", path, fault.Reason(err))
	}
	key, err := ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return Key{}, fault.Wrap(fault.InvalidSettings, err, "the transparency log's key %s is damaged; restore it from a backup", path)
	}
	if key.Signer.Name() != origin {
		return Key{}, fault.New(fault.InvalidSettings,
			"the key %s is of the log %q, and this installation's log is %q; name another file in audit.log_key_file",
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

// MakeKey makes a key for the log with this origin in a new file that only this user can read,
// durably. It fails if the file exists.
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

// Keys keeps the log's key in memory, so that no request waits for a file. It is safe for
// concurrent use.
type Keys struct {
	read func(begun bool) (Key, error)

	mu   sync.Mutex
	held *Key
	err  error // of the last reading
}

// NewKeys calls read, which reads the key's file, and makes the file only if the log has not begun.
// If that fails, Load tries again.
func NewKeys(read func(begun bool) (Key, error)) *Keys {
	k := &Keys{read: read}
	_, _ = k.Reload(true)
	return k
}

// Reload reads the file again: the operator may have replaced it.
func (k *Keys) Reload(begun bool) (Key, error) {
	key, err := k.read(begun)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err = err; err == nil {
		k.held = &key
	}
	return key, err
}

// Load returns the key, and reads the file if no reading has succeeded before.
func (k *Keys) Load() (Key, error) {
	if key, err := k.Held(); err == nil {
		return key, nil
	}
	return k.Reload(true)
}

// Held returns the key without reading the file, or why there is none.
func (k *Keys) Held() (Key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		return Key{}, k.err
	}
	return *k.held, nil
}

// errNoKey reports that this node does not have the log's key.
var errNoKey = errors.New("no key")

// verifier returns the public half of this node's key; nil if there is no key and the log has not
// begun, and errNoKey if the log has begun with a key that another node has.
func (l Log) verifier(ctx context.Context, read func() (note.Verifier, error)) (note.Verifier, error) {
	key, err := read()
	if !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if state, err := l.Store.State(ctx); err != nil || state.VerifierKey == "" {
		return nil, err
	}
	return nil, errNoKey
}

// Verifier is the public half of Load's key.
func (k *Keys) Verifier() (note.Verifier, error) {
	key, err := k.Load()
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(key.Verifier)
}

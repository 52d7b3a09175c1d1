// Package witness follows the transparency log of a core-api on an auditor's machine: it checks
// that each checkpoint extends the one before, keeps them, and cosigns them (C2SP tlog-witness,
// tlog-cosignature). A log that was cut, rolled back, rebuilt or shown differently is a Finding,
// with both checkpoints. The package knows neither databases nor how the log is reached.
package witness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/transparency-dev/formats/note"
	sumdb "golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/time/rate"

	"secbox/audit/translog"
	"secbox/audit/translog/checkpoint"
	"secbox/fault"
	"secbox/internal/lockfile"
	"secbox/internal/statedir"
)

// Names of files in the directory of a witness.
const (
	CheckpointsFile = "checkpoints"
	keyFile         = "witness.key"
	lockFile        = "witness.lock"
	evidenceDir     = "evidence"
)

const (
	checkTimeout = 2 * time.Minute // of one look at the log, all tiles included
	maxPause     = time.Minute     // between two looks, after failures
)

// Get reads a resource of the log by its path below /audit/log/. It fails with fault.NotLogged for
// an empty log, and reads no more than limit bytes.
type Get func(ctx context.Context, path string, limit int64) ([]byte, error)

// Config configures a Witness.
type Config struct {
	Dir    string
	Key    string // public, of the log
	Name   string // of the witness, when it makes its key
	Get    Get
	Logger *slog.Logger
	Now    func() time.Time // nil: time.Now
}

// Witness is a witness of one log. It holds its directory until it is closed.
type Witness struct {
	cfg      Config
	key      sumdb.Verifier
	cosigner sumdb.Signer
	verifier string
	lock     *os.File
	doubted  chan []byte   // checkpoints that came with a proof that does not verify
	requests *rate.Limiter // of checkpoints that are kept

	mu     sync.Mutex
	kept   *os.File
	size   int64                 // of kept, in bytes
	latest checkpoint.Checkpoint // size 0: none yet
	found  *Finding
}

// Open opens or makes the directory of a witness. It fails with fault.StateDirInUse while another
// process has it.
func Open(cfg Config) (_ *Witness, err error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	w := &Witness{cfg: cfg, doubted: make(chan []byte, 1), requests: rate.NewLimiter(keptPerSecond, keptAtOnce)}
	if w.key, err = sumdb.NewVerifier(cfg.Key); err != nil {
		return nil, fault.Wrap(fault.InvalidRequest, err, "the key is not the public key of a log; `core-api audit key` prints it")
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, evidenceDir), 0o700); err != nil {
		return nil, unusable(cfg.Dir, err)
	}
	defer func() {
		if err != nil {
			_ = w.Close()
		}
	}()
	if w.lock, err = os.OpenFile(filepath.Join(cfg.Dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, unusable(cfg.Dir, err)
	}
	if err := lockfile.Try(w.lock); errors.Is(err, lockfile.ErrLocked) {
		return nil, fault.Wrap(fault.StateDirInUse, err, "another witness uses %s; stop it, or give this one its own --dir", cfg.Dir)
	} else if err != nil {
		return nil, unusable(cfg.Dir, err)
	}
	if err := errors.Join(w.openKey(), w.openEvidence()); err != nil {
		return nil, err
	}
	return w, w.openKept()
}

// openKey reads the key of the witness, or makes it.
func (w *Witness) openKey() error {
	path := filepath.Join(w.cfg.Dir, keyFile)
	text, err := statedir.ReadSecret(path)
	if errors.Is(err, os.ErrNotExist) {
		made, _, err := sumdb.GenerateKey(rand.Reader, w.cfg.Name)
		if err != nil {
			return fault.Wrap(fault.InvalidRequest, err, "%q is no name of a witness; give one without spaces and + by --name", w.cfg.Name)
		}
		if err := statedir.WriteNew(path, made+"\n"); err != nil {
			return unusable(w.cfg.Dir, err)
		}
		text = []byte(made)
	} else if err != nil {
		return unusable(w.cfg.Dir, err)
	}
	secret := string(text)
	key, err := translog.ParseKey(secret)
	if err == nil {
		w.verifier, err = note.VKeyToCosignatureV1(key.Verifier)
	}
	if err == nil {
		w.cosigner, err = note.NewSignerForCosignatureV1(secret)
	}
	if err != nil {
		return fault.Wrap(fault.InvalidRequest, err, "the key of the witness, %s, is damaged; restore it from a backup", path)
	}
	return nil
}

// openKept finds the last checkpoint that was kept.
func (w *Witness) openKept() (err error) {
	path := filepath.Join(w.cfg.Dir, CheckpointsFile)
	if w.kept, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err != nil {
		return unusable(w.cfg.Dir, err)
	}
	if err := statedir.SyncDir(w.cfg.Dir); err != nil {
		return unusable(w.cfg.Dir, err)
	}
	info, err := w.kept.Stat()
	if err != nil {
		return unusable(w.cfg.Dir, err)
	}
	w.size = info.Size()
	own, err := note.NewVerifierForCosignatureV1(w.verifier)
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the key of the witness cannot be used")
	}
	latest, found, err := checkpoint.Last(w.kept, w.size, w.key, own)
	switch {
	case err != nil:
		return unusable(w.cfg.Dir, err)
	case !found && w.size > 0:
		return fault.New(fault.InvalidRequest, "%s has no checkpoint of the log %s with this key; give the key of the log that this "+
			"witness follows, or another --dir", path, w.key.Name())
	}
	w.latest = latest
	return nil
}

func unusable(dir string, err error) error {
	return fault.Wrap(fault.InvalidRequest, err, "cannot use the directory %s: %s", dir, fault.Reason(err))
}

// Close releases the directory.
func (w *Witness) Close() error {
	var err error
	if w.kept != nil {
		err = w.kept.Close()
	}
	if w.lock != nil {
		err = errors.Join(err, lockfile.Close(w.lock))
	}
	return err
}

// Verifier returns the public key of the witness.
func (w *Witness) Verifier() string { return w.verifier }

// Latest returns the last checkpoint that was kept; size 0 if there is none.
func (w *Witness) Latest() checkpoint.Checkpoint {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// Check looks at the log once. It fails with a *Finding if the log is not the log that was seen
// before, and if the evidence of an earlier finding is still in the directory.
func (w *Witness) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	before := w.Latest() // before the request: core-api may show the witness a newer one meanwhile
	shown, err := w.cfg.Get(ctx, "checkpoint", checkpoint.MaxBytes)
	switch {
	case fault.Is(err, fault.NotLogged) && before.Tree.N > 0:
		return w.find(Cut, checkpoint.ErrSmaller, before, "(the server says that the log is empty)\n")
	case err != nil:
		return err
	}
	return w.orFound(w.examine(ctx, shown, before))
}

// Follow looks at the log until ctx ends. It returns a *Finding, also the finding of an earlier
// process. Failures are logged when they come, change and go.
func (w *Witness) Follow(ctx context.Context, every time.Duration) error {
	var failing error
	var doubted []byte // not compared yet: the log may not show the tiles that it needs
	pause := every
	for {
		err := w.Check(ctx)
		finding := (*Finding)(nil)
		if doubted != nil && err == nil {
			if err = w.recheck(ctx, doubted); err == nil {
				doubted = nil
			}
		}
		switch {
		case errors.As(err, &finding):
			return finding
		case ctx.Err() != nil:
			return w.orFound(nil)
		case err != nil:
			if failing == nil || failing.Error() != err.Error() {
				w.cfg.Logger.Warn("cannot check the log; trying again", "reason", fault.From(err).Message, "err", err)
			}
			pause = max(every, min(2*pause, maxPause))
		case failing != nil:
			w.cfg.Logger.Info("the log can be checked again")
			pause = every
		}
		failing = err
		select {
		case <-ctx.Done():
			return w.orFound(nil)
		case doubted = <-w.doubted:
		case <-time.After(pause):
		}
	}
}

// recheck checks a checkpoint that came with a wrong proof, which any client can send, against the
// tiles of the log.
func (w *Witness) recheck(ctx context.Context, shown []byte) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return w.examine(ctx, shown, checkpoint.Checkpoint{})
}

// examine checks a checkpoint that the log has shown after the witness had kept the one before, and
// keeps it.
func (w *Witness) examine(ctx context.Context, shown []byte, before checkpoint.Checkpoint) error {
	next, err := checkpoint.Open(shown, w.key)
	switch {
	case errors.Is(err, checkpoint.ErrFormat):
		return fault.Wrap(fault.UpstreamFailed, err, "the server's answer is no checkpoint of a transparency log: %s", err)
	case err != nil:
		return w.find(kindOf(err), err, before, string(shown))
	case next.Tree.N < before.Tree.N:
		return w.find(Cut, checkpoint.ErrSmaller, before, next.Signed)
	}
	for {
		latest := w.Latest()
		older, newer := latest, next
		if newer.Tree.N < older.Tree.N {
			older, newer = newer, older
		}
		if err := checkpoint.Extends(older.Tree, newer.Tree, remote{ctx, w.cfg.Get}); kindOf(err) != "" {
			return w.find(kindOf(err), err, latest, next.Signed)
		} else if err != nil {
			return err
		}
		if done, err := w.keepAfter(latest, next); done || err != nil {
			return err
		}
	}
}

// keepAfter keeps a checkpoint that extends the latest one, unless it is no larger. It returns
// false if another checkpoint was kept meanwhile.
func (w *Witness) keepAfter(latest, next checkpoint.Checkpoint) (bool, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest.Signed != latest.Signed {
		return false, nil
	}
	if next.Tree.N <= latest.Tree.N && latest.Signed != "" {
		return true, nil
	}
	_, err := w.keep(next)
	return true, err
}

// keep cosigns a checkpoint and keeps it. It returns the line of the signature. It needs mu.
func (w *Witness) keep(next checkpoint.Checkpoint) (line string, err error) {
	if w.found != nil {
		return "", w.found
	}
	cosigned, line, err := next.Cosign(w.cosigner)
	if err != nil {
		return "", err
	}
	err = checkpoint.Append(w.kept, w.size, cosigned)
	if info, statErr := w.kept.Stat(); statErr == nil {
		w.size = info.Size()
	}
	if err != nil {
		return "", fault.Wrap(fault.DiskFull, err, "cannot keep a checkpoint in %s: %s; make room there", w.cfg.Dir, fault.Reason(err))
	}
	w.latest = cosigned
	w.cfg.Logger.Info("the log extends the checkpoint before", "entries", next.Tree.N, "root", next.Tree.Hash)
	return line, nil
}

// remote reads the tiles of the log.
type remote struct {
	ctx context.Context // of one check
	get Get
}

func (r remote) Height() int                     { return translog.TileHeight }
func (r remote) SaveTiles([]tlog.Tile, [][]byte) {}

func (r remote) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	all := make([][]byte, len(wanted))
	for i, tile := range wanted {
		path := fmt.Sprintf("tile/%s", tile.Path()[len("tile/8/"):])
		bytes := tile.W * tlog.HashSize
		data, err := r.get(r.ctx, path, int64(bytes))
		if err != nil {
			return nil, err
		}
		if len(data) != bytes {
			return nil, fault.New(fault.UpstreamFailed, "the server's %s has %d bytes, not %d", path, len(data), bytes)
		}
		all[i] = data
	}
	return all, nil
}

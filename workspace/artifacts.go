package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/internal/admission"
	"secbox/workspace/tree"
)

// Artifacts is the artifacts directory of one exec, open for reading. Every file is compared with
// the manifest before its first byte is returned, and the manifest with the recorded digest. It
// must be closed; files opened from it live on.
type Artifacts struct {
	Manifest Manifest

	w       *Workspace
	execID  string
	dir     *tree.Tree
	index   map[string]int // of the regular files of the job in Manifest.Files; nil until the first Open
	reserve Reserve
	taken   int64 // bytes of memory, given back by Close
}

// Reserve counts bytes of memory before they are used; its error says that they do not fit. A
// negative number gives bytes back.
type Reserve func(bytes int64) error

// manifestPrice is the memory that one byte of a manifest takes while it is open: its text, the
// entries decoded, their index and the list made of them.
const manifestPrice = 4

// Artifacts reads an exec's manifest.json once and opens any number of its files. digest is the
// recorded one, "sha256:" and hexadecimal digits. A missing manifest is fault.UnknownArtifact, one
// with another digest fault.ArtifactAltered. The memory counts until Close; a nil reserve leaves it
// uncounted.
func (p *Project) Artifacts(execID, digest string, reserve Reserve) (*Artifacts, error) {
	a, err := p.newArtifacts(execID, reserve)
	if err != nil {
		return nil, err
	}
	if err := a.readManifest(digest, manifestPrice, &a.Manifest, &a.Manifest.ExecID); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// OpenPublished opens a file of core-api, such as stdout.txt or manifest.json, of an exec like
// Artifacts.Open, and reads no list of artifacts for that. Execs of early versions list only the
// manifest: the entry's SHA256 is then empty, and the file is not checked.
func (p *Project) OpenPublished(ctx context.Context, execID, digest, name string, reserve Reserve) (io.ReadSeekCloser, ManifestEntry,
	error,
) {
	a, err := p.newArtifacts(execID, reserve)
	if err != nil {
		return nil, ManifestEntry{}, err
	}
	defer a.Close()
	if name == ManifestName {
		return a.openManifest(ctx, digest)
	}
	var m struct { // decoding it skips the list of artifacts
		ExecID    string          `json:"exec_id"`
		Published []ManifestEntry `json:"published"`
	}
	if err := admission.Do(ctx, func() error { return a.readManifest(digest, 1, &m, &m.ExecID) }); err != nil {
		return nil, ManifestEntry{}, err
	}
	a.Manifest.Published = m.Published
	return a.OpenPublished(ctx, name)
}

func (p *Project) newArtifacts(execID string, reserve Reserve) (*Artifacts, error) {
	dir, err := p.artifacts(execID)
	if err != nil {
		return nil, err
	}
	if reserve == nil {
		reserve = func(int64) error { return nil }
	}
	return &Artifacts{w: p.w, execID: execID, dir: tree.New(dir), reserve: reserve}, nil
}

// statManifest opens manifest.json.
func (a *Artifacts) statManifest() (*os.File, fs.FileInfo, error) {
	f, fi, err := a.dir.Open(ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fault.Wrap(fault.UnknownArtifact, err, "the artifacts of exec %s are no longer in the workspace", a.execID)
	}
	if err != nil {
		return nil, nil, a.altered(ManifestName, err)
	}
	return f, fi, nil
}

// openManifest opens manifest.json like a file that it lists.
func (a *Artifacts) openManifest(ctx context.Context, digest string) (io.ReadSeekCloser, ManifestEntry, error) {
	f, fi, err := a.statManifest()
	if err != nil {
		return nil, ManifestEntry{}, err
	}
	f.Close()
	entry := ManifestEntry{Path: ManifestName, Size: fi.Size(), SHA256: strings.TrimPrefix(digest, "sha256:"), Kind: KindFile}
	content, err := a.open(ctx, entry)
	return content, entry, err
}

// readManifest decodes manifest.json into a struct with its exec_id. Each byte has a price in
// memory.
func (a *Artifacts) readManifest(digest string, price int64, into any, execID *string) error {
	f, fi, err := a.statManifest()
	if err != nil {
		return err
	}
	defer f.Close()
	size := min(fi.Size(), maxManifestBytes+1) // a longer one has another digest
	if err := a.reserve(price * size); err != nil {
		return err
	}
	a.taken += price * size
	raw := make([]byte, size)
	n, err := io.ReadFull(f, raw)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return tree.Failed(err, "the manifest of exec %s cannot be read", a.execID)
	}
	raw = raw[:n]
	sum := sha256.Sum256(raw)
	if now := "sha256:" + hex.EncodeToString(sum[:]); now != digest {
		return a.altered(ManifestName, fmt.Errorf("it %w: its digest is %s, the row has %s", errAltered, now, digest))
	}
	if err = json.Unmarshal(raw, into); err == nil && *execID != a.execID {
		err = fmt.Errorf("it is the manifest of exec %q", tree.CutName(*execID, 64))
	}
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the manifest of exec %s is damaged", a.execID)
	}
	return nil
}

// Close closes the directory, and gives the memory back. Safe to call twice.
func (a *Artifacts) Close() error {
	_ = a.reserve(-a.taken)
	a.taken = 0
	return a.dir.Close()
}

// Open opens a regular file by its path in the manifest. A path that is not in the manifest is
// fault.UnknownArtifact; a file that is missing, special or has other content is
// fault.ArtifactAltered. A Read fails when the file changes after Open. It is not safe for
// concurrent use.
func (a *Artifacts) Open(ctx context.Context, name string) (io.ReadSeekCloser, ManifestEntry, error) {
	if a.index == nil {
		a.index = make(map[string]int, len(a.Manifest.Files))
		for i, f := range a.Manifest.Files {
			if f.Kind == KindFile {
				a.index[f.Path] = i
			}
		}
	}
	i, ok := a.index[name]
	// A forged manifest must not lead out of the directory; os.Root refuses that too, but later.
	if !ok || !fs.ValidPath(name) || name == "." || !fs.ValidPath(a.Manifest.Files[i].onDisk()) {
		return nil, ManifestEntry{}, unknownArtifact(errors.New("not in the manifest"))
	}
	f, err := a.open(ctx, a.Manifest.Files[i])
	return f, a.Manifest.Files[i], err
}

// OpenPublished opens a file of core-api other than manifest.json like Project.OpenPublished.
func (a *Artifacts) OpenPublished(ctx context.Context, name string) (io.ReadSeekCloser, ManifestEntry, error) {
	if len(a.Manifest.Published) == 0 && slices.Contains(publishedNames, name) {
		f, fi, err := a.dir.Open(name)
		if err != nil {
			return nil, ManifestEntry{}, unknownArtifact(err)
		}
		return f, ManifestEntry{Path: name, Size: fi.Size(), Kind: KindFile}, nil
	}
	for _, entry := range a.Manifest.Published {
		if entry.Path == name && slices.Contains(publishedNames, name) {
			f, err := a.open(ctx, entry)
			return f, entry, err
		}
	}
	return nil, ManifestEntry{}, unknownArtifact(fmt.Errorf("%q is no published file", name))
}

// open opens the file of an entry and compares the two.
func (a *Artifacts) open(ctx context.Context, entry ManifestEntry) (io.ReadSeekCloser, error) {
	f, fi, err := a.dir.Open(entry.onDisk())
	if err != nil {
		return nil, a.altered(entry.Path, err)
	}
	stat := tree.StatOf(fi)
	err = a.w.intact.check(ctx, f, stat, entry)
	switch {
	case errors.Is(err, errAltered):
		err = a.altered(entry.Path, err)
	case err != nil:
		err = tree.Failed(err, "%q of exec %s cannot be read", tree.CutName(entry.Path, maxOmittedName), a.execID)
	default:
		return &unchanged{f: f, stat: stat}, nil
	}
	f.Close()
	return nil, err
}

// altered wraps an error about a file that was changed after it was collected. Other errors, such
// as the disk's errors, keep their meaning.
func (a *Artifacts) altered(name string, err error) error {
	proof := "the manifest has its size and SHA-256"
	if name == ManifestName {
		proof = "the record has its SHA-256 as manifest_digest"
	}
	for _, about := range []error{fs.ErrNotExist, tree.ErrNotDir, tree.ErrNotRegular, tree.ErrSwapped, errAltered} {
		if errors.Is(err, about) {
			return fault.Wrap(fault.ArtifactAltered, err,
				"%q of exec %s was changed after the exec ended, so it is not served: restore it from a backup; %s",
				tree.CutName(name, maxOmittedName), a.execID, proof)
		}
	}
	return tree.Failed(err, "%q of exec %s cannot be read", tree.CutName(name, maxOmittedName), a.execID)
}

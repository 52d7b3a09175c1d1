package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"secbox/fault"
	"secbox/tree"
)

// Artifacts is the artifacts directory of one exec, open for reading. Every file is compared with the manifest before its first byte
// is returned, and the manifest with the recorded digest. It must be closed; files opened from it live on.
type Artifacts struct {
	Manifest Manifest

	w      *Workspace
	execID string
	dir    *tree.Tree
	raw    []byte                   // manifest.json
	files  map[string]ManifestEntry // the regular files of the job
}

// Artifacts reads an exec's manifest.json once and opens any number of its files. digest is the recorded one, "sha256:" and
// hexadecimal digits. A missing manifest is fault.UnknownArtifact, one with another digest fault.ArtifactAltered.
func (p *Project) Artifacts(execID, digest string) (*Artifacts, error) {
	dir, err := p.artifacts(execID)
	if err != nil {
		return nil, err
	}
	a := &Artifacts{w: p.w, execID: execID, dir: tree.New(dir), files: map[string]ManifestEntry{}}
	if err := a.readManifest(digest); err != nil {
		dir.Close()
		return nil, err
	}
	for _, f := range a.Manifest.Files {
		if f.Kind == KindFile {
			a.files[f.Path] = f
		}
	}
	return a, nil
}

func (a *Artifacts) readManifest(digest string) error {
	f, _, err := a.dir.Open(ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(fault.UnknownArtifact, err, "the artifacts of exec %s are no longer in the workspace", a.execID)
	}
	if err != nil {
		return a.altered(ManifestName, err)
	}
	defer f.Close()
	a.raw, err = io.ReadAll(io.LimitReader(f, maxManifestBytes+1))
	if err != nil {
		return tree.Failed(err, "the manifest of exec %s cannot be read", a.execID)
	}
	sum := sha256.Sum256(a.raw)
	if now := "sha256:" + hex.EncodeToString(sum[:]); now != digest {
		return a.altered(ManifestName, fmt.Errorf("it %w: its digest is %s, the row has %s", errAltered, now, digest))
	}
	err = json.Unmarshal(a.raw, &a.Manifest)
	if err == nil && a.Manifest.ExecID != a.execID {
		err = fmt.Errorf("it is the manifest of exec %q", tree.CutName(a.Manifest.ExecID, 64))
	}
	if err != nil {
		return fault.Wrap(fault.Internal, err, "the manifest of exec %s is damaged", a.execID)
	}
	return nil
}

// Close closes the directory.
func (a *Artifacts) Close() error { return a.dir.Close() }

// Open opens a regular file by its path in the manifest. A path that is not in the manifest is fault.UnknownArtifact; a file that is
// missing, special or has other content is fault.ArtifactAltered. A Read fails when the file changes after Open.
func (a *Artifacts) Open(ctx context.Context, name string) (io.ReadSeekCloser, error) {
	entry, ok := a.files[name]
	// A forged manifest must not lead out of the directory; os.Root refuses that too, but later.
	if !ok || !fs.ValidPath(name) || name == "." {
		return nil, unknownArtifact(errors.New("not in the manifest"))
	}
	return a.open(ctx, entry)
}

// OpenPublished opens stdout.txt, stderr.txt, manifest.json or meta.json like Open. Execs of early versions list only the manifest:
// the entry's SHA256 is then empty, and the file is not checked.
func (a *Artifacts) OpenPublished(ctx context.Context, name string) (io.ReadSeekCloser, ManifestEntry, error) {
	if name == ManifestName {
		sum := sha256.Sum256(a.raw)
		entry := ManifestEntry{Path: name, Size: int64(len(a.raw)), SHA256: hex.EncodeToString(sum[:]), Kind: KindFile}
		return inMemory{bytes.NewReader(a.raw)}, entry, nil
	}
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

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

// open opens the file of an entry and compares the two.
func (a *Artifacts) open(ctx context.Context, entry ManifestEntry) (io.ReadSeekCloser, error) {
	f, fi, err := a.dir.Open(entry.Path)
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

// altered wraps an error about a file that was changed after it was collected. Other errors, such as those of the disk, keep their
// meaning.
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

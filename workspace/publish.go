package workspace

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"secbox/fault"
	"secbox/workspace/tree"
)

// The files of core-api in an exec's artifacts.
const (
	StdoutName   = "stdout.txt"
	StderrName   = "stderr.txt"
	ManifestName = "manifest.json"
	MetaName     = "meta.json"
	CastName     = "terminal.cast" // of an exec with a terminal
	UsageName    = "usage.json"    // of a session
)

var publishedNames = []string{StdoutName, StderrName, ManifestName, MetaName, CastName, UsageName}

// artifacts opens an exec's directory. It restores the rights of the owner, who may be this
// process's user, in case the job removed them.
func (p *Project) artifacts(execID string) (*os.Root, error) {
	all, err := p.openArtifacts(execID)
	if err != nil {
		return nil, err
	}
	defer all.Close()
	fi, err := all.Lstat(execID)
	if err == nil && fi.IsDir() {
		err = tree.MakeUsable(all, execID, fi)
	}
	var dir *os.Root
	if err == nil {
		dir, _, err = tree.OpenDir(all, execID)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, unknownArtifact(err)
	case err != nil:
		return nil, damaged(err, "the artifacts directory of exec %s is a link or cannot be opened: remove the link or file in its place",
			execID)
	}
	return dir, nil
}

// HasArtifacts reports whether the artifacts directory of an exec is there.
func (p *Project) HasArtifacts(execID string) (bool, error) {
	all, err := p.openArtifacts(execID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer all.Close()
	_, err = all.Lstat(execID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, wrapFailed(err, "cannot stat the artifacts directory of exec %s", execID)
}

// File is a file of core-api to be published.
type File struct {
	Name    string // one of core-api's
	Content io.ReadSeeker
}

// Describe reads a file's content, rewinds it, and returns its manifest entry.
func Describe(f File) (ManifestEntry, error) {
	h := sha256.New()
	size, err := io.Copy(h, f.Content)
	if err == nil {
		_, err = f.Content.Seek(0, io.SeekStart)
	}
	return ManifestEntry{Path: f.Name, Size: size, SHA256: hex.EncodeToString(h.Sum(nil)), Kind: KindFile}, err
}

// Publish writes a file of core-api into an exec's artifacts after Collect. Anything with that
// name, such as a link or a directory, is removed; nothing is written through it. The file appears
// whole or not at all.
func (p *Project) Publish(execID, name string, r io.ReadSeeker) error {
	return p.PublishAll(execID, File{Name: name, Content: r})
}

// PublishAll publishes files in order. It stops at the first error; earlier files stay.
func (p *Project) PublishAll(execID string, files ...File) error {
	dir, err := p.artifacts(execID)
	if err != nil {
		return err
	}
	defer dir.Close()
	for _, file := range files {
		if !slices.Contains(publishedNames, file.Name) {
			return fault.New(fault.Internal, "%q is no name of a published file", file.Name)
		}
		if err := publish(dir, ".publish-"+p.w.TempName(), file); err != nil {
			return tree.Failed(err, "%s of exec %s cannot be written", file.Name, execID)
		}
	}
	return nil
}

func publish(dir *os.Root, temp string, file File) error {
	f, err := dir.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, file.Content)
	if err = errors.Join(err, tree.UndoFileUmask(f, false), f.Close()); err == nil {
		err = dir.Rename(temp, file.Name)
		if err != nil { // a directory is in the way: a rename replaces other files
			if _, err = tree.RemoveTree(context.Background(), dir, file.Name); err == nil {
				err = dir.Rename(temp, file.Name)
			}
		}
	}
	if err != nil {
		_ = dir.Remove(temp)
	}
	return err
}

// ReadCollected reads a regular file at the top of an exec's artifacts, after Collect and before
// the manifest is published. An error that is no *fault.Error is about the file.
func (p *Project) ReadCollected(execID, name string, most int64) ([]byte, error) {
	dir, err := p.artifacts(execID)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, fi, err := tree.OpenRegular(dir, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi.Size() > most {
		return nil, fmt.Errorf("it has %d bytes, at most %d are read", fi.Size(), most)
	}
	return io.ReadAll(io.LimitReader(f, most))
}

func unknownArtifact(err error) error {
	return fault.Wrap(fault.UnknownArtifact, err, "the exec left no such file")
}

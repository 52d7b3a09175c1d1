package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"secbox/fault"
	"secbox/workspace/tree"
)

// CheckArtifacts compares the artifacts of an exec with its manifest, and the manifest with the
// recorded digest. It calls report for each file that was changed, is missing, or is not in the
// manifest, and returns how many files it compared. Errors are about the disk, or mean that there
// are no artifacts at all: fault.UnknownArtifact.
func (p *Project) CheckArtifacts(ctx context.Context, execID, digest string, report func(what, expected, found string)) (files int,
	err error,
) {
	a, err := p.Artifacts(execID, digest, nil)
	if fault.Is(err, fault.ArtifactAltered) || fault.Is(err, fault.Internal) || fault.Is(err, fault.ProjectDamaged) {
		report(ManifestName, digest, found(err))
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer a.Close()
	files = 1
	listed := map[string]bool{ManifestName: true}
	for i, entry := range slices.Concat(a.Manifest.Files, a.Manifest.Published) {
		listed[entry.onDisk()] = true
		if entry.Kind != KindFile {
			continue
		}
		open := func() error { f, _, err := a.Open(ctx, entry.Path); return closed(f, err) }
		if i >= len(a.Manifest.Files) {
			open = func() error { f, _, err := a.OpenPublished(ctx, entry.Path); return closed(f, err) }
		}
		switch err := open(); {
		case fault.Is(err, fault.ArtifactAltered), fault.Is(err, fault.UnknownArtifact):
			report("artifact "+quoted(entry.Path), fmt.Sprintf("the size %d and the SHA-256 %.64s", entry.Size, entry.SHA256), found(err))
		case err != nil:
			return files, err
		}
		files++
	}
	if len(a.Manifest.Published) == 0 { // an early version, whose manifest does not have them
		for _, name := range publishedNames {
			listed[name] = true
		}
	}
	const most = 20 // extra files that are named
	extra := 0
	err = a.dir.Walk(ctx, tree.Bounds{Entries: 2 * tree.MaxEntries, Depth: tree.MaxDepth, SkipReplaced: true}, func(e tree.Entry) error {
		if e.Info.IsDir() || listed[e.Path] {
			return nil
		}
		if extra++; extra <= most {
			report("artifact "+quoted(e.Path), "no such file", "one that the manifest does not have")
		}
		return nil
	})
	if extra > most {
		report("artifacts", "no other files", fmt.Sprintf("%d more that the manifest does not have", extra-most))
	}
	if fault.Is(err, fault.TreeTooLarge) {
		report("artifacts", fmt.Sprintf("the %d files of the manifest", len(listed)), err.Error())
		err = nil
	}
	return files, err
}

func closed(f interface{ Close() error }, err error) error {
	if err != nil {
		return err
	}
	return f.Close()
}

func quoted(name string) string { return fmt.Sprintf("%q", tree.CutName(name, maxOmittedName)) }

// found returns the cause of an error without its remedy.
func found(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "none"
	}
	if e := fault.From(err); e.Err != nil {
		return e.Err.Error()
	}
	return err.Error()
}

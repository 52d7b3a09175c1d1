package console_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"slices"
	"strings"

	"secbox/fault"
	"secbox/runner"
)

// addFile adds an artifact to the application.
func (f *fakeApp) addFile(path, content string) {
	sum := sha256.Sum256([]byte(content))
	f.files = append(f.files, runner.Artifact{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])})
	if f.content == nil {
		f.content = map[string]string{}
	}
	f.content[path] = content
}

// fakeFiles has the artifacts of an application.
type fakeFiles struct{ app *fakeApp }

func (f fakeFiles) List() runner.ArtifactList {
	list := f.app.notKept
	list.Items = f.app.files
	return list
}

func (f fakeFiles) Open(_ context.Context, path string) (io.ReadSeekCloser, runner.Artifact, error) {
	i := slices.IndexFunc(f.app.files, func(a runner.Artifact) bool { return a.Path == path })
	if i < 0 {
		return nil, runner.Artifact{}, fault.New(fault.UnknownArtifact, "there is no such file")
	}
	return readSeekCloser{strings.NewReader(f.app.content[path])}, f.app.files[i], nil
}

func (fakeFiles) Close() error { return nil }

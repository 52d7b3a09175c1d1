package client

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

// InputFile reads a file of this machine as the input with a path; empty: the file's name.
func InputFile(name, as string) (Input, error) {
	f, err := os.Open(name)
	if err != nil {
		return Input{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a directory; name files", name)
	}
	if err != nil {
		return Input{}, err
	}
	content, err := io.ReadAll(io.LimitReader(f, maxInput+1))
	if err != nil {
		return Input{}, err
	}
	if len(content) > maxInput {
		return Input{}, fmt.Errorf("%s has more than %d bytes; write it into the project's files instead", name, maxInput)
	}
	if as == "" {
		as = filepath.Base(name)
	}
	in := InputBytes(as, content)
	if info.Mode()&0o111 != 0 {
		in.Mode = "0755"
	}
	return in, nil
}

// maxInput bounds what InputFile reads, in bytes. A server's bound of a body is lower by default.
const maxInput = 256 << 20

// InputBytes is an input with any content.
func InputBytes(path string, content []byte) Input {
	if utf8.Valid(content) {
		return Input{Path: path, Content: string(content)}
	}
	return Input{Path: path, Content: base64.StdEncoding.EncodeToString(content), Encoding: "base64"}
}

// Output returns what an exec has written to stdout or stderr. The caller closes it.
func (c *Client) Output(ctx context.Context, execID, stream string) (io.ReadCloser, error) {
	if stream != "stdout" && stream != "stderr" {
		return nil, fmt.Errorf("%q is no stream; use stdout or stderr", stream)
	}
	return c.download(ctx, segments("sandbox", "execs", execID, stream), nil)
}

func (c *Client) download(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	resp, err := c.send(ctx, call{method: http.MethodGet, path: path, query: query})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Artifacts lists the artifacts of an exec.
func (c *Client) Artifacts(ctx context.Context, execID string) ([]Artifact, error) {
	var list struct {
		Items []Artifact `json:"items"`
	}
	_, err := c.json(ctx, call{method: http.MethodGet, path: segments("sandbox", "execs", execID, "artifacts")}, &list)
	return list.Items, err
}

// Artifact returns the content of an artifact. The caller closes it.
func (c *Client) Artifact(ctx context.Context, execID, name string) (io.ReadCloser, error) {
	return c.download(ctx, segments(append([]string{"sandbox", "execs", execID, "artifacts"}, strings.Split(name, "/")...)...), nil)
}

// SaveArtifacts writes artifacts of an exec into a directory, which it makes. Each file appears
// when it is complete and its digest right. Names and links cannot lead out of the directory.
func (c *Client) SaveArtifacts(ctx context.Context, execID string, artifacts []Artifact, dir string) error {
	if len(artifacts) == 0 {
		return nil
	}
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, a := range artifacts {
		if err := c.saveArtifact(ctx, execID, a, root); err != nil {
			return fmt.Errorf("the artifact %q: %w", a.Path, err)
		}
	}
	return nil
}

func (c *Client) saveArtifact(ctx context.Context, execID string, a Artifact, root *os.Root) error {
	name, err := filepath.Localize(a.Path)
	if err != nil {
		return fmt.Errorf("its name is not possible on this system: %w", err)
	}
	content, err := c.Artifact(ctx, execID, a.Path)
	if err != nil {
		return err
	}
	defer content.Close()
	if err := root.MkdirAll(filepath.Dir(name), 0o777); err != nil {
		return err
	}
	part := filepath.Join(filepath.Dir(name), "."+NewKey()+".part")
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() { _ = root.Remove(part) }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(content, a.Size+1))
	if e := f.Close(); err == nil {
		err = e
	}
	switch {
	case err != nil:
		return err
	case n != a.Size || a.SHA256 != "" && hex.EncodeToString(sum.Sum(nil)) != a.SHA256:
		return fmt.Errorf("its content is not what its exec left")
	}
	return root.Rename(part, name)
}

// Files are the files of a project or a session. Names are absolute, such as /workspace/work/a.txt.
type Files struct {
	c    *Client
	path string
}

// ProjectFiles are the files of a project.
func (c *Client) ProjectFiles(project string) Files {
	return Files{c, segments("sandbox", "projects", project, "files")}
}

// SessionFiles are the files of a session.
func (c *Client) SessionFiles(sessionID string) Files {
	return Files{c, segments("sandbox", "sessions", sessionID, "files")}
}

// FileEntry describes a file.
type FileEntry struct {
	Name string `json:"name"`
	Type string `json:"type"` // file, directory, …
	Size int64  `json:"size"`
}

// Read returns the content of a file. The caller closes it.
func (f Files) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	return f.c.download(ctx, f.path+"/content", url.Values{"path": {name}})
}

// Write replaces a file by what content has, of any size. It is not repeated.
func (f Files) Write(ctx context.Context, name string, content io.Reader) error {
	_, err := f.c.json(ctx, call{
		method: http.MethodPut, path: f.path + "/content", query: url.Values{"path": {name}},
		content: content, once: true,
	}, nil)
	return err
}

// List returns the entries of a directory.
func (f Files) List(ctx context.Context, dir string) (entries []FileEntry, err error) {
	for entry, e := range pages[FileEntry](ctx, f.c, f.path, url.Values{"path": {path.Clean(dir)}}) {
		if e != nil {
			return nil, e
		}
		entries = append(entries, entry)
	}
	return entries, nil
}

// Remove removes a file, or with recursive a directory.
func (f Files) Remove(ctx context.Context, name string, recursive bool) error {
	query := url.Values{"path": {name}}
	if recursive {
		query.Set("recursive", "true")
	}
	_, err := f.c.json(ctx, call{method: http.MethodDelete, path: f.path, query: query, once: true}, nil)
	return err
}

package dockercli

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"secbox/fault"
)

// Pipe runs docker to its end with these standard streams, of any size; nil is none. stdout and
// stderr are written to at the same time. No process is left when it returns, nor, on Linux, when
// this process is killed. Its errors are the errors of Output, by the end of docker's standard
// error.
func (c *CLI) Pipe(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, args ...string) error {
	runtime.LockOSThread() // see FollowImages
	defer runtime.UnlockOSThread()
	cmd, _ := c.command(ctx, args...)
	killWithParent(cmd)
	cmd.Cancel = func() error { return killGroup(cmd) }
	cmd.Env = append(slices.Clone(cmd.Env), c.proxies...)
	last := &tail{limit: maxStderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, last
	if stderr != nil {
		cmd.Stderr = io.MultiWriter(last, stderr)
	}
	err := cmd.Run()
	if ctxErr := ctx.Err(); ctxErr != nil && err != nil {
		return fault.Wrap(fault.Internal, errors.Join(ctxErr, err), "docker %s was interrupted", args[0])
	}
	if err != nil {
		return interpret(args[0], last.String(), err)
	}
	return nil
}

// Proxies returns the flags that hand the proxies of this process's environment to a build. Their
// values, which may have a password, are in no argument, and docker keeps them out of the image.
func (c *CLI) Proxies() []string {
	var flags []string
	for _, kv := range c.proxies {
		name, _, _ := strings.Cut(kv, "=")
		flags = append(flags, "--build-arg", name)
	}
	return flags
}

// proxyNames are variables that docker build knows without a declaration.
var proxyNames = []string{"HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY"}

func proxies(environ []string) []string {
	var env []string
	for _, kv := range environ {
		if name, value, _ := strings.Cut(kv, "="); value != "" && slices.Contains(proxyNames, strings.ToUpper(name)) {
			env = append(env, kv)
		}
	}
	return env
}

// tail keeps the last limit bytes.
type tail struct {
	kept  []byte
	limit int
}

func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.limit; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}

func (t *tail) String() string { return string(t.kept) }

// ImageDetails is what a check of an image needs beyond Image.
type ImageDetails struct {
	Image
	User string // of its processes; empty: root
	Size int64  // bytes
}

// DescribeImage inspects an image; fault.ImageMissing when it does not exist.
func (c *CLI) DescribeImage(ctx context.Context, ref string) (ImageDetails, error) {
	return query[ImageDetails](ctx, c, "image", "inspect", "--format",
		`{"ID":{{json .Id}},"Labels":{{json .Config.Labels}},"User":{{json .Config.User}},"Size":{{json .Size}},`+
			`"Volumes":{{json .Config.Volumes}}}`, ref)
}

// Images lists the ids of the images with a label ("key=value"), without intermediate ones.
func (c *CLI) Images(ctx context.Context, label string) ([]string, error) {
	out, err := c.Output(ctx, "image", "ls", "-q", "--no-trunc", "--filter", "label="+label)
	return strings.Fields(string(out)), err
}

// Tag gives an image another name, which it takes from any other image.
func (c *CLI) Tag(ctx context.Context, image, ref string) error {
	_, err := c.Output(ctx, "image", "tag", image, ref)
	return err
}

// RemoveImage removes a name of an image, and the image with its last name. It succeeds when the
// image does not exist; while a container uses it, that is an error.
func (c *CLI) RemoveImage(ctx context.Context, ref string) error {
	_, err := c.Output(ctx, "image", "rm", ref)
	if failed, ok := errors.AsType[*Error](err); ok && failed.Kind == NoImage {
		return nil
	}
	return err
}

// PruneImages removes images without a name and with a label ("key=value"), and what only they
// used.
func (c *CLI) PruneImages(ctx context.Context, label string) error {
	_, err := c.Output(ctx, "image", "prune", "-f", "--filter", "label="+label)
	return err
}

// FileDigest returns the SHA-256 of a regular file of an image in hexadecimal; empty when there is
// none. It creates a container with a label that never starts. fault.Unsupported if the file is
// larger than most.
func (c *CLI) FileDigest(ctx context.Context, imageID, path, label string, most int64) (digest string, err error) {
	created, err := c.Output(ctx, "create", "--pull=never", "--network=none", "--label", label, "--entrypoint", path, imageID)
	if err != nil {
		return "", err
	}
	container := strings.TrimSpace(string(created))
	defer func() { err = errors.Join(err, c.Remove(context.WithoutCancel(ctx), container)) }()
	reader, writer := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		err := c.Pipe(ctx, nil, writer, nil, "cp", container+":"+path, "-")
		_ = writer.Close()
		copied <- err
	}()
	archive := tar.NewReader(reader)
	header, err := archive.Next()
	sum := sha256.New()
	if err == nil && header.Typeflag == tar.TypeReg {
		if header.Size > most {
			err = fmt.Errorf("it has %d bytes", header.Size)
		} else if _, err = io.Copy(sum, archive); err == nil {
			digest = hex.EncodeToString(sum.Sum(nil))
		}
	}
	_ = reader.CloseWithError(io.ErrClosedPipe)
	failed := <-copied
	if errors.Is(err, io.EOF) || digest == "" && err == nil { // there is no file, or something else
		return "", unlessMissing(failed)
	}
	return digest, err
}

// unlessMissing returns an error of docker cp unless it says that there is no such file.
func unlessMissing(err error) error {
	if failed, ok := errors.AsType[*Error](err); ok && (failed.Kind == NoFile || failed.Kind == NoContainer) {
		return nil
	}
	return err
}

// Package builder makes own images: it builds them with the docker CLI, checks them, puts them into
// the table, exports, imports, pulls and removes them. Only an operator's command does that. What a
// command that fails or is killed leaves behind is in a journal first, and the next command or
// start removes it. The package does not know how an image is probed, nor the database.
package builder

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"secbox/engine"
	"secbox/engine/dockercli"
	"secbox/fault"
	"secbox/images/bom"
	"secbox/images/catalog"
	"secbox/images/recipe"
	"secbox/internal/whole"
)

// Labels of images that are built here.
const (
	labelBuild = "secbox.image.build" // the id of the build; intermediate images have it, too
	labelName  = "secbox.image.name"
)

// Config configures a Builder. All fields are required, except Output.
type Config struct {
	CLI    *dockercli.CLI
	Store  catalog.Store
	Dir    string   // of journals; it is made
	Own    string   // the sandbox image, which has sandbox-init
	Others []string // images that the settings allow, whose names are taken
	Probe  Probe
	// CleanUp removes what a Probe of a killed process left.
	CleanUp func(ctx context.Context, build string) error
	NewID   func() string
	Now     func() time.Time
	Tell    func(format string, args ...any) // steps, for people
	Output  io.Writer                        // docker's output; nil: only the end of it in errors
}

// Probe runs the doctor's probes in an image, and the command, whose output it returns. build names
// what it uses meanwhile, and dir is an empty directory. fault.ImageUnfit names the probes that
// failed.
type Probe func(ctx context.Context, build, dir string, image engine.Image, command []string) (output string, err error)

// Builder makes own images. Several commands may run at once.
type Builder struct{ cfg Config }

// New makes the directory of journals.
func New(cfg Config) (*Builder, error) {
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return nil, fault.Wrap(fault.InvalidSettings, err, "cannot make %s: %s", cfg.Dir, fault.Reason(err))
	}
	return &Builder{cfg}, nil
}

// Source is the file of an image, with the directory that its paths are relative to.
type Source struct {
	Text    string
	Dir     string // absolute
	Network string // of the build: host, default or none
}

// Build builds an image of a file and allows it under a name, in the place of the image that has
// the name.
func (b *Builder) Build(ctx context.Context, name string, from Source) (catalog.Image, error) {
	r, err := recipe.Parse([]byte(from.Text))
	if err != nil {
		return catalog.Image{}, err
	}
	root, err := os.OpenRoot(from.Dir)
	if err != nil {
		return catalog.Image{}, fault.New(fault.InvalidRequest, "cannot open the directory %s, which the paths of the file are relative to: %s",
			from.Dir, fault.Reason(err))
	}
	defer root.Close()
	if err := r.Check(root); err != nil {
		return catalog.Image{}, err
	}
	return b.make(ctx, name, func(j *journal) (catalog.Image, error) {
		base, err := b.base(ctx, r)
		if err != nil {
			return catalog.Image{}, err
		}
		own, err := b.ownInit(ctx)
		if err != nil {
			return catalog.Image{}, err
		}
		plan := recipe.Build{Base: base.ref, Labels: map[string]string{labelBuild: j.Build, labelName: name}}
		if base.Labels[engine.LabelInit] != own {
			plan.Init, plan.InitLabel, plan.InitBuild = b.cfg.Own, engine.LabelInit, own
		}
		b.cfg.Tell("building %s on %s", name, base.ref)
		if err := b.dockerBuild(ctx, r, root, r.Dockerfile(plan), from.Network); err != nil {
			return catalog.Image{}, err
		}
		ids, err := b.cfg.CLI.Images(ctx, label(j.Build))
		if err == nil && len(ids) != 1 {
			err = fault.New(fault.Internal, "docker build made %d images", len(ids))
		}
		if err != nil {
			return catalog.Image{}, err
		}
		return catalog.Image{ImageID: ids[0], Source: catalog.Built, Base: base.ref, BaseID: base.ID, Recipe: from.Text, Dir: from.Dir}, nil
	})
}

func label(build string) string { return labelBuild + "=" + build }

// make runs the steps that all new images go through. find returns the image, which it has recorded
// in the journal. If a step fails, nothing is left.
func (b *Builder) make(ctx context.Context, name string, find func(*journal) (catalog.Image, error)) (made catalog.Image, err error) {
	if err := catalog.CheckName(name); err != nil {
		return made, err
	}
	for _, other := range b.cfg.Others {
		if other == name {
			return made, fault.New(fault.ImageConflict, "sandbox.images has an image %s; choose another name", name)
		}
	}
	b.Sweep(ctx)
	j, err := b.begin(name)
	if err != nil {
		return made, err
	}
	defer func() {
		inUse, failed := b.end(context.WithoutCancel(ctx), j)
		if err = errors.Join(err, failed); err == nil && inUse {
			b.cfg.Tell("containers still use the former version; it is removed when they are gone")
		}
	}()
	before, err := b.cfg.Store.Get(ctx, name)
	if err != nil && !fault.Is(err, fault.UnknownImage) {
		return made, err
	}
	image, err := find(j)
	if err != nil {
		return made, err
	}
	image.Name, image.Ref = name, catalog.Ref(name, image.ImageID)
	if err := j.add(image.Ref); err != nil {
		return made, err
	}
	if err := b.cfg.CLI.Tag(ctx, image.ImageID, image.Ref); err != nil {
		return made, err
	}
	if err := b.check(ctx, j, &image); err != nil {
		return made, err
	}
	if before.Ref != "" && before.Ref != image.Ref {
		if err := j.add(before.Ref); err != nil { // end removes it when it is not in the table any more
			return made, err
		}
	}
	if before.ImageID == image.ImageID && image.Source != catalog.Built { // the same image, on another node
		return before, nil
	}
	return b.cfg.Store.Put(ctx, image, before.ImageID)
}

type base struct {
	dockercli.Image
	ref string
}

// base finds the image to build on. Only a reference by digest may come from a registry.
func (b *Builder) base(ctx context.Context, r recipe.Recipe) (base, error) {
	ref := cmp.Or(r.Base, b.cfg.Own)
	if own, err := b.cfg.Store.Get(ctx, ref); err == nil {
		ref = own.Ref
	} else if !fault.Is(err, fault.UnknownImage) {
		return base{}, err
	}
	image, err := b.cfg.CLI.InspectImage(ctx, ref)
	if fault.Is(err, fault.ImageMissing) && strings.Contains(ref, "@sha256:") {
		return base{ref: ref}, nil // docker build pulls it
	}
	if fault.Is(err, fault.ImageMissing) {
		return base{}, fault.Wrap(fault.ImageMissing, err, "the engine does not hold the base %s; `docker pull` it, or name it by its digest: "+
			"NAME@sha256:…", ref)
	}
	return base{image, ref}, err
}

// ownInit returns the digest of this installation's sandbox-init.
func (b *Builder) ownInit(ctx context.Context) (string, error) {
	own, err := b.cfg.CLI.InspectImage(ctx, b.cfg.Own)
	if err == nil && own.Labels[engine.LabelInit] == "" {
		err = fault.New(fault.ImageMissing, "the image %s has no sandbox-init; rebuild it with `make setup`", b.cfg.Own)
	}
	return own.Labels[engine.LabelInit], err
}

func (b *Builder) dockerBuild(ctx context.Context, r recipe.Recipe, root *os.Root, dockerfile, network string) error {
	out := &output{also: b.cfg.Output}
	args := append([]string{"build", "--network", network, "--force-rm", "--no-cache"}, b.cfg.CLI.Proxies()...)
	failed, err := b.feed(ctx, func(w io.Writer) error { return r.WriteContext(w, root, dockerfile) }, out, append(args, "-")...)
	if failed != nil {
		return failed // the files cannot be read, and docker says only that the context ended
	}
	if err == nil || ctx.Err() != nil || fault.Is(err, fault.EngineUnavailable) {
		return err
	}
	return out.failure(err)
}

// feed runs docker with what write writes as its standard input. failed is the error of write, if
// docker has not caused it, and err the error of docker.
func (b *Builder) feed(ctx context.Context, write func(io.Writer) error, out io.Writer, args ...string) (failed, err error) {
	reader, writer := io.Pipe()
	sent := make(chan error, 1)
	go func() {
		err := write(writer)
		_ = writer.CloseWithError(cmp.Or(err, io.EOF))
		sent <- err
	}()
	err = b.cfg.CLI.Pipe(ctx, reader, out, out, args...)
	_ = reader.CloseWithError(io.ErrClosedPipe)
	if failed = <-sent; errors.Is(failed, io.ErrClosedPipe) {
		failed = nil
	}
	return failed, err
}

// output keeps the end of what a build prints.
type output struct {
	mu   sync.Mutex
	last []byte
	also io.Writer
}

const outputKept = 16 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = append(o.last, p...)
	if over := len(o.last) - outputKept; over > 0 {
		o.last = append(o.last[:0], o.last[over:]...)
	}
	if o.also != nil {
		_, _ = o.also.Write(p)
	}
	return len(p), nil
}

var (
	colors  = regexp.MustCompile(`\x1b\[[0-9;]*m`)
	dockers = regexp.MustCompile(`^(The command '|Removing intermediate|--->|Step \d+/\d+ |DEPRECATED: |Install the buildx|https://docs.docker|Sending build)`)
	telling = regexp.MustCompile(`^(E: |ERROR: |npm (ERR!|error) |sh: |bash: |error: )`)
)

// failure is the error of a failed build: the step, and what the programs said.
func (o *output) failure(cause error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	step := ""
	var said, rest []string
	for line := range strings.Lines(colors.ReplaceAllString(string(o.last), "")) {
		line = strings.TrimSpace(strings.Map(printable, line))
		if _, after, ok := strings.Cut(line, recipe.StepFailed); ok {
			step = after
			continue
		}
		switch {
		case line == "":
		case telling.MatchString(line):
			said = append(said, line)
		case !dockers.MatchString(line):
			rest = append(rest, line)
		}
	}
	if len(said) == 0 {
		said = rest
	}
	if len(said) == 0 {
		said = []string{"it printed nothing"}
	}
	text := strings.TrimSuffix(strings.Join(said[max(0, len(said)-4):], "; "), ".")
	text = text[:min(len(text), 1500)]
	if fault.Is(cause, fault.DiskFull) || strings.Contains(strings.ToLower(string(o.last)), "no space left on device") {
		return fault.Wrap(fault.DiskFull, cause, "the engine's disk is full; free some space on its host, and build the image again")
	}
	if step == "" {
		return fault.Wrap(fault.BuildFailed, cause, "docker build failed: %s", strings.ToValidUTF8(text, ""))
	}
	return fault.Wrap(fault.BuildFailed, cause, "the step %q of the file failed: %s. Correct it in the file; --verbose shows all output", step,
		strings.ToValidUTF8(text, ""))
}

func printable(r rune) rune {
	if r < ' ' && r != '\t' || r == 0x7f {
		return -1
	}
	return r
}

// check refuses an image that is not fit for execs, and lists what is installed in it.
func (b *Builder) check(ctx context.Context, j *journal, image *catalog.Image) error {
	b.cfg.Tell("checking %s", image.Ref)
	details, err := b.cfg.CLI.DescribeImage(ctx, image.ImageID)
	if err != nil {
		return err
	}
	image.SizeBytes = details.Size
	if user, _, _ := strings.Cut(details.User, ":"); user == "" || user == "0" || user == "root" {
		return fault.New(fault.ImageUnfit, "the image runs as root (its user is %q); add USER 1000:1000 at the end of its Dockerfile", details.User)
	}
	if len(details.Volumes) > 0 { // the engine would make a volume for each container, with no limit
		paths := slices.Sorted(maps.Keys(details.Volumes))
		return fault.New(fault.ImageUnfit, "the image has the volume %q, which jobs could fill without a limit; use a base whose Dockerfile has no "+
			"VOLUME, or make one of it: `docker export` a container of it, and `docker import` that", whole.Shorten(paths[0]))
	}
	dir := b.probeDir(j.Build)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fault.Wrap(fault.DiskFull, err, "cannot make %s: %s", dir, fault.Reason(err))
	}
	compared := make(chan error, 1)
	go func() { compared <- b.checkInit(ctx, j, image.ImageID) }()
	printed, err := b.cfg.Probe(ctx, j.Build, dir, engine.Image{Ref: image.Ref, ID: image.ImageID}, bom.Command())
	if different := <-compared; different != nil { // what another sandbox-init reports proves nothing
		return different
	}
	if err != nil {
		return err
	}
	packages, err := bom.Parse(printed)
	if err != nil {
		return err
	}
	image.Packages = int64(len(packages))
	image.BOM, err = bom.Document(image.Name, image.ImageID, b.cfg.Now(), packages)
	return err
}

// maxInit is far more than sandbox-init has.
const maxInit = 64 << 20

// checkInit compares the sandbox-init in an image with this installation's, by which every exec is
// started: a label alone proves nothing.
func (b *Builder) checkInit(ctx context.Context, j *journal, imageID string) error {
	want, err := b.ownInit(ctx)
	if err != nil {
		return err
	}
	got, err := b.cfg.CLI.FileDigest(ctx, imageID, engine.InitPath, label(j.Build), maxInit)
	const remedy = "an image FROM %s has it, unless a step removed it, and `core-api image build` adds it to any other base"
	switch {
	case err != nil:
		return err
	case got == "":
		return fault.New(fault.ImageUnfit, "the image has no sandbox-init (%s); "+remedy, engine.InitPath, b.cfg.Own)
	case got != want:
		return fault.New(fault.ImageUnfit, "the sandbox-init in the image is not this installation's; "+remedy, b.cfg.Own)
	}
	return nil
}

// Rebuild builds an image again, of the file in the table.
func (b *Builder) Rebuild(ctx context.Context, name, dir, network string) (catalog.Image, error) {
	image, err := b.cfg.Store.Get(ctx, name)
	if err != nil {
		return catalog.Image{}, err
	}
	if image.Source != catalog.Built {
		return catalog.Image{}, fault.New(fault.InvalidRequest, "the image %s was not built here but came by image %s; do that again", name,
			image.Source)
	}
	return b.Build(ctx, name, Source{Text: image.Recipe, Dir: cmp.Or(dir, image.Dir), Network: network})
}

// Remove disallows an image, and removes it from this node's engine. inUse says that containers use
// it still: then a later Sweep removes it.
func (b *Builder) Remove(ctx context.Context, name string) (inUse bool, err error) {
	b.Sweep(ctx)
	j, err := b.begin(name)
	if err != nil {
		return false, err
	}
	defer func() {
		var failed error
		inUse, failed = b.end(context.WithoutCancel(ctx), j)
		err = errors.Join(err, failed)
	}()
	image, err := b.cfg.Store.Get(ctx, name)
	if err == nil {
		err = j.add(image.Ref)
	}
	if err == nil {
		_, err = b.cfg.Store.Remove(ctx, name)
	}
	return false, err
}

// Export writes an image of the table to a new file, in the format of docker save.
func (b *Builder) Export(ctx context.Context, name, file string) (err error) {
	image, err := b.cfg.Store.Get(ctx, name)
	if err != nil {
		return err
	}
	if _, err := b.cfg.CLI.InspectImage(ctx, image.Ref); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fault.New(fault.InvalidRequest, "cannot make the file %s: %s", file, fault.Reason(err))
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file)
		}
	}()
	err = b.cfg.CLI.Pipe(ctx, nil, f, nil, "image", "save", image.Ref)
	return errors.Join(err, f.Sync(), f.Close())
}

// Import allows an image of a file that Export wrote, under the name that is in the file, or adds
// it to this node's engine if the table has it.
func (b *Builder) Import(ctx context.Context, file string) (catalog.Image, error) {
	f, err := os.Open(file)
	if err != nil {
		return catalog.Image{}, fault.New(fault.InvalidRequest, "cannot open %s: %s", file, fault.Reason(err))
	}
	defer f.Close()
	tag, err := copyImage(io.Discard, f, file, "")
	if err != nil {
		return catalog.Image{}, err
	}
	name, _, _ := strings.Cut(strings.TrimPrefix(tag, catalog.Repository("")), ":")
	return b.make(ctx, name, func(j *journal) (catalog.Image, error) {
		former, err := b.cfg.CLI.InspectImage(ctx, tag)
		if err != nil && !fault.Is(err, fault.ImageMissing) {
			return catalog.Image{}, err
		}
		if former.ID == "" {
			if err := j.add(tag); err != nil {
				return catalog.Image{}, err
			}
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return catalog.Image{}, fault.New(fault.InvalidRequest, "cannot read %s: %s", file, fault.Reason(err))
		}
		b.cfg.Tell("loading %s", tag)
		again := func(w io.Writer) error { // the file may be another one now
			_, err := copyImage(w, f, file, tag)
			return err
		}
		failed, err := b.feed(ctx, again, nil, "image", "load", "-q")
		if failed != nil {
			return catalog.Image{}, failed
		}
		if err != nil {
			return catalog.Image{}, explain(err, "docker load failed")
		}
		loaded, err := b.cfg.CLI.InspectImage(ctx, tag)
		if err == nil && former.ID != "" && former.ID != loaded.ID {
			err = errors.Join(fault.New(fault.ImageConflict, "%s has another image of the name %s than this engine; `docker image rm` one of them",
				file, tag), b.cfg.CLI.Tag(ctx, former.ID, tag))
		}
		return catalog.Image{ImageID: loaded.ID, Source: catalog.Imported}, err
	})
}

var byDigest = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,255}@sha256:[0-9a-f]{64}$`)

// Pull pulls an image of a registry by its digest, with the docker CLI's own credentials, and
// allows it under a name.
func (b *Builder) Pull(ctx context.Context, ref, name string) (catalog.Image, error) {
	if !byDigest.MatchString(ref) {
		return catalog.Image{}, fault.BadField("reference", "%q does not name an image by its digest: give REGISTRY/NAME@sha256:…", ref)
	}
	return b.make(ctx, name, func(j *journal) (catalog.Image, error) {
		if _, err := b.cfg.CLI.InspectImage(ctx, ref); fault.Is(err, fault.ImageMissing) {
			if err := j.add(ref); err != nil {
				return catalog.Image{}, err
			}
		}
		b.cfg.Tell("pulling %s", ref)
		if err := b.cfg.CLI.Pipe(ctx, nil, b.cfg.Output, nil, "image", "pull", ref); err != nil {
			return catalog.Image{}, explain(err, "docker pull failed; `docker login` signs in to a private registry")
		}
		image, err := b.cfg.CLI.InspectImage(ctx, ref)
		return catalog.Image{ImageID: image.ID, Source: catalog.Pulled, Base: ref}, err
	})
}

// explain adds docker's own words to an error that is otherwise for the log.
func explain(err error, what string) error {
	failed, ok := errors.AsType[*dockercli.Error](err)
	if !ok || !fault.Is(err, fault.Internal) && !fault.Is(err, fault.ImageMissing) {
		return err
	}
	lines := bytes.Split(bytes.TrimSpace([]byte(failed.Stderr)), []byte("\n"))
	return fault.Wrap(fault.BuildFailed, err, "%s: %s", what, strings.Map(printable, strings.ToValidUTF8(fmt.Sprintf("%.500s", lines[len(lines)-1]), "")))
}

// probeDir is the directory for the probes of a build.
func (b *Builder) probeDir(build string) string { return filepath.Join(b.cfg.Dir, build) }

func (b *Builder) path(name string) string { return filepath.Join(b.cfg.Dir, name+".json") }

package server

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"secbox/engine"
	"secbox/fault"
	"secbox/health"
	"secbox/images/builder"
	"secbox/images/catalog"
	"secbox/policy"
)

// ImageBuilder returns the builder of own images for commands, and opens the workspace, in which
// the probes have a project. The caller closes d.Workspace. output, where docker's output goes, may
// be nil.
func (d *Deps) ImageBuilder(ctx context.Context, store catalog.Store, tell func(string, ...any), output io.Writer,
) (*builder.Builder, error) {
	if err := d.Own.Open(ctx, store); err != nil {
		return nil, err
	}
	if err := d.OpenWorkspace(); err != nil {
		return nil, err
	}
	return d.imageBuilder(store, tell, output)
}

func (d *Deps) imageBuilder(store catalog.Store, tell func(string, ...any), output io.Writer) (*builder.Builder, error) {
	if d.cli == nil {
		return nil, errNoBuilder
	}
	return builder.New(builder.Config{
		CLI: d.cli, Store: store, Dir: filepath.Join(d.settings.StateDir, "images"), Own: policy.DefaultImage,
		Others: d.settings.Sandbox.Images, Probe: d.probeImage, CleanUp: d.cleanUpProbes, NewID: NewID, Now: time.Now, Tell: tell,
		Output: output,
	})
}

// errNoBuilder is the error of own images where a cluster is the engine.
var errNoBuilder = fault.New(fault.Unsupported, "own images are built by Docker, and the engine is a cluster: build the image elsewhere, push it "+
	"into a registry that the cluster reaches, and name it in sandbox.images")

// probeName names what the probes of a build use: the label of its containers and its project.
func probeName(build string) string { return "secbox-image-" + build }

// imageDoctor returns the doctor of a build, with no engine yet.
func (d *Deps) imageDoctor(build string, cold engine.Engine) *health.Doctor {
	log := slog.New(slog.DiscardHandler) // the error has what is wrong
	return health.NewDoctor(health.DoctorConfig{
		Checker: d.NewChecker(nil, "", nil, nil, nil, probeName(build), log), Engine: cold, Workspace: d.Workspace, Now: time.Now,
		Project: probeName(build),
	})
}

// probeImage runs the doctor's probes in an image. dir is for files of the engine.
func (d *Deps) probeImage(ctx context.Context, build, dir string, image engine.Image, command []string) (output string, err error) {
	cold, err := d.NewEngine(engine.Identity{Installation: "image", Node: probeName(build)}, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, cold.Close()) }()
	return d.imageDoctor(build, cold).CheckImage(ctx, image, command)
}

// cleanUpProbes removes what the probes of a build left whose process was killed.
func (d *Deps) cleanUpProbes(ctx context.Context, build string) error {
	names, err := d.cli.Containers(ctx, engine.LabelNode+"="+probeName(build))
	for _, name := range names {
		err = errors.Join(err, d.cli.Remove(ctx, name))
	}
	return errors.Join(err, d.imageDoctor(build, nil).CleanUp())
}

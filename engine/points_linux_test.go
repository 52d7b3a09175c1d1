package engine_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"

	"secbox/engine"
	"secbox/engine/attach"
	"secbox/engine/enginetest"
)

// newAnyPool is a pool whose containers wait for any project.
func newAnyPool(t *testing.T, cfg engine.Config) *engine.Pool {
	base, err := attach.Open(filepath.Join(t.TempDir(), "private"), uuid.NewString())
	if err != nil {
		t.Fatal(err)
	}
	image, err := engine.NewImages(cfg.CLI, enginetest.Image, "secbox-test-init", time.Now).Resolve(t.Context(), enginetest.Image)
	if err != nil {
		t.Fatal(err)
	}
	return newPool(t, cfg, func(p *engine.PoolConfig) {
		p.Base = base
		p.Default = func(context.Context) (engine.Spec, error) {
			spec := enginetest.SpecOf(image)
			return spec, nil
		}
		p.Ready = 1
	})
}

func TestAnyPool(t *testing.T) {
	t.Parallel()
	f := enginetest.New(t, func(t *testing.T, cfg engine.Config) engine.Engine { return newAnyPool(t, cfg) })
	pool := f.Engine.(*engine.Pool)
	eventually(t, "a container for any project", func() bool { s := pool.Stats(); return s.Waiting == 1 && len(s.Keys) == 1 && s.Keys[0].ProjectID == "" })
	slot, err := pool.Acquire(t.Context(), f.Spec())
	if err != nil || !slot.Warm() {
		t.Fatal(err, slot)
	}
	slot.Discard()
}

func TestWarmAnyPool(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(t *testing.T, cfg engine.Config) engine.Engine { return primed{newAnyPool(t, cfg), t} })
}

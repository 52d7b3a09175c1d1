package engine_test

import (
	"testing"

	"secbox/engine"
	"secbox/engine/enginetest"
)

func TestColdEngine(t *testing.T) {
	t.Parallel()
	enginetest.Run(t, func(_ *testing.T, cfg engine.Config) engine.Engine { return engine.NewCold(cfg) })
}

package engine_test

import (
	"slices"
	"testing"

	"secbox/engine"
)

func TestMounts(t *testing.T) {
	t.Parallel()
	const volume = "secbox_workspace"
	for _, c := range []struct {
		volume string
		mount  engine.Mount
		want   string
	}{
		{"", engine.Mount{Source: "/srv/ws/work", Target: "/workspace/work"}, "type=bind,source=/srv/ws/work,target=/workspace/work"},
		{
			"",
			engine.Mount{Source: `D:\ws\inputs`, Target: "/workspace/inputs", ReadOnly: true},
			`type=bind,source=D:\ws\inputs,target=/workspace/inputs,readonly`,
		},
		{
			volume,
			engine.Mount{Source: "projects/demo/work", Target: "/workspace/work"},
			"type=volume,source=secbox_workspace,volume-subpath=projects/demo/work,target=/workspace/work,volume-nocopy",
		},
		{
			volume,
			engine.Mount{Source: "projects/demo/inputs", Target: "/workspace/inputs", ReadOnly: true},
			"type=volume,source=secbox_workspace,volume-subpath=projects/demo/inputs,target=/workspace/inputs,volume-nocopy,readonly",
		},
	} {
		args := engine.RunArgs(engine.Options{WorkspaceVolume: c.volume}, c.mount)
		if i := slices.Index(args, "--mount"); i < 0 || args[i+1] != c.want || slices.Contains(args[i+1:], "--mount") {
			t.Errorf("%q, want --mount %s", args, c.want)
		}
	}
}

// TestImageRunsNothing: no program of the image runs beside the job.
func TestImageRunsNothing(t *testing.T) {
	t.Parallel()
	if args := engine.RunArgs(engine.Options{}); !slices.Contains(args, "--no-healthcheck") {
		t.Errorf("%q", args)
	}
}

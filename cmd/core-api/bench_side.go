package main

import (
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"secbox/bench"
	"secbox/diskwatch"
	"secbox/engine"
	"secbox/policy"
	"secbox/sandbox/docker"
	"secbox/sandbox/files"
	"secbox/server"
)

// benchSideCommand is what bench starts this program as for its section on sandboxes.
func (c *command) benchSideCommand() *cobra.Command {
	return &cobra.Command{
		Use: "side NAME", Short: "Be one side of a comparison; bench starts it", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			var own *bench.DockerTasks
			if args[0] == bench.DockerSide {
				if own, err = c.dockerTasks(); err != nil {
					return err
				}
			}
			return bench.ServeSide(args[0], os.Stdin, os.Stdout, own)
		},
	}
}

// dockerTasks are those of a docker sandbox as serve makes it, with nothing around it.
func (c *command) dockerTasks() (*bench.DockerTasks, error) {
	s, err := c.settings()
	if err != nil {
		return nil, err
	}
	deps, err := server.NewDeps(s, c.environ)
	if err != nil {
		return nil, err
	}
	if err := deps.OpenWorkspace(); err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	dir, err := os.MkdirTemp("", "secbox-bench-")
	if err != nil {
		return nil, err
	}
	cold, err := deps.NewEngine(engine.Identity{Installation: server.NewID(), Node: server.NewID()}, dir, log)
	if err != nil {
		return nil, err
	}
	v := policy.Defaults()
	made := docker.Container{
		Image: v.Image, Limits: engine.Limits{MemoryMB: v.MemoryMB, CPUCores: v.CPUCores, PIDs: v.PIDs, TmpMB: v.TmpMB}, User: deps.User, Runtime: v.Runtime,
	}
	return &bench.DockerTasks{
		Sandbox: docker.New(docker.Config{
			Directories: files.Workspaces{Workspace: deps.Workspace}, Workspace: deps.Workspace, Engine: cold, Images: deps.Images, Container: func() docker.Container { return made },
			Disk: diskwatch.New(deps.Workspace, diskwatch.Limits{}, log), Log: log, Now: time.Now,
		}),
		Ended: func() error { return errors.Join(cold.Close(), os.RemoveAll(dir)) },
	}, nil
}

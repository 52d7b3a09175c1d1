//go:build !linux

package bench

import (
	"context"
	"errors"
	"time"

	"secbox/dockercli"
)

type resident struct{}

func residentOf(int) (resident, error) { return resident{}, errors.ErrUnsupported }

func (resident) pid(context.Context, *dockercli.CLI) (int, error) { return 0, errors.ErrUnsupported }

func (resident) events(context.Context, *dockercli.CLI, time.Time) (int64, error) {
	return 0, errors.ErrUnsupported
}

type equal struct{ name string }

func startEqual(context.Context, *dockercli.CLI, []string, resident) (*equal, error) {
	return nil, errors.ErrUnsupported
}

func (*equal) end() error { return nil }

type generation struct{}

func offspring(...int) (generation, error) { return generation{}, errors.ErrUnsupported }

func (generation) grown(generation) int64 { return 0 }

//go:build !linux

package bench

import (
	"errors"
	"os/exec"
	"time"
)

func tie(*exec.Cmd) {}

type memory struct{ now, peak int64 }

func memoryOf(int) (memory, error) { return memory{}, errors.ErrUnsupported }

func resetPeak(int) error { return errors.ErrUnsupported }

func cpuOf(int) (own, children time.Duration, err error) { return 0, 0, errors.ErrUnsupported }

func dockerRuns(int) (int, error) { return 0, errors.ErrUnsupported }

func canWeigh() error { return errors.ErrUnsupported }

func weigh(int, []string) (*Idling, error) { return nil, errors.ErrUnsupported }

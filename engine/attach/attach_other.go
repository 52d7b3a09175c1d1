//go:build !linux

package attach

import (
	"errors"
	"os"
)

// Open returns errors.ErrUnsupported: only Linux has the calls.
func Open(parent, name string) (*Base, error) { return nil, errors.ErrUnsupported }

// Close has nothing to do.
func (b *Base) Close() error { return nil }

func mount(string, *os.File, bool) error { return errors.ErrUnsupported }

func unmount(string) error { return errors.ErrUnsupported }

func rmdir(dir string) error { return os.Remove(dir) }

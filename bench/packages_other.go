//go:build !linux

package bench

import "errors"

func settle(string) error { return nil }

func countOpens(string) (func() (int64, error), error) { return nil, errors.ErrUnsupported }

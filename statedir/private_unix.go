//go:build unix

package statedir

import "os"

// makePrivate lets only this user into the directory.
func makePrivate(path string) error { return os.Chmod(path, 0o700) }

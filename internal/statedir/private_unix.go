//go:build unix

package statedir

import "os"

// makePrivate lets only this user into the directory.
func makePrivate(dir string) error { return os.Chmod(dir, 0o700) }

// makeFilePrivate does nothing: os.CreateTemp makes private files.
func makeFilePrivate(string) error { return nil }

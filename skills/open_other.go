//go:build !unix

package skills

// openSafely is empty: Windows has no FIFOs in directories, and callers compare the file with the one that Lstat saw.
const openSafely = 0

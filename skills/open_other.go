//go:build !unix

package skills

// openSafely is empty: Windows has no FIFOs in directories, and the file is compared with what Lstat saw.
const openSafely = 0

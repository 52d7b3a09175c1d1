// Package pathadapter maps a directory under the workspace root to the two forms in which it is
// needed: the path that this process reads and writes, and the path that docker is given for a
// mount. They differ on Windows, under WSL and when core-api itself runs in a container; there, the
// workspace root can also be a volume, and docker is given paths in it.
//
// Read adapter.go (the mapping), then detect.go (which system this is).
//
// The package must not know files or programs: it touches none and starts none (wslpath is
// injected), so that every system's rules are tested on any system.
package pathadapter

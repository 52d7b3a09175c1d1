// Package pack stores a directory tree in one compressed file, verified, and makes the tree of it again: names, contents, holes, modes,
// owners, times, hard and symbolic links. It knows trees, and nothing of projects or when they are packed.
package pack

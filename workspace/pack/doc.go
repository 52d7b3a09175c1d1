// Package pack reads the packs of idle workspaces that core-api wrote before it stopped packing
// them. A pack is one compressed file that holds a directory tree: names, contents, holes, modes,
// owners, times, hard and symbolic links. It knows trees, and nothing of projects.
package pack

// Package files implements the file operations of a sandbox on a directory of this machine: for
// none and docker on core-api's side, for the runner on the user's. The tree may be hostile: other
// processes change it during a call, links lead out of it, opening a FIFO would block, trees are
// deeper than any path. The package must not know users, commands or containers.
//
// All access goes through an *os.Root: a link is followed as long as it stays inside, and nothing
// outside is reached even if the link changes meanwhile. A link with an absolute target is refused,
// because the path means something else inside a sandbox. Only regular files are opened for reading
// or writing, and no open blocks.
//
// Errors are as package sandbox promises, with the path as it was given. If a component on the way
// to a path is not a directory, the error is fs.ErrNotExist.
package files

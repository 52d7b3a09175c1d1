// Package files does the file operations of a sandbox on a directory of this machine: for none and docker on core-api's side, for the runner
// on the user's. What lies there may be hostile: another process changes it during the call, links lead out of it, FIFOs wait to be opened,
// trees are deeper than any path.
//
// Everything goes through an *os.Root: a link is followed as long as it stays inside, and nothing outside is reached even if it is put there
// meanwhile. A link whose target is an absolute path is refused, wherever that leads: what a path means outside of here is not known here. Nothing but
// a regular file is opened for reading or writing, and no open waits.
//
// Errors are those that package sandbox promises, with the path as it was given. Something that is no directory on the way to a path is
// fs.ErrNotExist: no file can lie there.
//
// The package knows no users, no commands and no containers.
package files

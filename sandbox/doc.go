// Package sandbox defines how tools reach a user's files and run commands beside them, wherever the
// files are: on this machine (none), in a container of ours (docker), or on the user's own machine
// (remote). A Router picks a backend per user and is itself a Sandbox. The package must not know
// HTTP, SQL or audit rows.
//
// # Paths
//
// Every path is absolute and means the same everywhere: Root ("/workspace") is the directory that
// the user works in. That is work/ of the workspace <agentId>~<userId> on this side, and the
// directory given to `secbox runner --workspace` on the user's. Clean says which paths are valid.
// Links below Root are followed as long as they stay there; a link that leads out is
// fs.ErrPermission, even if it appears while a call is under way. A link with an absolute target
// counts as leading out, because such a path differs between host and container. Beside Root there
// may be read-only roots, which none and docker support: changing them is fs.ErrPermission. remote
// has none: fault.Unsupported.
//
// Paths do not confine a command: none and remote run it as the same user as themselves.
// WorkspaceVariable tells a command the path of Root, and ExecSpec.Dir is where it starts.
//
// # Errors
//
// An error about a file is an *fs.PathError that carries the path as it was given and wraps
// fs.ErrNotExist, fs.ErrPermission, fs.ErrExist or fs.ErrInvalid where one of them fits, on every
// machine: errors.Is works. Every other error carries a fault code: FileTooLarge, Unsupported,
// DiskFull, SandboxBusy, EngineUnavailable, RunnerOffline, RunnerRefused, OutcomeUnknown.
// OutcomeUnknown means that the operation may have happened, in part or whole; every other error
// means that it did not, or for a command, that no process of it is left. When a context ends, its
// error is in the chain.
//
// # Where to read on
//
// Read sandbox.go (the interface), backend.go (the traits of the backends) and router.go. Then the
// packages:
//
//   - none: commands on this machine as core-api's own user; the shortest backend
//   - docker: a long-lived container for each user
//   - remote: core-api's side of runners' links: users' own machines
//   - remote/wire: the protocol of a link
//   - remote/machine: the runner's side of a link
//   - remote/relay: machines that are connected to other nodes
//   - remote/partition: only tests: a link whose network is cut
//   - files: file operations on a hostile directory of this machine
//   - places: the files of projects on this machine, and of sessions in their containers
//   - places/placestest: only tests: stands in for the containers
//   - inside: does file operations in a session's container, as a program
//   - process: runs commands and leaves no process alive
//   - search: finds files by name and content, where the files are
//   - record: puts every command on record; a decorator around the router
//   - sandboxtest: only tests: the suite that every sandbox passes
//
// Only record may know audit rows, and only remote WebSockets.
package sandbox

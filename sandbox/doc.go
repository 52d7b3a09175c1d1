// Package sandbox is how tools touch a user's files and run commands beside them, wherever those are: on this machine (none), in a
// container of ours (docker), or on the user's own machine (remote). A Router picks one per user and is itself a Sandbox.
//
// # Paths
//
// Every path is absolute and means the same everywhere: Root ("/workspace") is the directory that the user works in — work/ of the
// workspace <agentId>~<userId> on this side, the directory that `secbox runner --workspace` names on the user's. What lies where is an
// implementation's own affair; see Clean for what is a path. Links below Root are followed as long as they stay there; one that leads
// out is fs.ErrPermission, also when it is put there while a call is under way. A link whose target is an absolute path counts as leading
// out: what that is depends on who looks. Beside Root there may be read-only roots, which none and docker support: what would change them
// is fs.ErrPermission. remote has none: fault.Unsupported.
//
// A command is not confined by paths: none and remote run it as the very user whose program they are. It finds the directory that is Root
// in WorkspaceVariable, and starts in ExecSpec.Dir.
//
// # Errors
//
// What concerns a file is an *fs.PathError that carries the path as it was given and wraps fs.ErrNotExist, fs.ErrPermission, fs.ErrExist or
// fs.ErrInvalid where one of them fits, whatever machine it comes from: errors.Is works. Everything else carries a fault code: FileTooLarge,
// Unsupported, DiskFull, SandboxBusy, EngineUnavailable, RunnerOffline, RunnerRefused, OutcomeUnknown. OutcomeUnknown means that what was
// asked for may have happened, in part or whole, and that nobody can tell; every other error says that it did not, or for a command, that
// no process of it is left. The end of a context is its own error, in the chain.
package sandbox

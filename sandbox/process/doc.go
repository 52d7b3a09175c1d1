// Package process runs commands so that none leaves anything behind: when Run returns, the command and all that it started is dead, also
// what made itself a session, a daemon or an orphan. It is for the sandbox none and for the runner on a user's machine, which run commands
// as the very user whose program they are.
//
// How much that is worth differs by system:
//
//   - Linux: a command runs in a worker (engine/worker), a process that is this program once more (Main) and becomes the parent of
//     whatever loses its own. A worker serves one command after another, so that a command costs little more than its own start. A command
//     that kills its worker gets away with what it has started, and the error says that its outcome is unknown: it runs as the same user,
//     who may do that.
//   - Windows: a job object holds all that a command starts, and no process gets out of one.
//   - macOS: the command's process group, and what has it as an ancestor when it is killed. What has both left the group and lost its
//     parents by then lives on; its output is not waited for.
//
// What has become another user, root by way of sudo above all, nobody but root may kill. A command that has ended by itself and leaves such a
// process is over, and its result says so; one that is to be ended and cannot be is given up after a while, with an outcome that is unknown.
// So is one that hangs in the system.
//
// When this program dies, workers and jobs die with it, and with them their commands; on macOS commands live on.
//
// The package knows no sandbox, no users and no paths but those of this machine.
package process

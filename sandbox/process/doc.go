// Package process runs commands so that none leaves anything behind: when Run returns, the command
// and every process that it started is dead, including sessions, daemons and orphans. It serves the
// sandbox none and the runner on a user's machine, which run commands as the user of their own
// process. The package must not know sandboxes, users, or paths of other machines.
//
// The guarantee differs by system:
//
//   - Linux: a command runs in a worker (engine/worker), a process of this same program (Main) that
//     becomes the parent of all orphans. A worker runs one command after another, so that a command
//     costs little more than its own start. A command that kills its worker escapes, which nothing
//     prevents because both are the same user; the error then says that the outcome is unknown.
//   - Windows: a job object holds all processes of a command, and none can leave it.
//   - macOS: the command's process group is killed, and all processes that descend from it at that
//     moment. A process that has left the group and lost its parents lives on; Run does not wait
//     for its output.
//
// Only root can kill a process that has become another user, such as root through sudo. A command
// that ends by itself and leaves such a process is over, and its result says so; a command that
// cannot be killed is given up after a while, and its outcome is unknown. So is one that hangs in
// the kernel.
//
// When this program dies, workers and jobs die with it, and with them their commands; on macOS
// commands live on.
package process

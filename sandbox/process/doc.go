// Package process runs one command after another, or beside each other, so that none leaves anything behind: when Run returns, the command and all that it
// started is dead, also what made itself a session, a daemon or an orphan. For the sandbox none and for the runner on a user's machine,
// which run commands as the very user whose program they are.
//
// How much that is worth differs by system. On Windows a job object holds all that a command starts, and no process gets out of one. On
// macOS and other Unix systems it is the command's process group and what has it as an ancestor when it is killed: what has both left its
// group and lost its parents before lives on. See tree_*.go.
//
// The package knows no sandbox, no users and no paths but those of this machine.
package process

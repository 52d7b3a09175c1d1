// Package worker runs commands, one after the other, and leaves no process of a command alive.
//
// A process that calls Serve is a worker: it reads jobs from its standard input and answers in
// frames (engine/initproto, "A worker"). It makes itself the reaper of all its descendants
// (PR_SET_CHILD_SUBREAPER): every process that a command starts, even in another session or after a
// double fork, becomes a child of the worker when its parent dies. So at a command's end, at its
// deadline, when it is killed, and when the worker's standard input closes, the worker kills its
// children until it has none, and only then reports. It kills only its own children, whose process
// ids cannot be reused before it has reaped them.
//
// A worker may not kill processes that have become another user, by sudo or the like: it reports
// that and takes no other job.
//
// When a worker is killed, the next reaper above it gets its command's processes: in a container,
// sandbox-init, which kills them. The package also has the part of sandbox-init for the one job of
// an exec, where all other processes in the container are the job's.
//
// The package must not know containers, paths or users, and imports only engine/initproto.
package worker

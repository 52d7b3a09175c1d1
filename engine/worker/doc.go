// Package worker runs commands, one after the other, and leaves no process of a command alive.
//
// A process that calls Serve is a worker: it reads jobs from its standard input and answers in frames (engine/initproto, "A worker"). It
// makes itself the reaper of all its descendants (PR_SET_CHILD_SUBREAPER): whatever a command starts, in sessions of its own, forked twice,
// without environment, belongs to the worker when its parent has died, and can get away from it no other way. So at a command's end, at
// its deadline, when it is killed, and when the worker's standard input closes, the worker kills its children until it has none, and only
// then reports. It kills children of its own only, whose process ids cannot be anybody else's until it has reaped them.
//
// What has become another user, by sudo or the like, a worker may not kill: it says so in its report, and takes no other job.
//
// A worker that is itself killed leaves the command to the next reaper above it. In a container that is sandbox-init, which sees to the
// rest. The package also holds what sandbox-init does for the one job of an exec, where everything in the container is the job's.
//
// It knows nothing of containers, paths or users, and imports engine/initproto only.
package worker

// Package engine starts a fresh container per job and speaks with the sandbox-init inside it.
//
// Acquire returns a Slot: an exec id with its directories and mounts and, when it is warm, a
// container that waits already. Run gives the slot its one job. The cold engine starts a container
// in Run; the pool, around it, has started one before. The package starts docker only through
// dockercli. It must not know the audit row, nor read the directories that it mounts.
//
// # A container that waits
//
// A container costs some 230 ms, most of it CPU time of the engine; a job in it costs its own time
// and nothing else. So the pool starts the container of the next exec in advance. It is the same
// container that a cold start would make, with the same flags except for its mounts. It lacks only
// its job, which every container gets over the standard input of its sandbox-init. It serves one
// job and ends. While it waits, its init runs the usual programs of jobs once, with nothing to do,
// so that the container's view of the image is in memory when the job comes; they leave nothing
// behind. A container that an exec takes while it is being started does not do that.
//
// The death of a waiting container is noticed when its stream ends, which also happens when its CLI
// dies: a container without a job sends nothing. When it dies after it was taken and before the job
// is sent, the exec never started; after that its exit is unknown, as with a cold one.
//
// A frozen container (`docker pause`) keeps its stream open. So a container that is taken is asked
// for an answer, which comes while the directories are prepared and the row is opened. Without an
// answer within two seconds, the container is removed, and the job, which was not sent yet, gets a
// cold start.
//
// # For any project
//
// Mounts are fixed when a container is made, but a mount can propagate. A container for any project
// has one mount at /workspace, an empty directory below attach.Base. When an exec takes it, its
// project's directories are mounted below that directory, each from a handle to the directory that
// Prepare has made and checked, and appear in the container. They are detached before anything is
// read of what the job has left. All that takes 0.3 ms, during which the exec's row is opened; the
// job is sent after both. Two specs can use each other's containers if they have the same key:
// image id, limits, user, runtime, and targets of mounts outside /workspace.
//
// That needs root on Linux and an engine to which the mounts of this process propagate. A trial
// shows whether they do: a container makes a directory in an attached directory. The trial runs at
// start, or with the first request if no container is to wait before, and again after the engine
// was away. It counts for the OCI runtime of the default spec only, because another runtime may
// have its own view of mounts.
//
// Otherwise, and for other runtimes, a container waits for one project, with the mounts that a cold
// start has. The project and the modes of its mounts belong to its key. When it is taken,
// MountSet.Intact reports whether the mounted directories are still in place: a project that was
// removed and made again has the same paths and new directories, and a waiting container holds the
// old directories.
//
// A container whose exec does not run, because its project or its inputs are refused for instance,
// goes back to the others, unless its limits were changed: it was sent nothing of a job, and all
// directories are detached. It counts as waiting meanwhile, and only execs that run are uses, so
// that such execs start no containers.
//
// # Without mounts
//
// With Config.Copy, containers mount nothing of a project, as pods do that no volume is shared
// with. Then every waiting container serves any project, and no trial is needed. The directories of
// an exec are copied over its container's stream (package transfer) when the inputs are in place,
// just before the job. What the job has changed comes back after its last process is dead and
// before its exit. That is not the job's time: it may take two minutes, and a second for each MiB,
// also for a job that was killed. If it fails, Exit.Lost says why; the files that came until then
// are in place. Files have one inode for each name then, a job can undo that a directory is
// read-only in its container, and writes of another exec are seen by the next exec only.
//
// A job that removes or replaces /workspace/work itself loses what it has changed in it. A
// container where the directories are mount points, such as paths of one empty volume, does not let
// it. Containers that stay have no copies: they are refused.
//
// # How many wait, and why
//
// A waiting container costs memory and no time. It is counted as 16 MB: with 32 of them, which
// share their programs' pages, the docker CLI that holds its lease takes 5, its containerd-shim 3,
// its init 1, and the kernel some for namespaces, mounts and cgroups; a single one shares no pages.
// The memory for its job is not used before there is a job. Hence 32 altogether (pool.max), which
// is 512 MB (pool.max_memory_mb): a laptop with 8 GB can spare that. The smaller bound counts.
//
// For any project: enough that fewer than one in a hundred of random arrivals finds none, given the
// rate of the key's uses and the time that a start takes. The pool learns both (demand.go has the
// formula). With starts of 350 ms, one at a time, that is 4 for one arrival per second and 8 for
// two. There are no more than 9 for any rate on such a machine: when the engine cannot keep up with
// the arrivals, no number is enough. The rate follows a change within half a minute. The number
// rises with it at once, and falls by one every 30 seconds, so that random arrivals do not start
// and drop containers in turn. pool.ready containers of the default spec always wait, also before
// the first request. When the image's name moves to another image, new ones replace them.
//
// For one project: as many as it took in the last 30 seconds, at least one and at most four
// (pool.max_per_key). One is enough for requests at human speed.
//
// Containers of a key that had no exec for ten minutes (pool.idle_seconds) end: that is longer than
// most pauses in which a person or an agent thinks. While the machine is short of memory, the pool
// starts none, and drops a quarter of all every few seconds, beginning with the least used keys.
//
// Beyond the bounds, the key with the least recent uses loses its container; a use counts half as
// much after ten seconds. But a key's second container never replaces another key's only container.
// Other keys never take the default spec's containers while these are at most half of the pool, and
// a second container never replaces its pool.ready ones. So a client that asks for ever new limits
// gets at most the rest of the pool. The pool remembers 64 empty keys and four more for each
// container, in less than 1 KiB each, so 192 KiB by default.
//
// # Other limits
//
// `docker update` changes memory, cores and pids of a running container in 26 ms, a ninth of a cold
// start. So an exec takes a container that differs only in these, if more than half of what its key
// wants would remain. The change runs while the row is opened, and the job is sent after it. If it
// fails, the container is removed, and the job gets a cold start. The sizes of /tmp and /dev/shm
// belong to mounts and cannot be changed. But only a shm_mb below memory_mb is a size of its own:
// otherwise the memory is the limit of what is in /dev/shm, and all containers have the same large
// one. The new key also gets containers of its own, for the next exec.
//
// # When they are started
//
// Starting a container uses most of a core for a quarter of a second. It slows running jobs and,
// most of all, cold starts. So a refill waits: for every cold start, until its job runs; for
// running jobs 100 ms, which most do not take; for the answer of the job that has just ended 10 ms.
// At most half the cores refill at once, and all of them when there was no job for 100 ms. For the
// same reason a container is removed only after the answer of its job (linger). A request that
// finds no ready container takes a container that is being started, which will be ready sooner than
// a new one.
//
// After a refill that failed because of the engine, all refills pause, from a quarter of a second
// up to half a minute. A refill that failed because the project or the image is gone is not tried
// again: the next request reports the error.
//
// # A container that stays
//
// A Resident is not a slot: it serves many commands, in parallel and one after the other, of one
// user, who is their common trust domain. Its sandbox-init runs with --serve and speaks other
// frames, with another magic, so that an image with an older one is noticed. It has a slot's flags,
// except for the mounts and the pids: the workers that run the commands, at most 544 threads, are
// added to the policy's number. Sweep does not remove it.
//
// A slot becomes one if Spec.Serve asked for that. A container that has waited gets a serve frame
// instead of a job, and the larger number of pids by `docker update`. That takes 30 ms, so it
// serves meanwhile, and 100 ms before that: its first job comes at once. For the same reason it
// delays refills. But if it has fewer pids than init needs, or it is not known whether the engine
// can do that, it serves only then. An older init ends at the frame, and a new container replaces
// it.
//
// # When this process dies
//
// The standard input of a container is its lease: the container ends when it closes, and the kernel
// closes it when this process dies. The next start removes containers that are left nonetheless by
// their label, and the runner removes the empty directories made for them. A shutdown (Drain, then
// Close) drops all waiting containers and waits for their end.
//
// # Where to read on
//
// Read engine.go (the interface), cold.go, pool.go, standby.go and assignment.go. Then the
// packages:
//
//   - dockercli: the only package that starts the docker binary
//   - dockercli/dockerclitest: only tests: fake docker binaries
//   - initproto: the frames between engine, sandbox-init and workers
//   - worker: runs commands one after the other and leaves no process alive; part of sandbox-init
//   - attach: mounts directories into containers that run already
//   - transfer: copies directories into containers without mounts, and what changed back
//   - kube: pods of a Kubernetes cluster as containers
//   - enginetest: only tests: the suite that every engine passes
//   - memengine: only tests: an engine whose jobs are Go functions
//
// The room must not know runner, audit, workspace or HTTP.
package engine

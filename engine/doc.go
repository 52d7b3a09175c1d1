// Package engine starts a fresh container per job and speaks with the sandbox-init inside it.
//
// Acquire returns a Slot: an exec id with its directories and mounts and, when it is warm, a container that waits already. Run gives the
// slot its one job. The cold engine starts a container in Run; the pool, around it, has started one before.
// The package starts docker only through dockercli. It must not know the audit row, nor read the directories that it mounts.
//
// # A container that waits
//
// A container costs some 230 ms, most of it CPU time of the engine; a job in it costs its own time and nothing else. So the pool starts
// the container of the next exec in advance. It is the same container that a cold start would make: the same flags, its own exec id, its own
// artifacts directory. It lacks only its job, which every container gets over the standard input of its sandbox-init. It serves one job and
// ends. While it waits, its init runs the usual programs of jobs once, with nothing to do, so that the container's view of the image is in
// memory when the job comes; they leave nothing behind.
//
// An exec can use a container that was started for another one with the same key: project, image id, limits, user, runtime, and mounts with
// their modes. When the container is taken, MountSet.Intact reports whether the directories are still the mounted ones: a project that was
// removed and made again has the same paths and other directories, and a waiting container holds the old ones.
//
// The death of a waiting container is noticed when its stream ends, which also happens when its CLI dies: a container without a job sends
// nothing. When it dies after it was taken and before the job is sent, the exec never started; after that its exit is unknown, as with a cold
// one.
//
// A frozen container (`docker pause`) keeps its stream open. So a container that is taken is asked for an answer, which comes while the row is
// opened. Without an answer within two seconds, the container is removed, and the job, which was not sent yet, gets a cold start.
//
// # How many wait, and why
//
// A waiting container costs memory and no time. It is counted as 16 MB: with 32 of them, which share their programs' pages, the docker CLI
// that holds its lease takes 5, its containerd-shim 3, its init 1, and the kernel some for namespaces, mounts and cgroups; a single one shares
// no pages. The memory for its job is not used before there is a job. Hence:
//
//   - 32 altogether (pool.max), which is 512 MB (pool.max_memory_mb): a laptop with 8 GB can spare that. The smaller bound counts.
//   - For each key as many as it took in the last 30 seconds, at least one and at most four (pool.max_per_key). One is enough for
//     requests at human speed. Random arrivals come in clusters: at two per second and 300 ms per refill, every second one finds the first
//     container gone, and one in fifty the third. A burst of more than four is limited by the rate at which the engine starts containers
//     (about 8/s on two cores), not by the number that waited.
//   - Beyond the bounds, the least recently used key loses its container. But a key's second container never replaces another key's only one.
//   - For ten minutes without an exec of the key (pool.idle_seconds): a pause in which a person or an agent thinks.
//   - None while the machine is short of memory; then a quarter of the waiting containers is dropped every few seconds.
//
// A project that is used once costs one container in vain, which the pool cannot know in advance. It starts the container when no other exec
// needs the engine, and with a thousand such projects only the most recent ones have one.
//
// # When they are started
//
// Starting a container uses most of a core for a quarter of a second. It slows running jobs and, most of all, cold starts. So a refill waits:
// for every cold start, until its job runs; for running jobs 100 ms, which most do not take; for the answer of the job that has just ended
// 10 ms. At most half the cores refill at once, and all of them when there was no job for 100 ms.
// For the same reason a container is removed only after the answer of its job (linger). A request that finds no ready container takes one that
// is being started, which will be ready sooner than another.
//
// After a refill that failed because of the engine, all refills pause, from a quarter of a second up to half a minute. One that failed because
// the project or the image is gone is not tried again: the next request reports the error.
//
// # A container that stays
//
// A Resident is not a slot: it serves many commands, in parallel and one after the other, of one user, who is their common trust domain. Its
// sandbox-init runs with --serve and speaks other frames, with another magic, so that an image with an older one is noticed. Its flags are
// those of a slot, except for the mounts and the pids: the workers that run the commands, at most 544 threads, are added to the policy's
// number. Sweep does not remove it.
//
// # When this process dies
//
// The standard input of a container is its lease: the container ends when it closes, and the kernel closes it when this process dies. The next
// start removes containers that are left nonetheless by their label, and the runner removes the empty directories made for them. A shutdown
// (Drain, then Close) drops all waiting containers and waits for their end.
package engine

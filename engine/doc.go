// Package engine starts a fresh container per job and speaks with the sandbox-init inside it.
//
// Acquire hands out a Slot: an exec id with its directories and mounts and, when it is warm, a container that waits already. Run
// gives the slot its one job. The cold engine starts a container in Run; the pool, around it, has started one before anybody asked.
// The package starts docker only through dockercli, never touches the audit row, and never reads the directories that it mounts.
//
// # A container that waits
//
// A container costs some 230 ms, most of it CPU time of the engine; a job in it costs its own time and nothing else. So the pool starts
// the container that the next exec will need while nobody waits for it. It is the very container that a cold start would have made: the
// same flags, its own exec id, its own artifacts directory. All it lacks is its job, which no container learns otherwise than over the
// standard input of its sandbox-init. It serves one job and is gone. While it waits, its init runs the programs that jobs are made of once,
// with nothing to do, so that the container's view of the image is in memory when there is a job; they leave nothing behind.
//
// What two execs must share for one to be served by what was started for the other is the key: project, image id, limits, user, runtime,
// and which directories are mounted how. That the directories are still those that were mounted is asked at the hand-over (Place.Intact):
// a project that was removed and made again has the same paths and other directories, and a container that waits holds the old ones.
//
// A container that dies while it waits is noticed when its stream ends, which also happens when its CLI dies: nothing may come from a
// container that has no job. One that dies in the instant of the hand-over, before the job is sent, is an exec that never started; after
// that it is one whose end is not known, as with a cold one.
//
// One that is frozen (`docker pause`) keeps its stream open. So a container that is taken is asked for an answer, which comes while the
// row is opened. If there is none within two seconds, the container is removed, and the job, which was not sent yet, gets a cold start.
//
// # How many wait, and why
//
// A waiting container costs memory and no time. It is counted as 16 MB: with 32 of them, which share their programs' pages, the docker CLI
// that holds its lease takes 5, its containerd-shim 3, its init 1, and the kernel some for namespaces, mounts and cgroups; a single one has
// those pages for itself. The memory that its job may use is not taken before there is a job. Hence:
//
//   - 32 altogether (pool.max), which is 512 MB (pool.max_memory_mb): what a laptop with 8 GB does not miss. The smaller bound counts.
//   - For each key as many as it took in the last 30 seconds, at least one and at most four (pool.max_per_key). One serves whoever comes
//     back at human speed. Arrivals at random come in clusters: at two per second and 300 ms per refill, every second one finds the
//     first container gone, and one in fifty the third. More than four at once is a burst, and a burst is limited by how fast the
//     engine starts containers (about 8/s on two cores), not by what waited.
//   - Beyond the bounds the key used least recently loses its container. But nobody's second container costs somebody else his only one.
//   - For ten minutes without an exec of its kind (pool.idle_seconds): the pause of a person or an agent who thinks.
//   - None while the machine is short of memory; then a quarter of what waits is given back every few seconds.
//
// A project that is used once and never again costs one container in vain. The pool cannot know; it starts it when nobody else needs
// the engine, and with a thousand such projects only the most recent ones are held.
//
// # When they are started
//
// Starting a container takes the better part of a core for a quarter of a second. A job that runs meanwhile is slowed by it, and a
// request that found nothing waiting is hurt most. So a refill gives way: to every cold start, until its job runs; to running jobs for
// 100 ms, which is longer than most; to the answer of the job that has just ended, for 10 ms. At most half the cores refill at once, and
// all of them when there has been no job for 100 ms.
// For the same reason the container that had the job is taken down only after its answer is out (linger). A request that finds no
// container ready but one on its way takes that: it will be there sooner than another.
//
// After a refill that failed because of the engine all of them pause, from a quarter of a second up to half a minute. One that failed
// because the project or the image is gone is not tried again: the next request will say what is the matter.
//
// # A container that stays
//
// A Resident is no slot: it serves many commands, at the same time and one after the other, for one user whose trust domain they share. Its
// sandbox-init is told so (--serve) and speaks other frames, with other magic words, so that an image with an older one is noticed. Its flags
// are those of a slot, but for the mounts and the pids: what runs the commands, 544 threads at most, comes on top of the policy's number.
// Sweep takes it for what it is: held.
//
// # What is left when this process dies
//
// The lease: every container ends when its standard input does, and the kernel closes that whoever we die of. The next start removes by
// label what is left nonetheless, and the runner gives back the empty directories that were set aside. On the way down (Drain, then
// Close) everything that waits is given up and waited for.
package engine

// Package library keeps the skills of agents and their users: versions, baselines, users' copies,
// and the plain files beside them. It must not know HTTP, containers or SQL.
//
// A version of a skill is an immutable tree, named by the digest of its content, at
// agents/<agentId>/skills/<skillId>/<digest>/. A pointer in the registry names the current version:
// the agent's baseline, and for each user the version that they were given at their first access.
// The user reads that version until they write: then it is copied into their workspace, to
// work/skills/<skillId>/. From then on the copy alone is the user's skill, regardless of the
// pointer; only the base digest of the user's row still counts. It is the baseline version that the
// copy derives from, and status, promotion and sync compare against it.
//
// Readers never see anything incomplete: a version is complete and on disk before a pointer names
// it, copies appear and are replaced by renames, and pointers move by compare-and-swap. Where two
// of these steps belong together, their order is such that a crash between them leaves the old
// skill or the new one, with a base that is at worst too old. A base that is too old causes
// needless conflicts; one that is too new would silently lose a change.
//
// Within a process, a change of a user's copy holds a lock for that skill of that user; between
// nodes, only the renames are atomic. An edit of a file also holds the workspace's edit lock, which
// all nodes share, so that no edit is lost. Execs hold no lock: their writes during a replacement
// go with the old copy, or are noticed and reported.
//
// Collect removes versions that no pointer names. Repair makes pointers and versions agree after
// one of the two was restored.
//
// DropIdleCopies removes from workspaces that have not been used for some time the copies that
// equal the version that the pointer names. That is decided by content, while the copy is
// unreachable.
package library

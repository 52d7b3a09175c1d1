// Package library keeps the skills of agents and of their users: versions, baselines, overlays, and the plain files beside them.
//
// A version of a skill is a tree that never changes, named by the digest of its content, at agents/<agentId>/skills/<skillId>/<digest>/.
// What is current is a pointer in the registry: the agent's baseline, and for each user the version that they were given when they first
// looked. That version is what the user reads, until something has to be written: then it is copied into the user's workspace, to
// work/skills/<skillId>/, and from there on the copy is the whole truth of that skill for that user, whatever the pointers say. Of the
// user's row only the base digest matters then: the baseline version that the copy comes from, against which status, promotion and sync
// compare it.
//
// Nothing is ever half done for a reader. A version is complete and on the disk before a pointer names it, a copy appears and changes
// place by a rename, and pointers move by compare-and-swap. Where two of these steps belong together, they come in the order in which a
// crash between them leaves the old skill or the new one, with a base that is at worst too old: too old a base means a conflict that is
// reported without need, too new a one would lose a change without a word.
//
// Within a process, a change of a user's copy holds a lock for that skill of that user. Between nodes there is only the rename. An edit of
// a file also holds the lock of the workspace's editors, which all nodes share, so that no edit is lost. Execs hold no lock: what they
// write while a skill is being replaced goes with the old one, or is noticed and reported.
//
// Versions that no pointer names are collected, beside all of that: Collect says how. Repair makes pointers and versions agree again when
// one of the two was restored.
//
// A workspace that nobody uses is packed (PackIdle): what the user has written is kept by package workspace, which brings it back with the
// next use, and a copy that is what the pointer names is not kept at all. That is decided out of everybody's reach, by content.
//
// The package knows no HTTP, no containers and no SQL.
package library

// Package packages holds what is about skills that agents and users upload, edit and share. The
// built-in skills are in the room skills. The package has no code of its own. Read in this order:
//
//   - library: baselines, users' copies, sync, and the plain files of a user's workspace
//   - versions: the versions on disk: immutable trees named by their digest
//   - archive: reads untrusted ZIP files with bounded memory, and writes downloads
//   - content: lists and hashes the files of a skill's tree
//   - metadata: finds a skill's name and description
//   - lines: reads and replaces ranges of lines in a text
//   - confine: checks the commands of restricted execute and their arguments
//   - registry: publishes users' skills and agents for all users, and installs them
//   - catalog: the skills and agents that a user has
//   - creator: skill-creator, the installation's own skill
//   - repair: makes pointers and versions agree again after a restore or a loss
//
// The room must not know HTTP, SQL or containers: api calls it, store keeps its pointers, and
// users' files are reached through sandbox.
package packages

// Package tree walks, reads, copies, changes and removes directory trees in which hostile programs may write at the same time. Every directory
// is opened by itself through os.Root, no link is followed, nothing but a regular file is opened, and walks have budgets for depth, entries and
// time. The package knows files and directories, and nothing of projects or skills.
package tree

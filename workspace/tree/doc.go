// Package tree walks, reads, copies, changes and removes directory trees in which hostile programs
// may write at the same time. It opens every directory by itself through os.Root, follows no link,
// opens nothing but regular files, and bounds walks by depth, entries and time. It knows files and
// directories, and nothing of projects or skills.
package tree

// Package workspace owns the directories of projects: projects/<project_id>/ with inputs/, work/
// and artifacts/<exec_id>/. It makes them, writes inputs, chooses what a container mounts, collects
// and publishes artifacts.
//
// Start with workspace.go and project.go, then inputs.go, mountset.go, collect.go and publish.go:
// the order in which an exec needs them. Then read:
//
//   - tree: hostile directory trees: walk, read, change, copy, remove
//   - tree/treetest: only tests: makes such trees
//   - pack: unpacks the workspaces that older versions packed
//   - diskspace: free space, reserves, and the errors of a full disk
//
// Files that jobs leave are hostile, so the package touches them through tree only. The room starts
// no process and must not know policy, audit rows or HTTP.
package workspace

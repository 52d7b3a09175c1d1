// Package workspace owns the directories of projects: projects/<project_id>/ with inputs/, work/ and artifacts/<exec_id>/. It makes them, writes
// inputs, chooses what a container mounts, collects and publishes artifacts, and packs the work/ and home of users' workspaces that are idle (see
// idle.go). Files that jobs leave are hostile, so it touches them through package tree only. It starts no processes and knows no policy, audit
// row or HTTP.
package workspace

// Package docker is the sandbox whose commands run in a container and whose files lie on this machine: one long-lived container per
// user of an agent, hardened as that of an exec, with the workspace's work/ at /workspace and a home that persists.
//
// The package knows users, their containers' lives, and files. How a container is started and spoken with is engine's (engine.Resident),
// how files are read and written without leaving the workspace is sandbox/files'. No file operation starts a container or a process.
package docker

// Package docker is the sandbox whose commands run in a container and whose files are on this
// machine: one long-lived container per user of an agent, hardened like the container of an exec,
// with the workspace's work/ at /workspace and a persistent home.
//
// The package manages the containers' lives. It must not know how a container is started and spoken
// with, which is engine's job (engine.Resident), nor how files are accessed safely, which is the
// job of sandbox/files. File operations start no container and no process.
package docker

// Package inside does file operations for any path that the user of a job may reach, and lists the
// user's processes. It is a
// program within sandbox-init, which serves as it when its first argument is Verb: core-api starts
// it in a session's container as it starts a job, so it has the rights, limits and mounts of a job,
// and needs no checks of paths. Package sandbox/places is the other side, and must believe nothing
// that comes back: processes of the same user can end the program, or write in its name.
//
// The program gets a Request as its second argument, and sends an Answer as JSON in one line.
// Content of files comes and goes in chunks.
//
// The package imports little of this module, because sandbox-init is in every container.
package inside

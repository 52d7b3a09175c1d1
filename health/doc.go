// Package health knows whether an exec could run on this node, and can prove that the limits of a sandbox hold.
//
// A Checker looks at what every exec needs (the engine, the image, the database, the workspace, the state dir), each with little
// patience, and remembers the answers for a moment: it is asked by load balancers. A Doctor runs real jobs that try to break out of
// each limit and says which of them were stopped. Something that could not be measured counts as a failure with its reason.
//
// The package knows nothing of HTTP, opens no database and makes no settings; it never removes a container that it did not start.
package health

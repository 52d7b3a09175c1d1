// Package health reports whether an exec can run on this node, and proves that the limits of a
// sandbox hold.
//
// A Checker checks the needs of every exec (the engine, the image, the database, the workspace, the
// state dir), each with a short timeout, and caches the results for some seconds: load balancers
// ask often. A Doctor runs real jobs that try to exceed each limit, and reports which of them were
// stopped. A limit that could not be measured counts as a failure.
//
// Read checker.go and report.go for the checks, doctor.go and experiments.go for the jobs.
//
// The package must not know HTTP or settings. It opens no database and never removes a container
// that it did not start.
package health

// Package bench measures a real core-api against plain docker, and the audit's lists on a large database: what `core-api bench` prints.
//
// Both sides of a comparison run in turns within one run, because machines are noisy and only the ratio of neighbours means something.
// The core-api under test is a process of its own, on throw-away directories, spoken to over HTTP; the docker side starts containers
// with the very flags that core-api used, taken from an exec's meta.json. The package knows nothing of how core-api works inside; it
// judges no time, it compares with the targets and says which were reached.
package bench

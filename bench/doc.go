// Package bench measures a real core-api against plain docker, and the audit's lists on a large database: what `core-api bench` prints.
//
// Both sides of a comparison run in turns within one run, because machines are noisy and only the ratio of neighbours means something.
// The core-api under test is a process of its own, on throw-away directories, spoken to over HTTP; the docker side starts containers
// with the very flags that core-api used, taken from an exec's meta.json. The package knows nothing of how core-api works inside but what
// it says in records and in GET /sandbox/pool; it judges no time, it compares with the targets and says which were reached.
//
// With the pool, an answer is quick because work was done before it and more is left for after it. So that this work is neither hidden
// nor charged to the wrong side, what the pool misses is in the numbers, beginning with the first exec of a project; at a pace both sides
// have the same gap before them; elsewhere docker run has the machine for itself; and a closed loop ends when the last container is
// gone and the pool is as full as it was.
package bench

// Package retention removes what the audit need not keep any longer: records with their events, and
// artifacts with captured output. The rules are settings; holds stop them. What is removed leaves a
// tombstone, and its entries stay in the transparency log, without the salt.
//
// The order is what leaves no lie behind after a crash: the tombstone is written in the transaction
// that deletes the row, or first of all for artifacts, and queues the files; then the files are
// removed, and the next run goes on where one ended. One run at a time works for the installation,
// by a lease in the database, in small batches with pauses. The package knows neither SQL (store
// does), files nor HTTP.
package retention

import "errors"

// ErrLeaseLost is the error of Store.Remove when another run has the lease.
var ErrLeaseLost = errors.New("another run of retention has begun")

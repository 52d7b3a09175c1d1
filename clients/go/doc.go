// Package client is the Go client of core-api: it runs commands in throw-away containers, follows
// their output, fetches their artifacts, and verifies webhooks. It needs only the standard library,
// so that a program can also copy this directory.
//
// A request that adds an exec has an Idempotency-Key, made for it unless the caller gives one. So
// it is sent again when the connection breaks, or when the server is busy, and runs once. All
// methods are safe for concurrent use.
package client

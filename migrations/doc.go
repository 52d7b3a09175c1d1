// Package migrations brings a database to the schema that this program needs. The SQL is embedded,
// one folder per database: sqlite/ and postgres/, in the order of their numbers.
//
// Migrations only go forward: audit history is never rolled back. Several nodes may start at once
// on one database; one of them migrates, the others wait for it.
//
// The package must not know a driver or the meaning of a column: it takes an open *sql.DB.
package migrations

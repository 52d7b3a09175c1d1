// Package store opens the database of the settings: PostgreSQL when there is a URL, else a SQLite
// file in the state dir. The packages of other rooms declare what they ask of a store; both
// databases implement it. Read in this order:
//
//   - storetest: what every database must do: the common suite
//   - internal/row: the statements with the same text in both databases, from audit.Columns
//   - sqlite: the embedded database, for one node
//   - postgres: PostgreSQL, for any number of nodes
//   - storetest/pgtest: only tests: PostgreSQL clusters that end with a test
//   - storetest/pgcluster: starts these clusters; also for bench
//   - storetest/sqlitetest: only tests: migrated SQLite files
//   - storetest/planprobe: checks what statements cost by the databases' plans
//
// The room must not know HTTP or Docker, nor the meaning of a record. Only sqlite and postgres know
// a driver.
package store

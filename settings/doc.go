// Package settings reads the configuration of a core-api from one file, the environment and flags,
// and reports errors in sentences that name the key, the value and the remedy.
//
//	defaults < file < environment < flags
//
// Every setting is one field of Settings, and its tags define its key, flag and meaning; the file
// reader, the environment, the digest and the documentation all use them. The fields of the policy
// are defined by package policy.
//
// Read settings.go (the fields), table.go (what follows from them), load.go (the order of the
// sources) and check.go (what is valid).
//
// The package must not know what a setting does: it opens no database, starts nothing and creates
// no directory.
package settings

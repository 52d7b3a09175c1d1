package view

import (
	"crypto/sha256"
	"encoding/hex"

	"secbox/console/ui"
	"secbox/sandbox/remote"
)

// RunnersPage is the users' machines.
type RunnersPage struct {
	User    string // filter; empty: all
	Live    bool
	Here    ui.Address // of the page, live
	Runners []remote.RunnerInfo
	More    int    // that are not listed
	Several bool   // they are connected to several nodes
	Curl    string // gets the same from the API
}

// linkID is the id of the link of a machine, which keeps the focus when the table is replaced.
func linkID(r remote.RunnerInfo) string {
	sum := sha256.Sum256([]byte(r.UserID + "\x00" + r.Name))
	return "runner-" + hex.EncodeToString(sum[:8])
}

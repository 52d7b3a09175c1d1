// Package remote is core-api's side of the links that runners dial (package wire has the language): a Sandbox whose files and commands are
// on the users' own machines. What the runner does with a request is package machine.
//
// It knows nothing of tokens but their ids, and of audit rows but that Late wants to hear of what nobody waited for.
package remote

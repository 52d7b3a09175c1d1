// Package offload keeps results of tools that are too long for a model to read. The model gets the
// beginning, the end and an id, by which it can read the rest. It also tells which of the files
// that an agent has read have changed since.
//
// The results are in a private directory on this side, because only the agent needs them. They end
// with their session. Opening the store removes the results of an earlier process. Files of users
// are read through the sandbox only. The package must not know MCP.
package offload

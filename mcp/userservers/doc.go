// Package userservers runs the MCP servers of the settings inside users' sandboxes and offers their
// tools. A server is a command with pipes (sandbox.Start): a process of this machine, in the user's
// container, or on the user's machine. The SDK's client speaks to it over its standard input and
// output.
//
// There is one process for each user, agent and server. It begins at the first listing of the
// workspace's tools or the first call, and is used by all sessions of the workspace. It ends when
// it is idle, when the token that started it is no longer valid, with the user's sandbox, and with
// core-api. Because a command may run only as long, and give back only as many bytes, as the policy
// allows, a process near one of these bounds gets no new calls; the next call starts another. A
// process that ended by itself is started again after a pause that doubles with each failure.
//
// A server is hostile. Its messages, its list of tools, its results and its requests are bounded;
// see conn.go, list.go and result.go. Requests to the client (sampling, roots, elicitation) are
// refused. The package must not know HTTP, sessions or rows: the sandbox records each process.
package userservers

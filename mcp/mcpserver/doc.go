// Package mcpserver serves the catalog's skills as tools of the Model Context Protocol, over
// streamable HTTP.
//
// A tool is named skill.<id> here, and clients see skill_<id>, because most hosts allow no dots;
// ?names=dotted shows them the dots, and calls take both. A call is an invoke like any other, with
// the same validation, policy and audit. The client can ask for progress notifications. Canceling a
// call ends its exec. The files of an exec are resources exec://{exec_id}/{path}. The tools
// session.run, session.python and so on run commands in a session of the sandbox.
//
// The official SDK implements the protocol, its sessions and streams. This package adds the caller
// of each HTTP request, the project of a call, limits of sessions, and a write timeout so that a
// client which does not read cannot delay others. It must not know how requests are authenticated:
// the HTTP server does that and passes the caller with WithCaller.
package mcpserver

// Package mcpserver serves the catalog's skills as tools of the Model Context Protocol, over streamable HTTP.
//
// A tool is named skill.<id>, or skill_<id> with underscores for hosts that take no dots; calling it is an invoke like any other: the
// same validation, policy and audit. While it runs the caller hears of its progress; a call that is canceled takes its container with
// it. What an exec left can be read as the resource exec://{exec_id}/{path}.
//
// The protocol, its sessions and streams are the official SDK's. This package adds what the SDK leaves to its user: who calls, with
// each HTTP request anew; which project a call means; how many sessions there may be and for how long; that a client which does not
// read what it is sent holds up nobody else. Authentication, roles and the guard against foreign origins are the HTTP server's in
// front of it, which says who calls by WithCaller.
package mcpserver

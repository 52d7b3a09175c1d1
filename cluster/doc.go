// Package cluster holds the packages that make several core-api processes one installation. It has
// no code of its own. Read in this order:
//
//   - nodes: leases of the nodes that share a database, and the retirement of a dead node
//   - peer: TLS channels between nodes: forwarded requests, and the nodes' own
//   - samples: numbers of each node of the last day, once a minute
//
// The room must not know SQL, routes or what a node runs.
package cluster

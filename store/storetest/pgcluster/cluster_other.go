//go:build !unix

package pgcluster

import "errors"

// Cluster does not exist on this system.
type Cluster struct{}

var errUnsupported = errors.New("throw-away PostgreSQL clusters are made on Unix only")

// Start fails: the cluster's life depends on Unix sockets and process groups.
func Start(string) (*Cluster, error) { return nil, errUnsupported }

// Database fails.
func (*Cluster) Database() (string, error) { return "", errUnsupported }

// SQL fails.
func (*Cluster) SQL(string, string) (string, error) { return "", errUnsupported }

// Remove does nothing.
func (*Cluster) Remove() error { return nil }

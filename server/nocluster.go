//go:build nokubernetes

package server

import (
	"log/slog"

	"secbox/fault"
	"secbox/settings"
)

// openCluster refuses: this program was built without Kubernetes' libraries.
func openCluster(settings.Sandbox, *slog.Logger) (cluster, error) {
	return nil, fault.New(fault.InvalidSettings, "sandbox.engine is kubernetes, and this core-api was built without it (-tags nokubernetes); use "+
		"a released one")
}

// Package deploy is the room of manifests that run core-api in a cluster. kubernetes/base is one
// replica whose jobs run as pods; kubernetes/overlays has variants: shared-volume, several replicas
// with one workspace that pods mount, and demo, for scripts/demo-kubernetes.sh.
// docs/kubernetes.md is their page. The package has only tests, which render nothing and need no
// cluster: they read the YAML and check what a mistake would open.
//
// The room must not know how core-api works inside, only its settings and its routes.
package deploy

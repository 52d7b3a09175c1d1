#!/usr/bin/env bash
# Runs the tests of engine/kube that need a real cluster, the one of scripts/kube.sh, and removes what they need in it. Arguments go to go test.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$(realpath -m "${SECBOX_KUBE_CACHE:-${HOME:-/root}/.cache/secbox-kube}")
export SECBOX_KUBECONFIG=$cache/cluster/kubeconfig
kubectl() { "$cache/bin/kubectl" --kubeconfig "$SECBOX_KUBECONFIG" "$@"; }

images/build-sandbox.sh
scripts/kube.sh image secbox-sandbox:latest
trap 'kubectl delete --ignore-not-found -f engine/kube/testdata/volume.yaml' EXIT
kubectl apply -f engine/kube/testdata/volume.yaml
CGO_ENABLED=0 go test -vet=off -tags kubecluster -timeout 20m -parallel 4 -count 1 -run 'Contract|HostileJobs' "$@" ./engine/kube
left=$(kubectl get pods --namespace secbox-test --output name)
[ -z "$left" ] || { echo "pods are left: $left" >&2; exit 1; }

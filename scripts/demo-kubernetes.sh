#!/usr/bin/env bash
# Demonstrates core-api on Kubernetes: starts the cluster of kube.sh if it does not run, deploys core-api with the overlay demo, and runs an exec, which is
# a pod. The exit code is 0 only if every claim was checked. The deployment, its data and all pods are removed at the end; the cluster stays, until
# `make kube-down`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

cache=${SECBOX_KUBE_CACHE:-${HOME:-/root}/.cache/secbox-kube}
kubectl() { "$cache/bin/kubectl" --kubeconfig "$cache/cluster/kubeconfig" "$@"; }
overlay=deploy/kubernetes/overlays/demo
data=/var/lib/secbox-kube-demo # as in the overlay
image=secbox-core-api:demo     # as in the overlay

dir=''
scratch dir
forward='' deployed=''
remove_all() {
	[ -z "$forward" ] || kill "$forward" 2>/dev/null || true
	forward=
	[ -n "$deployed" ] || return 0
	# core-api first, so that it removes its pods.
	kubectl delete deployment core-api -n secbox --ignore-not-found >/dev/null 2>&1 || true
	kubectl wait pod --for=delete -n secbox --all --timeout=60s >/dev/null 2>&1 || true
	kubectl delete -k "$overlay" --ignore-not-found --timeout=120s >/dev/null 2>&1 || true
	rm -rf --one-file-system "$data"
	docker rmi "$image" >/dev/null 2>&1 || true
	deployed=
}
trap 'remove_all; rm -rf "${litter[@]}"' EXIT
trap 'exit 130' INT TERM

wrong=0
title() { printf '\n%s\n' "$*"; }
check() { # CLAIM COMMAND...: the claim is true if the command succeeds.
	local what=$1
	shift
	if "$@" >/dev/null 2>&1; then return; fi
	printf '  ✗ not true: %s\n' "$what"
	wrong=$((wrong + 1))
}
holds() { jq -e "$2" "$dir/$1" >/dev/null; } # FILE FILTER
call() {                                     # FILE PATH ARGS...: a request; its body goes to the file.
	local file=$1 path=$2
	shift 2
	took=$(curl -sS --max-time 180 -o "$dir/$file" -w '%{time_total}' -H @"$dir/token" "$@" "$url$path") || fail "core-api does not answer: $path"
}
milliseconds() { awk -v s="$1" 'BEGIN {printf "%.0f ms", 1000 * s}'; }

scripts/kube.sh up
[ ! -e "$data" ] || fail "$data exists already; another demo may use it, else remove it"
[ -z "$(kubectl get deployments -n secbox -o name 2>/dev/null)" ] || fail "core-api is deployed already; remove it first: kubectl delete -k $overlay"
SECBOX_CORE_API_TAG=$image images/build-core-api.sh
deployed=1
scripts/kube.sh image "$image" secbox-sandbox:latest
install -d -m 0755 -o 1000 -g 1000 "$data"

title "1. core-api is deployed, with one replica"
(umask 077 && printf 'Authorization: Bearer %s\n' "$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" >"$dir/token")
kubectl apply -f deploy/kubernetes/base/namespaces.yaml >/dev/null
sed -n 's/^Authorization: Bearer //p' "$dir/token" | tr -d '\n' >"$dir/admin-token"
kubectl create secret generic core-api -n secbox --from-file=admin-token="$dir/admin-token" >/dev/null
kubectl apply -k "$overlay" >/dev/null
if ! kubectl rollout status deployment/core-api -n secbox --timeout=180s >"$dir/rollout" 2>&1; then
	kubectl logs deployment/core-api -n secbox --tail=5 >&2 || true
	fail "core-api did not become ready; its last words are above"
fi
kubectl get pods -n secbox --no-headers -o wide | awk '{print "  pod " $1 "  " $3 "  address " $6}'
kubectl port-forward -n secbox service/core-api :8003 --address 127.0.0.1 >"$dir/forward" 2>&1 &
forward=$!
tries=0
until url=$(sed -n 's|^Forwarding from \(127.0.0.1:[0-9]*\) .*|http://\1|p' "$dir/forward") && [ -n "$url" ]; do
	tries=$((tries + 1))
	[ "$tries" -lt 300 ] || fail "kubectl port-forward does not come up: $(tail -n 1 "$dir/forward")"
	sleep 0.1
done
check "core-api has no rights beside the pods of jobs" bash -c "! '$cache/bin/kubectl' --kubeconfig '$cache/cluster/kubeconfig' auth can-i get secrets -n secbox-jobs --as system:serviceaccount:secbox:core-api"

title "2. An exec runs in a pod"
script='cat /workspace/inputs/in.txt; echo "$((6 * 7))" > /workspace/artifacts/answer.txt; id -u
ls /var/run/secrets/kubernetes.io 2>/dev/null || echo no token; timeout 2 bash -c "exec 3<>/dev/tcp/10.96.0.1/443" 2>/dev/null || echo no network'
jq -n --arg script "$script" '{project_id: "demo", exec: {script: $script}, inputs: [{path: "in.txt", content: "hello\n"}], policy_overrides: {timeout_ms: 30000, memory_mb: 128}}' >"$dir/request.json"
call result.json /sandbox/execs -H 'Content-Type: application/json' --data-binary @"$dir/request.json"
first=$took
check "it succeeded" holds result.json '.status == "succeeded" and .exit_code == 0'
check "it read its input, and had neither a token nor a network" holds result.json '.stdout == "hello\n1000\nno token\nno network\n"'
id=$(jq -r '.exec_id // "none"' "$dir/result.json")
jq -r '"  exec      \(.exec_id)", "  ended as  \(.status), exit code \(.exit_code), after \(.duration_ms) ms",
	"  stdout    \(.stdout // "" | rtrimstr("\n") | gsub("\n"; ", "))"' "$dir/result.json" || cat "$dir/result.json"
call answer.txt "/sandbox/execs/$id/artifacts/answer.txt"
check "its artifact came back" [ "$(cat "$dir/answer.txt")" = 42 ]
printf '  artifact  answer.txt: %s\n' "$(cat "$dir/answer.txt")"
kubectl get events -n secbox-jobs --field-selector reason=Scheduled -o json | jq -r --arg id "$id" '.items[] | select(.involvedObject.name | endswith($id)) | .message' >"$dir/scheduled"
check "the scheduler gave its pod a node" [ -s "$dir/scheduled" ]
sed 's/^/  cluster   /' "$dir/scheduled"

title "3. The same again: a pod waited for it"
tries=0
until call pool.json /sandbox/pool && holds pool.json '.starting == 0 and .idle > 0' || [ "$tries" -gt 300 ]; do
	tries=$((tries + 1))
	sleep 0.2
done
call again.json /sandbox/execs -H 'Content-Type: application/json' --data-binary @"$dir/request.json"
again=$took
call record.json "/sandbox/execs/$(jq -r '.exec_id // "none"' "$dir/again.json")"
check "it succeeded in a pod that had waited" holds record.json '.status == "succeeded" and .warm'
printf '  its pod was started for it: %s; a pod had waited: %s\n' "$(milliseconds "$first")" "$(milliseconds "$again")"

title "4. What ran is on record"
call record.json "/sandbox/execs/$id"
check "the row has its status and image" holds record.json '.status == "succeeded" and (.image_id | startswith("sha256:"))'
jq -r '"  \(.status), requested by \(.requested_by), image \(.image_id[0:19])…, warm: \(.warm)"' "$dir/record.json" || true

title "5. Nothing is left"
remove_all
left=$(kubectl get pods -n secbox-jobs --no-headers 2>/dev/null | wc -l)
left=$((left + $(kubectl get namespaces,persistentvolumes -o name | grep -cE '/secbox(-jobs|-demo|-demo-jobs)?$' || true)))
[ ! -e "$data" ] || left=$((left + 1))
printf '  pods, namespaces, volumes and directories of the demo: %s\n' "$left"
check "nothing of the demo is left" [ "$left" -eq 0 ]
echo
[ "$wrong" -eq 0 ] || fail "$wrong of the things above are not true"
say "all of the above was checked and is true; the cluster still runs, until: make kube-down"

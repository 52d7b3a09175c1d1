#!/usr/bin/env bash
# Runs every fuzz target of the module for a while, one after the other: fuzz.sh [TIME], by default 10s.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=scripts/lib.sh
. scripts/lib.sh

time=${1:-10s} ran=0
while IFS=: read -r file target; do
	say "fuzzing $target in $(dirname "$file") for $time"
	go test -run='^$' -fuzz="^$target\$" -fuzztime="$time" "./$(dirname "$file")"
	ran=$((ran + 1))
done < <(git ls-files -co --exclude-standard '*_test.go' | xargs grep -Ho '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func /:/')
[ "$ran" -gt 0 ] || fail "there is no fuzz target"
say "$ran targets, no failure"

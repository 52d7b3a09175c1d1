#!/usr/bin/env bash
# Runs test programs under Wine, each in its package's directory on drive C: programs.sh DIR. DIR has source/, and tests/ with a list of rows "package, program,
# tests to skip". It writes DIR/results, rows "case, result", and what the programs said into DIR/tests.log.
set -euo pipefail
dir=$1
cp -r "$dir/source" "$WINEPREFIX/drive_c/secbox"
printf 'system\t%s\n' "$(wine64 --version)" >"$dir/results"
wineserver --persistent # a program that starts while the server of the former one ends may fail
while IFS=$'\t' read -r package program skip; do
	cd "$WINEPREFIX/drive_c/secbox/$package"
	begun=$SECONDS ended=ok
	timeout -k 10 900 wine64 "Z:${dir//\//\\}\\tests\\$program" -test.v -test.timeout 10m -test.skip "$skip" >"$dir/program.log" 2>&1 </dev/null || ended=FAIL
	cat "$dir/program.log" >>"$dir/tests.log"
	printf 'tests of %s\t%s, %d passed, %d s\n' "$package" "$ended" "$(grep -c '^--- PASS' "$dir/program.log")" $((SECONDS - begun)) >>"$dir/results"
done <"$dir/tests/list"
wineserver --kill

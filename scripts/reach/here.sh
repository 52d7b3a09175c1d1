# shellcheck shell=bash
# This machine.
share "$work/here"
mkdir "$work/here/scratch"
chmod 711 "$work" # PostgreSQL runs as a user of its own
say "running here"
(cd "$work/here/scratch" && bash ../inside.sh "$work/here" "$linux_tests") >"$work/here/run.log" 2>&1 || true
collect here "$work/here"

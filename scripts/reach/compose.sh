# shellcheck shell=bash
# docker-compose.yml, built from the source, on the newest packaged engine.
# shellcheck source=scripts/reach/standins.sh
. scripts/reach/standins.sh

standins "$work/compose"
cat >"$work/compose/run.sh" <<'RUN'
. /reach/engine.sh
/bin/bash /reach/inside-compose.sh /reach
kill %2 %1
wait
RUN
say "running docker compose on forky's engine here"
in_forky compose

# shellcheck shell=bash
# The newest packaged engine.
# shellcheck source=scripts/reach/forky.sh
. scripts/reach/forky.sh

share "$work/engine"
cat >"$work/engine/run.sh" <<'RUN'
ip link set lo up
dockerd --bridge=none --iptables=false --ip6tables=false --cgroup-parent=/secbox-reach >/reach/dockerd.log 2>&1 &
mkdir -p /var/tmp/reach
cd /var/tmp/reach
/bin/bash /reach/inside.sh /reach "$1"
kill %1
wait
RUN
say "running forky's engine here"
in_forky engine "$linux_tests"

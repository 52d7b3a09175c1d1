# shellcheck shell=bash
# Docker's command with podman's service in the engine's place, as docs/platforms.md says. What podman tells of a container lists its mounts in another form, and its
# variables in any order, so TestWarmIsConfinedLikeCold cannot compare two.
# shellcheck source=scripts/reach/uml.sh
. scripts/reach/uml.sh

in_uml podman trixie <<RUN
systemctl stop docker.socket docker.service
systemctl start podman.socket
export DOCKER_HOST=unix:///run/podman/podman.sock CORE_API_SANDBOX_SECCOMP=engine
mkdir -p /var/tmp/reach && cd /var/tmp/reach
exec bash /reach/inside.sh /reach '${linux_tests/TestWarmIsConfinedLikeCold|/}'
RUN

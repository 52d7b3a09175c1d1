# shellcheck shell=bash
# Podman's command in docker's place, as root.
# shellcheck source=scripts/reach/uml.sh
. scripts/reach/uml.sh

in_uml podman trixie <<RUN
systemctl stop docker.socket docker.service
printf '#!/bin/sh\nexec podman "\$@"\n' >/usr/local/bin/docker
chmod +x /usr/local/bin/docker
mkdir -p /var/tmp/reach && cd /var/tmp/reach
exec bash /reach/inside.sh /reach '$linux_tests'
RUN

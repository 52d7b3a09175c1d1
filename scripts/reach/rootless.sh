# shellcheck shell=bash
# An engine of an ordinary user, as docs/platforms.md says.
# shellcheck source=scripts/reach/uml.sh
. scripts/reach/uml.sh

in_uml rootless trixie <<RUN
systemctl stop docker.socket docker.service
systemctl start user@1000.service
mkdir -p /var/tmp/reach
cp -r /reach /var/tmp/reach/share
cat >/var/tmp/reach/user.sh <<'USER'
export XDG_RUNTIME_DIR=/run/user/1000 HOME=/home/reach PATH=\$PATH:/usr/sbin:/sbin
export DBUS_SESSION_BUS_ADDRESS=unix:path=\$XDG_RUNTIME_DIR/bus DOCKER_HOST=unix://\$XDG_RUNTIME_DIR/docker.sock DOCKERD_ROOTLESS_ROOTLESSKIT_NET=host DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER=none
cd /var/tmp/reach
systemd-run --user --unit=docker -E PATH -E DOCKERD_ROOTLESS_ROOTLESSKIT_NET -E DOCKERD_ROOTLESS_ROOTLESSKIT_PORT_DRIVER -p Delegate=yes /usr/share/docker.io/contrib/dockerd-rootless.sh --bridge=none --iptables=false --ip6tables=false
bash share/inside.sh /var/tmp/reach/share '$rootless_tests'
journalctl --user -u docker --no-pager >share/dockerd.log
USER
chown -R reach:reach /var/tmp/reach
setpriv --reuid 1000 --regid 1000 --init-groups bash /var/tmp/reach/user.sh
cp /var/tmp/reach/share/*.log /var/tmp/reach/share/results /reach/
RUN

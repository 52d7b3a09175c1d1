# shellcheck shell=bash
# An engine of an ordinary user, as docs/platforms.md says.
# shellcheck source=scripts/reach/uml.sh
. scripts/reach/uml.sh

in_uml rootless trixie <<RUN
systemctl stop docker.socket docker.service
loginctl enable-linger reach
mkdir -m 777 /var/tmp/reach
cat >/var/tmp/reach/user.sh <<'USER'
export XDG_RUNTIME_DIR=/run/user/1000 HOME=/home/reach PATH=\$PATH:/usr/sbin:/sbin
export DOCKER_HOST=unix://\$XDG_RUNTIME_DIR/docker.sock DOCKERD_ROOTLESS_ROOTLESSKIT_NET=host
systemd-run --user --unit=docker -E PATH -E DOCKERD_ROOTLESS_ROOTLESSKIT_NET -p Delegate=yes /usr/share/docker.io/contrib/dockerd-rootless.sh --iptables=false --ip6tables=false
cd /var/tmp/reach
bash /reach/inside.sh /reach '$rootless_tests'
journalctl --user -u docker --no-pager >/reach/dockerd.log
USER
chmod -R a+rwX /reach
exec setpriv --reuid 1000 --regid 1000 --init-groups bash /var/tmp/reach/user.sh
RUN

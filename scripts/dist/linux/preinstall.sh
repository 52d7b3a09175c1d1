#!/bin/sh
# The service's user exists before its files. The group docker may open the engine's socket; an engine that is installed later uses it too.
# An upgrade leaves the user as it is: an operator may have taken it out of the group, such as for a rootless engine.
set -e
getent group docker >/dev/null || groupadd --system docker
getent group secbox >/dev/null || groupadd --system secbox
if ! getent passwd secbox >/dev/null; then
	useradd --system --gid secbox --home-dir /var/lib/secbox --no-create-home --shell /usr/sbin/nologin secbox
	usermod --append --groups docker secbox
fi

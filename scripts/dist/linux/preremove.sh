#!/bin/sh
# Debian says remove, RPM 0 for packages that remain; an upgrade says something else.
set -e
case $1 in
remove | 0)
	if [ -d /run/systemd/system ]; then systemctl disable --now core-api.service || true; fi
	;;
esac

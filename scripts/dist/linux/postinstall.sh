#!/bin/sh
# A service that does not start again leaves the package installed: it is mended with the package's programs.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || true
	systemctl try-restart core-api.service || # of an older version
		echo "secbox: core-api does not start again; journalctl -u core-api says why" >&2
fi
echo "secbox: build the sandbox image with /usr/lib/secbox/images/build-sandbox.sh, then start the service: systemctl enable --now core-api"

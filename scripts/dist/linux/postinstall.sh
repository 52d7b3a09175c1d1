#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart core-api.service # of an older version
fi
echo "secbox: build the sandbox image with /usr/lib/secbox/images/build-sandbox.sh, then start the service: systemctl enable --now core-api"

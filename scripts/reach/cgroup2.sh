# shellcheck shell=bash
# Two versions of Debian with systemd and cgroup v2.
# shellcheck source=scripts/reach/uml.sh
. scripts/reach/uml.sh

suites=(trixie forky)
[ -z "$quick" ] || suites=(trixie)
for suite in "${suites[@]}"; do
	in_uml "$suite-cgroup2" "$suite" <<-RUN
		mkdir -p /var/tmp/reach && cd /var/tmp/reach
		QUICK=$quick exec bash /reach/inside.sh /reach '$linux_tests'
	RUN
done

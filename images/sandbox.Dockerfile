# The sandbox: what every exec runs in. images/build-sandbox.sh builds it; the build context is a folder that holds sandbox-init
# (linux, static, mode 0755) and nothing else. The script also sets the label secbox.sandbox-init, the digest of that binary, by which
# core-api knows that the image has it.
#
# Two things that Debian makes every Python load at its start go: a crash reporter, and setuptools' stand-in for distutils, which this Python
# still has. They are a twentieth of the time of a short program.
#
# No program keeps a setuid or setgid bit: jobs have no new privileges, so such a program could only fail.
#
# BASE is python:3.12-slim, or any Debian base. What the base has already is not installed again, so that a complete base builds
# without a network. Plain enough for the classic builder of engine 20.10.
ARG BASE=python:3.12-slim
FROM ${BASE}
USER 0:0

RUN set -eu; \
    missing=; \
    need() { command -v "$1" >/dev/null 2>&1 || missing="$missing $2"; }; \
    need bash bash; need ls coreutils; need find findutils; need grep grep; need sed sed; need gawk gawk; need jq jq; \
    need git git; need curl curl; need wget wget; need zip zip; need unzip unzip; need xz xz-utils; need bzip2 bzip2; \
    need ps procps; need pgrep procps; need patch patch; need file file; need less less; need tree tree; need xxd xxd; \
    need python3 python3; need pip python3-pip; need python python-is-python3; \
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"; \
    if [ -n "$missing" ]; then \
        export DEBIAN_FRONTEND=noninteractive; \
        apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null \
            || { echo "secbox: the base lacks$missing and no package mirror answers; build from a base that has them: images/build-sandbox.sh" >&2; exit 1; }; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    find / -xdev -type f -perm /6000 -exec chmod ug-s {} +; \
    rm -f /usr/lib/python3*/EXTERNALLY-MANAGED; \
    rm -f /usr/lib/python3/dist-packages/distutils-precedence.pth /etc/python3*/sitecustomize.py /usr/lib/python3*/sitecustomize.py

# The login shell's profile is emptied so that `bash -lc` keeps the PATH and the variables that an exec was given. Git trusts the
# project's directory whoever owns it: on Docker Desktop that is never the user in the container. It has a name for commits.
RUN set -eu; \
    group=$(getent group 1000 | cut -d: -f1); user=$(getent passwd 1000 | cut -d: -f1); \
    [ -n "$group" ] || groupadd --gid 1000 sandbox; \
    [ -n "$user" ] || useradd --uid 1000 --gid 1000 --no-create-home --home-dir /tmp --shell /bin/bash sandbox; \
    [ "${group:-sandbox}" = sandbox ] || groupmod --new-name sandbox "$group"; \
    [ "${user:-sandbox}" = sandbox ] || usermod --login sandbox --gid 1000 --home /tmp --shell /bin/bash "$user"; \
    mkdir -p /workspace/inputs /workspace/work /workspace/artifacts; \
    chown -R 1000:1000 /workspace; \
    printf '%s\n' '# Empty on purpose: a login shell changes nothing of what the exec was given.' > /etc/profile; \
    git config --system --replace-all safe.directory '*'; \
    git config --system user.name sandbox; git config --system user.email sandbox@localhost

# A directory of its own, so that a volume can be filled from it for images that lack sandbox-init.
COPY sandbox-init /opt/secbox/sandbox-init

# HOME is the one place that is writable everywhere: the root file system is read-only and /tmp is a fresh tmpfs. Python writes
# no __pycache__ into the project and holds back no output, so that a job killed at its deadline still shows what it printed.
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    HOME=/tmp \
    USER=sandbox \
    LOGNAME=sandbox \
    LANG=C.UTF-8 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1

USER 1000:1000
WORKDIR /workspace/work
ENTRYPOINT ["/opt/secbox/sandbox-init"]

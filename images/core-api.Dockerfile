# core-api and the docker client that it starts containers with. images/build-core-api.sh builds it; the build context is a folder
# that holds core-api (linux, static, mode 0755) and nothing else.
#
# Runs as root on purpose: it holds the engine's socket, which is root on the host anyway, and it gives the projects' directories
# to the sandbox's user.
ARG BASE=debian:trixie-slim
FROM ${BASE}
USER 0:0

RUN set -eu; \
    missing=; \
    command -v docker >/dev/null 2>&1 || missing="$missing docker-cli"; \
    [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"; \
    if [ -n "$missing" ]; then \
        export DEBIAN_FRONTEND=noninteractive; \
        apt-get update -qq && apt-get install -qq -y --no-install-recommends $missing >/dev/null \
            || { echo "secbox: the base lacks$missing and no package mirror answers; build from a base that has them: images/build-core-api.sh" >&2; exit 1; }; \
        rm -rf /var/lib/apt/lists/*; \
    fi; \
    mkdir -p /workspace-root /var/lib/secbox

COPY core-api /usr/local/bin/core-api

ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8

EXPOSE 8003
ENTRYPOINT ["/usr/local/bin/core-api"]
CMD ["serve"]

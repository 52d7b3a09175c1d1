# core-api and the docker client that it starts containers with. images/build-core-api.sh builds the stage packed, with a build context that
# images/core-api-files.sh filled; docker compose builds the last stage from the source, so that its machine needs no Go.
#
# Runs as root on purpose: it holds the engine's socket, which is root on the host anyway, and it gives the projects' directories
# to the sandbox's user.
ARG BASE=debian:trixie-slim
FROM ${BASE} AS base
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

ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    LANG=C.UTF-8

EXPOSE 8003
ENTRYPOINT ["/usr/local/bin/core-api"]
CMD ["serve"]

FROM base AS packed
COPY core-api /usr/local/bin/core-api
COPY lib /usr/lib/secbox

# The Go of go.mod.
FROM golang:1.26 AS files
WORKDIR /source
COPY . .
RUN bash images/core-api-files.sh /files

FROM base
COPY --from=files /files/core-api /usr/local/bin/core-api
COPY --from=files /files/lib /usr/lib/secbox

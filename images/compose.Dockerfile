# docker compose in a container, for machines that have no compose plugin: scripts/compose.sh builds and runs it.
ARG BASE=debian:trixie-slim
FROM ${BASE}
USER 0:0
RUN set -eu; export DEBIAN_FRONTEND=noninteractive; \
    apt-get update -qq && apt-get install -qq -y --no-install-recommends docker-cli docker-compose >/dev/null \
        || { echo "secbox: no package mirror answers; install the docker compose plugin instead" >&2; exit 1; }; \
    rm -rf /var/lib/apt/lists/*
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
ENTRYPOINT ["docker", "compose"]

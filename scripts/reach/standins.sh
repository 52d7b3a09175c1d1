# shellcheck shell=bash
# docker-compose.yml where no network is: compose and wincompose use it.
# shellcheck source=scripts/reach/forky.sh
. scripts/reach/forky.sh

# standins DIR: a share with the source and the modules of Go, the images that a registry would give, and engine.sh, which starts an engine that has them. Like
# Docker Desktop, it has containerd's image store and BuildKit. Its arguments are more flags.
standins() {
	mkdir -p "$1/source" "$1/go"
	git archive HEAD | tar -x -C "$1/source"
	go mod vendor -o "$1/source/vendor"
	cp -r "$(go env GOROOT)" "$1/go/go"
	cat >"$1/go/Dockerfile" <<-'DOCKERFILE'
		FROM debian:trixie-slim
		COPY go /usr/local/go
		ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
	DOCKERFILE
	say "building the images that a registry would give"
	SECBOX_CORE_API_TAG=secbox-reach:trixie images/build-core-api.sh
	docker build -q --network=host --build-arg BASE=secbox-reach:trixie -t secbox-reach:postgres images/testdata/postgres >/dev/null 2>&1
	docker save -o "$1/images.tar" secbox-sandbox:latest secbox-reach:trixie secbox-reach:postgres
	docker rmi secbox-reach:trixie secbox-reach:postgres >/dev/null
	cat >"$1/engine.sh" <<-'ENGINE'
		ip link set lo up
		containerd >/reach/containerd.log 2>&1 &
		until [ -S /run/containerd/containerd.sock ]; do sleep 0.1; done
		dockerd --containerd=/run/containerd/containerd.sock --feature=containerd-snapshotter=true --cgroup-parent=/secbox-reach \
			-H unix:///var/run/docker.sock "$@" >/reach/dockerd.log 2>&1 &
		for _ in $(seq 240); do docker info >/dev/null 2>&1 && break; sleep 0.5; done
		docker load -qi /reach/images.tar
		for tags in "secbox-sandbox:latest python:3.12-slim" "secbox-reach:trixie debian:trixie-slim" "secbox-reach:postgres postgres:17"; do
			docker tag ${tags% *} ${tags#* }
			docker rmi ${tags% *}
		done
		docker build -q -t golang:1.26 /reach/go
	ENGINE
	cp scripts/reach/inside-compose.sh "$1/"
}

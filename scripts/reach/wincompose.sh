# shellcheck shell=bash
# What a user of Windows types for docker-compose.yml: docker.exe and docker-compose.exe under Wine, in a directory of drive C. The engine is the newest packaged
# one, behind a proxy in Docker Desktop's place.
# shellcheck source=scripts/reach/standins.sh
. scripts/reach/standins.sh
# shellcheck source=scripts/reach/wine.sh
. scripts/reach/wine.sh
docker_compose_version=v2.40.3

# compose_exe DIR VERSION: Docker's own compose for Windows, from its source.
compose_exe() {
	cp -r "$(go mod download -json "github.com/docker/compose/v2@$2" | jq -r .Dir)" "$1/source"
	chmod -R u+w "$1/source"
	(cd "$1/source" && GOOS=windows go build -trimpath -ldflags="-s -w -X github.com/docker/compose/v2/internal.Version=$2" -o ../docker-compose.exe ./cmd)
	rm -rf "$1/source"
}
cached compose-exe compose_exe "$docker_compose_version"

wincompose=$work/wincompose
standins "$wincompose"
cp -a "$prefix" "$wincompose/home"
drive=$wincompose/home/prefix/drive_c
plugins=$drive/users/reach/.docker/cli-plugins
mkdir -p "$drive/tools" "$plugins"
cp "$docker_cli" "$drive/tools/"
cp "$made/docker-compose.exe" "$plugins/"
cp -r "$wincompose/source" "$drive/secbox"
chown -R 1000:1000 "$wincompose/home"
cat >"$wincompose/run.sh" <<'RUN'
. /reach/engine.sh -H unix:///reach/docker.sock
touch /reach/ready
until [ -e /reach/typed ]; do sleep 0.5; done
cd /reach/source
COMPOSE_RAN=1 /bin/bash /reach/inside-compose.sh /reach
kill %2 %1
wait
RUN

# typed CASE WORDS...: what the user types, and whether docker.exe took it.
typed() {
	local ended=ok
	VARIABLES='DOCKER_HOST=tcp://127.0.0.1:2375 WINEPATH=C:\tools' in_root "$wine" "$wincompose/home" env -C /home/reach/prefix/drive_c/secbox \
		wine64 'C:\tools\docker.exe' "${@:2}" >>"$wincompose/typed.log" 2>&1 || ended=FAIL
	printf '%s\t%s\n' "$1" "$ended" >>"$wincompose/results"
}
say "running docker.exe compose under Wine"
in_forky wincompose &
engine=$!
until [ -e "$wincompose/ready" ]; do kill -0 "$engine" || fail "the engine did not start, see $wincompose/run.log"; sleep 0.5; done
"$work/desktop" 127.0.0.1:2375 "$wincompose/docker.sock" "$drive" >"$wincompose/desktop.log" 2>&1 &
desktop=$!
typed "docker.exe compose up, built from the source" compose --progress plain up --detach --wait --wait-timeout 1200
typed "docker.exe compose exec: the token" compose exec -T core-api cat /secrets/admin-token
typed "docker.exe compose exec: the doctor" compose exec -T core-api core-api doctor
typed "docker.exe compose up again" compose up --detach --wait
kill "$desktop"
touch "$wincompose/typed"
wait "$engine"

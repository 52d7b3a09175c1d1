# shellcheck shell=bash
# What the image builds share: which base, and whether there is anything to do. Sourced from the repository's root.

image_id() { docker image inspect -f '{{.Id}}' "$1" 2>/dev/null; }
image_label() { docker image inspect -f "{{index .Config.Labels \"$2\"}}" "$1" 2>/dev/null; }

# engine_arch: the machine that the image is for is the engine's, not this one.
engine_arch() { within 30 docker version -f '{{.Server.Arch}}' 2>/dev/null || fail "no Docker engine answers; run: make setup"; }

# choose_base WISH REGISTRY_IMAGE DEBIAN_TAG SUITE PACKAGE...: sets base. The wish, if there is one, and no questions asked; else
# the registry's image if the engine holds it or can pull it; else a Debian base of our own, made once.
choose_base() {
	local wish=$1 registry_image=$2 debian_tag=$3
	shift 3
	base=${wish:-$registry_image}
	image_id "$base" >/dev/null && return
	[ -z "$wish" ] || fail "the engine has no image $wish; docker pull or docker load it first"
	# Having made a base of our own once says that no registry answered: it is not asked again at every run.
	if ! image_id "$debian_tag" >/dev/null; then
		say "pulling $registry_image"
		within "${SECBOX_PULL_SECONDS:-20}" docker pull -q "$registry_image" >/dev/null 2>&1 && return
		say "no registry answers"
	fi
	base=$debian_tag
	images/debian-base.sh "$debian_tag" "$@"
}

# Debian trixie, because its docker client (26.1) speaks with engines from 20.10 to the current ones.
choose_core_api_base() {
	choose_base "${SECBOX_CORE_API_BASE:-}" debian:trixie-slim secbox-base:trixie trixie bash ca-certificates docker-cli
}

sha256() { if have sha256sum; then sha256sum; else shasum -a 256; fi | cut -d' ' -f1; }

# digest_of DIR: of the names and contents of its files.
digest_of() { (cd "$1" && find . -type f | LC_ALL=C sort | while read -r file; do sha256 <"$file" && echo "$file"; done) | sha256; }

# build_image TAG DOCKERFILE [PROGRAM | DIR [FLAG...]]: builds on $base with the program as the only file of the context, or with DIR as the context, unless the
# image was built from the very same things. The label secbox.NAME holds a program's digest.
build_image() {
	local tag=$1 dockerfile=$2 content=${3:-} inputs digest='' base_id context logs flags=("${@:4}") name
	if [ -d "$content" ]; then
		digest=$(digest_of "$content")
	elif [ -n "$content" ]; then
		digest=$(sha256 <"$content")
		flags+=(--label "secbox.$(basename "$content")=$digest")
	fi
	base_id=$(image_id "$base") || fail "the engine no longer has the image $base; run this again"
	inputs=$({
		cat "$dockerfile" images/lib.sh
		echo "$digest $base_id"
	} | sha256)
	if [ "$(image_label "$tag" secbox.image.inputs)" = "$inputs" ]; then
		[ -n "${quiet:-}" ] || say "the image $tag is up to date (base $base)"
		return
	fi
	say "building the image $tag on $base"
	scratch logs
	if [ -d "$content" ]; then
		context=$content
	else
		scratch context
		[ -z "$content" ] || install -m 0755 "$content" "$context/"
	fi
	for name in HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
		if [ -n "${!name:-}" ]; then flags+=(--build-arg "$name"); fi
	done
	if ! docker build --network=host --force-rm --build-arg BASE="$base" ${flags[@]+"${flags[@]}"} \
		--label secbox.image.inputs="$inputs" --label secbox.image.base="$base" \
		-f "$dockerfile" -t "$tag" "$context" >"$logs/build" 2>&1; then
		tail -n 15 "$logs/build" >&2
		fail "$tag could not be built; the engine's words are above"
	fi
	say "built $tag, $(image_id "$tag" | cut -c8-19)"
}

# shellcheck shell=bash
# What the parts of reach.sh share: the cache, roots of other systems, the programs, and the results.

cache=${SECBOX_REACH_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/secbox-reach}
work=

# The tests of e2e that run on every Linux, where core-api is a program of Windows, and where neither it nor the engine is root.
marked() { awk -v word="$1" 'index($0 " ", " " word) { print $1 }' scripts/reach/tests | paste -sd '|'; }
linux_tests=$(marked "${quick:+quick}")
windows_tests=$(marked windows)
rootless_tests=$(marked rootless)

# cached NAME FUNCTION WORDS...: sets $made to a directory that the function filled, once for its text and words.
cached() {
	local name=$1 digest
	shift
	digest=$({ declare -f "$1" debian && printf '%s\n' "$@"; } | sha256sum | cut -c1-12)
	made=$cache/$name-$digest
	[ ! -e "$made/.made" ] || return 0
	if [ -n "$quick" ]; then
		say "reach: $name is not made here, so nothing is tried; a run without --quick makes it"
		exit 0
	fi
	say "making $name, once"
	tool mmdebstrap mmdebstrap
	tool mke2fs e2fsprogs
	rm -rf --one-file-system "$cache/$name"-*
	mkdir -p "$made"
	"$1" "$made" "${@:2}" >"$cache/$name.log" 2>&1 || fail "$name could not be made, see $cache/$name.log: $(tail -n 1 "$cache/$name.log")"
	touch "$made/.made"
}

# debian DIR SUITE PACKAGES: a system in DIR/root. A mirror may lag, so the dates of its lists are not held against it.
debian() {
	mmdebstrap --variant=minbase --include="$3" --aptopt='Acquire::Check-Valid-Until "false"' "$2" "$1/root"
	rm -rf "$1/root/var/cache/apt" "$1/root/var/lib/apt/lists"/*
}

# tool COMMAND PACKAGE
tool() { have "$1" || apt_install "$2" || fail "the package $2 could not be installed"; }

# build_programs fills $work/programs with the tests of e2e and what they run, and $work/images.tar with the images.
build_programs() {
	say "building core-api, secbox and their tests"
	mkdir "$work/programs"
	go build -trimpath -o "$work/programs/" ./cmd/core-api ./cmd/secbox
	go test -c -trimpath -o "$work/programs/e2e.test" ./e2e
	ln "$work/programs/core-api" "$work/programs/core-api-as-released"
	docker save -o "$work/images.tar" secbox-sandbox:latest
}

# share DIR makes and fills a directory that a part gives to its system: programs, images, the tests' files and inside.sh.
share() {
	[ -d "$work/programs" ] || build_programs
	mkdir -p "$1"
	cp -al "$work/programs" "$work/images.tar" "$1/"
	mkdir "$1/source"
	git archive HEAD | tar -x -C "$1/source"
	cp scripts/reach/inside.sh "$1/"
}

# collect TARGET DIR: what inside.sh left there, as rows "target, case, result".
collect() {
	[ -s "$2/results" ] || { tail -n 40 "$2"/*.log >&2 && fail "$1 gave no results"; }
	sed "s/^/$1\t/" "$2/results" >>"$work/results"
	if [ -n "${SECBOX_REACH_KEEP:-}" ]; then mkdir -p "$SECBOX_REACH_KEEP/$1" && cp "$2"/*.log "$SECBOX_REACH_KEEP/$1/"; fi
	# The lines of a failed test, which are what one wants to read.
	if grep -q $'\tFAIL' "$2/results"; then grep -A 30 -e '^--- FAIL' -e '^    --- FAIL' "$2/tests.log" | head -n 200 >&2 || true; fi
}

# print_table prints cases by targets and fails if one of them failed.
print_table() {
	awk -F '\t' '
		!($1 in target) { target[$1] = ++targets; names[targets] = $1 }
		!($2 in row) { row[$2] = ++rows; cases[rows] = $2 }
		{ cell[row[$2], target[$1]] = $3 }
		END {
			printf "%-44s", "case"
			for (t = 1; t <= targets; t++) printf "  %-22s", names[t]
			print ""
			for (r = 1; r <= rows; r++) {
				printf "%-44s", cases[r]
				for (t = 1; t <= targets; t++) printf "  %-22s", ((r, t) in cell) ? cell[r, t] : "-"
				print ""
			}
		}' "$work/results"
	if grep -q $'\tFAIL' "$work/results"; then fail "the cases with FAIL are not right there"; fi
	say "reach: no case failed"
}

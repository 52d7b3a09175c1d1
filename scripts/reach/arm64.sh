# shellcheck shell=bash
# Programs for arm64, which qemu runs in place of the processor: the kernel calls it by binfmt_misc of a user namespace. There is no engine for arm64.
tool qemu-aarch64-static qemu-user-static
arm64_packages=(./cmd/sandbox-init ./engine/initproto ./policy ./pathadapter ./settings ./tokens ./store/sqlite ./skills/archive)

mkdir "$work/arm64"
GOARCH=arm64 go build -trimpath -o "$work/arm64/" ./cmd/core-api ./cmd/secbox ./cmd/sandbox-init
say "running programs for arm64"
cat >"$work/arm64/run.sh" <<'RUN'
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
echo ':arm64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' \
	>/proc/sys/fs/binfmt_misc/register
dir=$1
shift
skip='^Test(WorkerProgramIsUnreadable|LoweredLimitsAreNotInherited|ServeEndOfLease)$' # qemu-user does not start workers
result() { printf '%s\t%s\n' "$1" "$2" >>"$dir/results"; }
result system "$(. /etc/os-release && echo "$ID $VERSION_ID")"
for program in core-api secbox sandbox-init; do
	if "$dir/$program" "$([ "$program" = sandbox-init ] && echo --version || echo version)" >>"$dir/tests.log" 2>&1; then result "$program starts" ok; else result "$program starts" FAIL; fi
done
for package; do
	if GOARCH=arm64 go test -vet=off -count=1 -skip "$skip" "$package" >>"$dir/tests.log" 2>&1; then result "tests of ${package#./}" ok; else result "tests of ${package#./}" FAIL; fi
done
RUN
unshare --user --map-root-user --mount bash "$work/arm64/run.sh" "$work/arm64" "${arm64_packages[@]}" >"$work/arm64/run.log" 2>&1 || true
collect arm64 "$work/arm64"

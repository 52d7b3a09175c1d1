# shellcheck shell=bash
# core-api.exe and docker.exe under Wine, which shows links of Unix as what they lead to.
# shellcheck source=scripts/reach/wine.sh
. scripts/reach/wine.sh

share "$work/windows"
programs=$work/windows/programs
rm "$programs"/{core-api,core-api-as-released,secbox}
GOOS=windows go build -trimpath -o "$programs/" ./cmd/core-api ./cmd/secbox
ln "$programs/core-api.exe" "$programs/core-api-as-released.exe"
cp "$docker_cli" "$programs/"
GOOS=windows go build -trimpath -o "$programs/bash.exe" ./scripts/reach/shell # cmd, by a name that is allowed
go build -trimpath -o "$programs/core-api" ./scripts/reach/onwine
cp "$programs/core-api" "$programs/core-api-as-released"
cp "$programs/core-api" "$programs/secbox"
say "running core-api.exe under Wine"
VARIABLES="TMPDIR=/home/reach/prefix/drive_c/tmp SECBOX_E2E_SEPARATE=1 SECBOX_E2E_WINDOWS=1" in_wine windows bash /reach/inside.sh /reach "$windows_tests" TestSignals/two_hangups

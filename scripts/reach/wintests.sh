# shellcheck shell=bash
# The test programs of all packages, built for Windows, under Wine: one row for each package. The file not-on-wine names what is left out, and why.
# shellcheck source=scripts/reach/wine.sh
. scripts/reach/wine.sh

say "building the tests of all packages for Windows"
share "$work/wintests"
mkdir "$work/wintests/tests"
while read -r package; do
	skip=$(awk -v package="$package" '$1 == package { print $2 }' scripts/reach/not-on-wine | paste -sd '|')
	[ "$skip" != - ] || continue
	program=${package//\//+}.exe
	GOOS=windows go test -c -trimpath -ldflags='-s -w' -o "$work/wintests/tests/$program" "./$package"
	printf '%s\t%s\t%s\n' "$package" "$program" "$skip" >>"$work/wintests/tests/list"
done < <(GOOS=windows go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | sed -n 's|^secbox/||p')
say "running them under Wine"
in_wine wintests bash /reach/source/scripts/reach/programs.sh /reach

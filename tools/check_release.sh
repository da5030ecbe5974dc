#!/bin/sh
# check_release.sh [--draft] - checks that every file that states a version states the version of CMakeLists.txt.
# Without --draft, also checks the requirements of a release: CHANGELOG.md and CITATION.cff must have the same date, and
# the work tree must have no uncommitted changes.
set -eu
cd "$(dirname -- "$0")/.."
draft=
[ "${1:-}" != --draft ] || draft=1
status=0

complain() {
    echo "$1"
    status=1
}

# first FILE EXPRESSION: prints the group of the first line that begins with a match of the basic regular expression.
first() { sed -n "s|$2.*|\1|p" "$1" | head -n 1; }

version=$(first CMakeLists.txt '^project(mha VERSION \([0-9.]*\) ')
while read -r file expression; do
    got=$(first "$file" "$expression")
    [ "$got" = "$version" ] || complain "$file: the version must be $version (got $got)"
done <<'FILES'
CHANGELOG.md                ^## \([0-9.]*\) (
CITATION.cff                ^version: \(.*\)
python/pyproject.toml       ^version = "\(.*\)"
packaging/arch/PKGBUILD     ^pkgver=\(.*\)
packaging/fedora/mha.spec   ^Version: *\([0-9.]*\)
packaging/homebrew/mha.rb   .*/mha-\([0-9.]*\)-source
FILES
got=$(sed -n 's/^#define MHA_VERSION_[A-Z]* \([0-9]*\)$/\1/p' include/mha/mha.h | paste -sd . -)
[ "$got" = "$version" ] || complain "include/mha/mha.h: MHA_VERSION_* must be $version (got $got)"
got=$(first packaging/fedora/mha.spec '^\* .* - \([0-9.]*\)-')
[ "$got" = "$version" ] || complain "packaging/fedora/mha.spec: the first entry of %changelog must have the version $version (got $got)"

if [ -z "$draft" ]; then
    date=$(first CHANGELOG.md "^## $version (\([-0-9]*\))")
    [ -n "$date" ] || complain "CHANGELOG.md: the section of $version must have a date, as in: ## $version (2026-01-31)"
    got=$(first CITATION.cff '^date-released: \(.*\)')
    [ "$got" = "$date" ] || complain "CITATION.cff: date-released must be the date of CHANGELOG.md, $date (got $got)"
    changes=$(git status --porcelain)
    [ -z "$changes" ] || complain "the work tree must have no uncommitted changes (got $changes)"
fi
exit "$status"

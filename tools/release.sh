#!/bin/sh
# release.sh [--draft] [FOLDER] - builds the files that a release publishes in build/dist or FOLDER: the source archive,
# the sdist and the wheel, the Debian packages, an archive of the installed files, the notes (the section of
# CHANGELOG.md), and SHA256SUMS.
#
# The checks of tools/check_release.sh must pass first; --draft skips the checks that only a release needs. The script
# does not tag, sign or upload anything; docs/releasing.md lists these steps. Exit status: 0 built, 1 failed, 3 a
# missing package could not be installed.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd)
# shellcheck source=tools/setup.sh
. "$root/tools/setup.sh"

draft=
if [ "${1:-}" = --draft ]; then
    draft=--draft
    shift
fi
(have git && git -C "$root" rev-parse HEAD) >/dev/null 2>&1 || fail 3 'a release requires git and a git checkout.'
"$root/tools/check_release.sh" $draft >&2 || fail 1 'the source tree is not ready for a release.'
version=$(sed -n 's/^project(mha VERSION \([0-9.]*\) .*/\1/p' "$root/CMakeLists.txt")
out=${1:-$root/build/dist}
mkdir -p "$out"
out=$(CDPATH='' cd -- "$out" && pwd)
[ -z "$(ls -A "$out")" ] || fail 1 "$out must be empty, since SHA256SUMS lists all its files."

# All dates in the files are the date of the commit.
SOURCE_DATE_EPOCH=$(git -C "$root" log -1 --format=%ct)
export SOURCE_DATE_EPOCH
git -C "$root" archive --prefix="mha-$version/" HEAD | gzip -9n >"$out/mha-$version-source.tar.gz"
"$root/tools/wheel.sh" "$out" >/dev/null
"$root/tools/package.sh" "$out" >/dev/null
awk -v heading="## $version (" 'index($0, "## ") == 1 { on = index($0, heading) == 1; next } on' "$root/CHANGELOG.md" >"$out/notes.md"
(cd "$out" && sha256sum -- *.tar.gz *.whl *.deb >SHA256SUMS)
for file in "$out"/*; do echo "$file"; done

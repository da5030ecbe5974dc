#!/bin/sh
# test_release.sh - checks that all files state the same version, and that tools/check_release.sh names each file with another version and
# each missing requirement of a release. The recipes for Fedora, Arch and Homebrew are parsed if their tools are installed.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
command -v git >/dev/null || {
    echo 'skipped: checking releases requires git'
    exit 77
}

"$root/tools/check_release.sh" --draft
bash -n "$root/packaging/arch/PKGBUILD"
if command -v ruby >/dev/null; then
    ruby -c "$root/packaging/homebrew/mha.rb" >/dev/null
else
    echo 'skipped: parsing the recipe for Homebrew requires ruby'
fi
if command -v rpmspec >/dev/null; then
    rpmspec -P "$root/packaging/fedora/mha.spec" >/dev/null
else
    echo 'skipped: parsing the recipe for Fedora requires rpmspec'
fi

# A source tree that contains only the files that state the version.
tree=$work/tree
mkdir -p "$tree/tools"
cp -r "$root/packaging" "$root/CMakeLists.txt" "$root/CHANGELOG.md" "$root/CITATION.cff" "$tree"
mkdir -p "$tree/python" "$tree/include/mha"
cp "$root/python/pyproject.toml" "$tree/python"
cp "$root/include/mha/mha.h" "$tree/include/mha"
cp "$root/tools/check_release.sh" "$tree/tools"
git -C "$tree" init -q
commit() {
    git -C "$tree" add -A
    git -C "$tree" -c user.name=a -c user.email=a@example.org -c commit.gpgsign=false commit -qm "$1"
}

# expect STATUS TEXT...: tools/check_release.sh must exit with STATUS and print every TEXT.
expect() {
    wanted=$1 got=0
    shift
    "$tree/tools/check_release.sh" >"$work/out" 2>&1 || got=$?
    [ "$got" -eq "$wanted" ] || echo "exit status must be $wanted (got $got)" >>"$work/bad"
    for text in "$@"; do
        grep -qF -- "$text" "$work/out" || echo "the output must contain: $text" >>"$work/bad"
    done
    [ ! -e "$work/bad" ] || {
        cat "$work/bad" "$work/out"
        exit 1
    }
}

version=$(sed -n 's/^project(mha VERSION \([0-9.]*\) .*/\1/p' "$tree/CMakeLists.txt")
sed -i 's/^project(mha VERSION [0-9.]*/project(mha VERSION 9.8.7/' "$tree/CMakeLists.txt"
for file in CHANGELOG.md CITATION.cff python/pyproject.toml packaging/arch/PKGBUILD packaging/fedora/mha.spec packaging/homebrew/mha.rb; do
    expect 1 "$file: the version must be 9.8.7 (got $version)"
done
expect 1 "include/mha/mha.h: MHA_VERSION_* must be 9.8.7 (got $version)" \
    "packaging/fedora/mha.spec: the first entry of %changelog must have the version 9.8.7 (got $version)"
expect 1 'CHANGELOG.md: the section of 9.8.7 must have a date' 'the work tree must have no uncommitted changes'

sed -i '0,/^## /s/^## .*/## 9.8.7 (2026-01-31)/' "$tree/CHANGELOG.md"
sed -i 's/^version: .*/version: 9.8.7/' "$tree/CITATION.cff"
sed -i 's/^version = .*/version = "9.8.7"/' "$tree/python/pyproject.toml"
sed -i 's/^pkgver=.*/pkgver=9.8.7/' "$tree/packaging/arch/PKGBUILD"
sed -i 's/^\(Version: *\).*/\19.8.7/' "$tree/packaging/fedora/mha.spec"
sed -i "s/^\(\* .* - \)$version-/\19.8.7-/" "$tree/packaging/fedora/mha.spec"
sed -i 's/^\(#define MHA_VERSION_MAJOR\) .*/\1 9/; s/^\(#define MHA_VERSION_MINOR\) .*/\1 8/; s/^\(#define MHA_VERSION_PATCH\) .*/\1 7/' \
    "$tree/include/mha/mha.h"
sed -i 's/mha-[0-9.]*-source/mha-9.8.7-source/' "$tree/packaging/homebrew/mha.rb"
commit 'a version without the date of its release'
expect 1 'CITATION.cff: date-released must be the date of CHANGELOG.md, 2026-01-31 (got )'
echo 'date-released: 2026-01-31' >>"$tree/CITATION.cff"
commit 'a release'
expect 0

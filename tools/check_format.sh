#!/bin/sh
# check_format.sh - checks that every tracked C file is formatted by clang-format 16, and that no line has more than 120
# characters, comments included (which clang-format does not check). Exits with status 77 (skipped) if clang-format
# 16 is not installed, because other versions format differently.
set -eu
cd "$(dirname -- "$0")/.."
format=
for name in clang-format-16 clang-format; do
    "$name" --version 2>/dev/null | grep -q 'version 16\.' && format=$name && break
done
[ -n "$format" ] || {
    echo 'skipped: clang-format 16 is not installed'
    exit 77
}
command -v git >/dev/null || {
    echo 'skipped: git, which lists the tracked files, is not installed'
    exit 77
}
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
    echo 'skipped: not a git checkout, which is required to list the tracked files'
    exit 77
}
# Counts characters, not bytes: continuation bytes of UTF-8 are removed first.
# shellcheck disable=SC2016 # $0 belongs to awk
long=$(git ls-files -z '*.c' '*.h' '*.inc' | LC_ALL=C xargs -0 -r awk '
    { line = $0; gsub(/[\200-\277]/, "", line) }
    length(line) > 120 { print FILENAME ":" FNR ": a line must have at most 120 columns (got " length(line) ")" }')
[ -z "$long" ] || {
    echo "$long"
    exit 1
}
git ls-files -z '*.c' '*.h' '*.inc' | xargs -0 -r "$format" --dry-run -Werror

#!/bin/sh
# check_format.sh - every tracked C file is formatted as .clang-format says, and no line of it, comments included (which
# clang-format leaves alone), is longer than 120 characters. Skipped (77) without clang-format 16: another version
# formats differently.
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
    echo 'skipped: not a git checkout, so there is no list of tracked files'
    exit 77
}
# Characters, not bytes: bytes that continue a character are not counted.
# shellcheck disable=SC2016 # awk's own
long=$(git ls-files -z '*.c' '*.h' '*.inc' | LC_ALL=C xargs -0 -r awk '
    { line = $0; gsub(/[\200-\277]/, "", line) }
    length(line) > 120 { print FILENAME ":" FNR ": " length(line) " columns, the limit is 120" }')
[ -z "$long" ] || {
    echo "$long"
    exit 1
}
git ls-files -z '*.c' '*.h' '*.inc' | xargs -0 -r "$format" --dry-run -Werror

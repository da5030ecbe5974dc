#!/bin/sh
# test_checks.sh - checks that tools/check_format.sh, if it is skipped, prints the actual reason.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"
for tool in sh dirname grep; do ln -s "$(command -v "$tool")" "$work/bin/$tool"; done
printf '#!/bin/sh\necho version 16.0\n' >"$work/bin/clang-format-16"

# expect TEXT: tools/check_format.sh must be skipped with the reason TEXT.
expect() {
    got=0
    PATH=$work/bin "$root/tools/check_format.sh" >"$work/out" 2>&1 || got=$?
    if [ "$got" -ne 77 ] || ! grep -qF "skipped: $1" "$work/out"; then
        echo "must exit with status 77 (got $got) and print: skipped: $1"
        cat "$work/out"
        exit 1
    fi
}

expect 'clang-format 16 is not installed'
chmod +x "$work/bin/clang-format-16"
expect 'git, which lists the tracked files, is not installed'
printf '#!/bin/sh\nexit 128\n' >"$work/bin/git"
chmod +x "$work/bin/git"
expect 'not a git checkout'

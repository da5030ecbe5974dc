#!/bin/sh
# test_commands.sh - checks that docs/commands.md lists the commands of `mha --help`, in the same order.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$MHA" --help | awk '/^Commands:/ { on = 1; next } /^$/ { on = 0 } on { print $1 }' >"$work/help"
# shellcheck disable=SC2016 # backquotes of Markdown
sed -n 's/^| `mha \([a-z]*\)` .*/\1/p' "$root/docs/commands.md" >"$work/page"
[ -s "$work/help" ] && diff -u "$work/help" "$work/page"

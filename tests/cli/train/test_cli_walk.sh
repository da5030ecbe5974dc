#!/bin/sh
# test_cli_walk.sh - runs the example of docs/training.md unchanged; its model must write readable sentences.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
ln -s "$here/share" share
mha() { "$MHA" "$@"; }

# Extracts the commands of the section, with continued lines joined and comments removed.
sed -n '/^## Example/,/^## The folder/p' "$here/docs/training.md" | awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' |
    sed -e ':a' -e '/\\$/N' -e 's/\\\n *//' -e 'ta' -e 's/  *# .*//' >lines
[ "$(wc -l <lines)" = 7 ] || fail "docs/training.md has $(wc -l <lines) commands, not 7"
count=0
while read -r line; do
    count=$((count + 1))
    eval "$line" >"out.$count" 2>"err.$count" </dev/null || fail "exit status $?: $line: $(cat "err.$count")"
done <lines

# The outputs must be a story and a note.
readable out.3
readable out.7
[ -s small/training.html ] || fail 'training.html must exist'
finish

#!/bin/sh
# test_cli_walk.sh - runs the commands of the example in docs/training.md; the trained model must generate readable sentences.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
ln -s "$here/share" share
mha() { "$MHA" "$@"; }

# Extracts the commands of the section "Example", joins continued lines and removes comments.
sed -n '/^## Example/,/^## The folder/p' "$here/docs/training.md" | awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' |
    sed -e ':a' -e '/\\$/N' -e 's/\\\n *//' -e 'ta' -e 's/  *# .*//' >lines
[ "$(wc -l <lines)" = 7 ] || fail "the example in docs/training.md must have 7 commands (got $(wc -l <lines))"
count=0
while read -r line; do
    count=$((count + 1))
    eval "$line" >"out.$count" 2>"err.$count" </dev/null || fail "the command must succeed (exit status $?): $line: $(cat "err.$count")"
done <lines

# The outputs of commands 3 and 7, a story and a note, must be readable.
readable out.3
readable out.7
[ -s small/training.html ] || fail 'training.html must exist'
finish

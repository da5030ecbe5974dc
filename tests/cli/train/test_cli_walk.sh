#!/bin/sh
# test_cli_walk.sh - the example of docs/training.md, line by line as it stands there: a model that writes readable sentences.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
ln -s "$here/share" share
mha() { "$MHA" "$@"; }

# The commands of the section, whose lines may be continued, without the comments.
sed -n '/^## Example/,/^## The folder/p' "$here/docs/training.md" | awk '/^```sh$/ { on = 1; next } /^```$/ { on = 0 } on' |
    sed -e ':a' -e '/\\$/N' -e 's/\\\n *//' -e 'ta' -e 's/  *# .*//' >lines
[ "$(wc -l <lines)" = 7 ] || fail "docs/training.md has $(wc -l <lines) commands, not 7"
count=0
while read -r line; do
    count=$((count + 1))
    eval "$line" >"out.$count" 2>"err.$count" </dev/null || fail "exit status $?: $line: $(cat "err.$count")"
done <lines

# A story, a note.
readable out.3
readable out.7
[ -s small/training.html ] || fail 'no curves'
finish

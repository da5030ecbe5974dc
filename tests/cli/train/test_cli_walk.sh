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

# Sentences of known words only, the last of them ended: a story, a note.
words=$(tr -cs 'A-Za-z' '\n' <share/mha/texts/stories.txt | sort -u)
readable() {
    grep -q '[a-z]\.$' "$1" || fail "no sentence at the end: $(cat "$1")"
    unknown=$(tr -cs 'A-Za-z' '\n' <"$1" | sort -u | while read -r word; do
        [ -z "$word" ] || echo "$words" | grep -qx "$word" || echo "$word"
    done)
    [ "$(echo "$unknown" | wc -w)" -le 1 ] || fail "words that no story has: $unknown, in: $(cat "$1")"
    [ "$(wc -w <"$1")" -ge 5 ] || fail "hardly a word: $(cat "$1")"
}
readable out.3
readable out.7
[ -s small/training.html ] || fail 'no curves'
finish

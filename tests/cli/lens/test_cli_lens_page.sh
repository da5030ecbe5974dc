#!/bin/sh
# test_cli_lens_page.sh - runs every command of docs/lens.md, and compares the output with the page.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# Writes the command and the output of example N to the files command.N and shown.N.
awk '/^```sh$/ { n++; kind = "command"; next } /^```text$/ { kind = "shown"; next } /^```$/ { kind = ""; next }
     kind { print >(kind "." n) }' "$here/docs/lens.md"
mha() { COLUMNS=80 "$MHA" "$@"; }
count=0
for command in command.*; do
    [ -e "shown.${command#*.}" ] || fail "an example of docs/lens.md has no output: $(cat "$command")"
    eval "$(cat "$command")" >out 2>err || fail "must exit with status 0: $(cat "$command"): $(cat err)"
    # The rounding error of the sum depends on the instruction set, so the page does not show this line.
    grep -v '^The parts add up' out | sed 's/ *$//' | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' >printed
    diff "shown.${command#*.}" printed || fail "docs/lens.md must show the output of: $(cat "$command")"
    count=$((count + 1))
done
[ "$count" -ge 4 ] || fail "docs/lens.md must have at least 4 examples (got $count)"
finish

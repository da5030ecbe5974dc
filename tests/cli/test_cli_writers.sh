#!/bin/sh
# test_cli_writers.sh - if several processes write to the same folder simultaneously with --force, all must succeed, the
# folder must be the complete result of one of them, and no temporary files may remain.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

counting 20 >text
write() { "$MHA" tokenizer train -q -t 1 --vocab-size "$1" -o shared --force -f text >/dev/null 2>"err.$1" || echo "$1: $(cat "err.$1")" >>failed; }
for size in 260 270 280 290; do
    expect 0 "$MHA" tokenizer train -q -t 1 --vocab-size $size -o "alone.$size" -f text
done

# Every second round starts without the folder, so that one process creates it while other processes run.
round=0
: >failed
while [ $round -lt 40 ]; do
    round=$((round + 1))
    [ $((round % 2)) = 0 ] || rm -rf shared
    for size in 260 270 280 290; do write $size & done
    wait
    whole=0
    for size in 260 270 280 290; do diff -r shared "alone.$size" >/dev/null 2>&1 && whole=1; done
    [ $whole = 1 ] || fail "round $round: the folder must equal one of the four results"
done
[ ! -s failed ] || fail "all 160 commands must succeed ($(wc -l <failed) failed: $(sort -u failed | head -n 3))"
left=$(find . -name '.shared.*')
[ -z "$left" ] || fail "no temporary file may remain (got $left)"
finish

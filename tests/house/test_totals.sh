#!/bin/sh
# test_totals.sh - checks that the last line of ./check counts each test printed by ctest once, as passed, failed or
# skipped.
set -eu
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
sed -n '/^totals() {$/,/^}$/p' "$root/check" >"$work/totals.sh"
# shellcheck source=/dev/null
. "$work/totals.sh"

# expect STATUS LINE: `totals` must return STATUS and print LINE for the log on stdin.
expect() {
    cat >"$work/log"
    got=0
    line=$(totals "$work/log") || got=$?
    if [ "$got" -ne "$1" ] || [ "$line" != "$2" ]; then
        echo "must return $1 and print \"$2\" (got $got and \"$line\")"
        exit 1
    fi
}

expect 0 '2 passed, 0 failed, 1 skipped' <<'LOG'
Internal ctest changing into directory: /tree/build/check
      Start  1: test_a
 1/3 Test  #1: test_a ...........................   Passed    0.01 sec
 2/3 Test #12: fuzz.fuzz_b ......................***Skipped   0.01 sec
skipped: clang is not installed
 3/3 Test  #3: test_c ...........................   Passed   10.01 sec
100% tests passed, 0 tests failed out of 3
LOG
expect 1 '1 passed, 4 failed, 0 skipped' <<'LOG'
  1/5 Test  #1: test_a ...........................   Passed    0.01 sec
  2/5 Test  #2: test_b ...........................***Failed    0.01 sec
1 tests Passed, and so on
  3/5 Test  #3: test_c ...........................***Exception: SegFault  0.01 sec
  4/5 Test  #4: test_d ...........................***Timeout   0.01 sec
  5/5 Test  #5: test_e ...........................***Not Run   0.00 sec
LOG
expect 1 '0 passed, 0 failed, 0 skipped' <<'LOG'
No tests were found!!!
LOG

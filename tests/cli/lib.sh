# lib.sh - what the tests of the program share; sourced by test_*.sh, which get the program in $MHA and json_at in $JSON_AT.
#
# Each test runs in a folder of its own, without the user's models and colors. `expect CODE COMMAND...` leaves what the command
# printed in the files out and err. A failed check is said at once and counted; `finish` ends the test.
# shellcheck shell=sh
here=$PWD # tests are started in the root of the source tree
work=$(mktemp -d "${TMPDIR:-/tmp}/mha-cli.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
models=${XDG_CACHE_HOME:-$HOME/.cache}/mha
export XDG_CACHE_HOME="$work/cache"
unset NO_COLOR COLUMNS MHA_ISA MHA_THREADS
# shellcheck disable=SC2034 # read by the tests
minilm=${MHA_MINILM:-$models/minilm} data=$here/tests/golden/data
# An encoder with random weights, for what any model will do for.
# shellcheck disable=SC2034
tiny=$data/models/bert-tiny
failures=0

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# expect CODE COMMAND...
expect() {
    want=$1
    shift
    status=0
    "$@" >out 2>err </dev/null || status=$?
    [ "$status" = "$want" ] && return
    fail "exit status $status, not $want: $*"
    cat err
}

# A command that must fail: says something on stderr, nothing on stdout.
refused() {
    expect "$@"
    [ ! -s out ] || fail "stdout of a failure is not empty: $*"
    [ -s err ] || fail "a failure without a word: $*"
}

# with_little COMMAND...: with 500 MB of addresses, where the program `lives_with_little`: sanitizers want more.
# shellcheck disable=SC3045 # dash has it
lives_with_little() { (ulimit -v 500000 && "$MHA" --version) >/dev/null 2>&1; }
# shellcheck disable=SC3045
with_little() { (! lives_with_little || ulimit -v 500000 && "$@"); }

# has FILE TEXT, has_not FILE TEXT
has() { grep -qF -e "$2" "$1" || fail "no '$2' in $1: $(head -c 300 "$1")"; }
has_not() { if grep -qF -e "$2" "$1"; then fail "'$2' in $1"; fi; }

# at PATH VALUE: the JSON in `out` has that value there.
at() {
    got=$("$JSON_AT" "$1" <out) || fail "no $1 in the JSON"
    [ "$got" = "$2" ] || fail "$1 is $got, not $2"
}

same() { cmp -s "$1" "$2" || fail "$1 and $2 differ${3:+: $3}"; }

# No control character but newline and tab in FILE.
harmless() { [ "$(tr -d '\n\t -~\200-\377' <"$1" | wc -c)" = 0 ] || fail "raw control characters in $1"; }

# counting N: a text of N lines, for trainings that shall find something to learn.
counting() {
    line=0
    while [ $line -lt "$1" ]; do
        echo "the number $line comes before the number $((line + 1)), and after it the number $((line + 2)) waits"
        line=$((line + 1))
    done
}

# readable FILE: sentences of words that the shipped stories have, the last of them ended.
readable() {
    grep -q '[a-z]\.$' "$1" || fail "no sentence at the end: $(cat "$1")"
    tr -cs 'A-Za-z' '\n' <"$here/share/mha/texts/stories.txt" | sort -u >words.known
    unknown=$(tr -cs 'A-Za-z' '\n' <"$1" | sort -u | comm -23 - words.known)
    [ "$(echo "$unknown" | wc -w)" -le 1 ] || fail "words that no story has: $unknown, in: $(cat "$1")"
    [ "$(wc -w <"$1")" -ge 5 ] || fail "hardly a word: $(cat "$1")"
}

skip() {
    echo "skipped: $*"
    exit 77
}

finish() {
    [ "$failures" = 0 ] || exit 1
}

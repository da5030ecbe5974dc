# lib.sh - shell functions for the tests of the program, sourced by test_*.sh. $MHA is the program, $JSON_AT is json_at.
# Each test runs in a new folder, without the models and environment settings of the user. `expect CODE COMMAND...` writes
# the output of the command to the files out and err. Failed checks are printed and counted; `finish` ends the test.
# shellcheck shell=sh
here=$PWD # tests start in the root of the source tree
work=$(mktemp -d "${TMPDIR:-/tmp}/mha-cli.XXXXXX")
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
models=${XDG_CACHE_HOME:-$HOME/.cache}/mha
export XDG_CACHE_HOME="$work/cache"
unset NO_COLOR COLUMNS MHA_ISA MHA_THREADS
# shellcheck disable=SC2034 # read by the tests
minilm=${MHA_MINILM:-$models/minilm} data=$here/tests/golden/data
# An encoder with random weights, for tests that accept any model.
# shellcheck disable=SC2034
tiny=$data/models/bert-tiny
failures=0

# wav NAME BYTES FILE: writes a WAV file (16 kHz, 16 bits, mono) whose samples are the first bytes of a file.
wav() {
    printf 'RIFF\044\000\000\000WAVEfmt \020\000\000\000\001\000\001\000\200\076\000\000\000\175\000\000\002\000\020\000data\377\377\377\377' >"$1"
    head -c "$2" "$3" >>"$1"
}

fail() {
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# run_once COMMAND...: runs the command, and sets $status to its exit status.
run_once() {
    status=0
    "$@" >out 2>err </dev/null || status=$?
}

# attempt COMMAND...: the same; tests/mpi/lib.sh replaces it with a function that may run the command again.
attempt() { run_once "$@"; }

# expect CODE COMMAND...: runs the command, whose exit status must be CODE.
expect() {
    want=$1
    shift
    attempt "$@"
    [ "$status" = "$want" ] && return
    fail "exit status must be $want (got $status): $*"
    cat err
}

# refused CODE COMMAND...: the command must fail with a message on stderr and nothing on stdout.
refused() {
    expect "$@"
    [ ! -s out ] || fail "a failed command must not write to stdout: $*"
    [ -s err ] || fail "a failed command must print a message: $*"
}

# lives_with_little: succeeds if the program can run with 500 MB of address space; sanitizers require more.
# with_little COMMAND...: runs the command with this limit, or fails if the program cannot run with it.
# shellcheck disable=SC3045 # dash supports ulimit -v
lives_with_little() { (ulimit -v 500000 && "$MHA" --version) >/dev/null 2>&1; }
# shellcheck disable=SC3045
with_little() { (! lives_with_little || ulimit -v 500000 && "$@"); }

# has FILE TEXT, has_not FILE TEXT: the file must (or must not) contain the text.
has() { grep -qF -e "$2" "$1" || fail "$1 must contain '$2' (got: $(head -c 300 "$1"))"; }
has_not() { if grep -qF -e "$2" "$1"; then fail "$1 must not contain '$2'"; fi; }

# at PATH VALUE: the JSON in `out` must have this value at the path.
at() {
    got=$("$JSON_AT" "$1" <out) || fail "the JSON must have $1"
    [ "$got" = "$2" ] || fail "$1 must be $2 (got $got)"
}

same() { cmp -s "$1" "$2" || fail "$1 and $2 must be identical${3:+: $3}"; }

# harmless FILE: the file must contain no control characters except newline and tab.
harmless() { [ "$(tr -d '\n\t -~\200-\377' <"$1" | wc -c)" = 0 ] || fail "$1 must not contain raw control characters"; }

# counting N: prints N lines with a pattern that models can learn.
counting() {
    line=0
    while [ $line -lt "$1" ]; do
        echo "the number $line comes before the number $((line + 1)), and after it the number $((line + 2)) waits"
        line=$((line + 1))
    done
}

# readable FILE: the text must consist of words from the shipped stories and end with a complete sentence.
readable() {
    grep -q '[a-z]\.$' "$1" || fail "the text must end with a sentence (got $(cat "$1"))"
    tr -cs 'A-Za-z' '\n' <"$here/share/mha/texts/stories.txt" | sort -u >words.known
    unknown=$(tr -cs 'A-Za-z' '\n' <"$1" | sort -u | comm -23 - words.known)
    [ "$(echo "$unknown" | wc -w)" -le 1 ] || fail "at most one word may be absent from the stories (got $unknown), in: $(cat "$1")"
    [ "$(wc -w <"$1")" -ge 5 ] || fail "the text must have at least 5 words: $(cat "$1")"
}

skip() {
    echo "skipped: $*"
    exit 77
}

# requires_golden: skips the test if the program is built without `mha verify --golden`.
requires_golden() { [ "${MHA_CONFORMANCE:-1}" != 0 ] || skip "the program is built with MHA_CONFORMANCE=OFF"; }

finish() {
    [ "$failures" = 0 ] || exit 1
}

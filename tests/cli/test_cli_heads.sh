#!/bin/sh
# test_cli_heads.sh - `mha heads` and `mha demo`: JSON, CSV, grid, colour, and the real model's labels where it is there.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
heads() { "$MHA" heads -m builtin "$@"; }

expect 0 heads --json 'you keep the count' 'and then again, they said'
at model builtin
at texts 2
at layers 3
at heads 4
at metrics.entropy.# 3
at metrics.entropy.2.# 4
at labels.0.# 4
cp out two
for threads in 1 2 3; do
    expect 0 heads -t $threads --json 'you keep the count' 'and then again, they said'
    same out two "$threads threads"
done
expect 0 heads -s 7 --json 'you keep the count' 'and then again, they said'
cmp -s out two && fail 'the seed of the probe changes nothing'
expect 0 heads --no-probe --json 'you keep the count'
at metrics.dup_probe.0.0 null

expect 0 heads --maps --json 'you keep the count'
n=$("$JSON_AT" tokens.# <out)
at attention.# 3
at attention.0.# 4
at attention.0.0.# "$n"
at attention.0.0.0.# "$n"
refused 2 heads --maps 'you keep the count'
refused 2 heads --maps --json one two
refused 2 heads --json --csv one

expect 0 heads --csv 'you keep the count'
[ "$(wc -l <out)" = 13 ] || fail 'the CSV has not a line per head and one of names'
has out 'layer,head,label,entropy'

# The grid fits the width that it is given, and is coloured on a terminal only.
for width in 40 60 80 120; do
    expect 0 env COLUMNS=$width "$MHA" heads -m builtin 'you keep the count'
    most=$(awk '{ if (length > most) most = length } END { print most }' out)
    [ "$most" -le $width ] || fail "a line of $most columns in a terminal of $width"
done
has_not out "$(printf '\033')"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    on_terminal() { script -qec "$1" /dev/null </dev/null >out; }
    on_terminal "TERM=xterm '$MHA' heads -m builtin keep" || fail 'on a terminal'
    has out "$(printf '\033[48;5;')"
    for plain in NO_COLOR=1 TERM=dumb; do
        on_terminal "TERM=xterm $plain '$MHA' heads -m builtin keep --no-progress" || fail "on a terminal, $plain"
        has_not out "$(printf '\033[48')"
    done
else
    echo 'skipped: colour on a terminal: the program script is not here, or can make no terminal'
fi

# The demo without MiniLM says what it is.
expect 0 "$MHA" demo
has out 'weights are random'
has out 'mha heads -m builtin'

if [ -d "$minilm" ]; then
    mkdir -p "$XDG_CACHE_HOME/mha"
    ln -s "$minilm" "$XDG_CACHE_HOME/mha/minilm"
    expect 0 "$MHA" demo
    has out '72 heads'
    has out 'Head 0.2'
    has out 'looks back one token'
    has_not out 'nobody has trained'
    expect 0 "$MHA" heads --json 'The ferry leaves at noon.' # minilm is the default model
    at model minilm
    at labels.0.2 prev
else
    echo "skipped: demo and labels of MiniLM ($minilm is not there: ./run fetch minilm)"
fi
finish

#!/bin/sh
# test_cli_shorter.sh - if a model file is truncated while the program runs, the program must print a message and exit
# with 3; with --no-map, truncation must have no effect.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

mkdir model
cp "$data"/models/gemma2-tiny/*.json model
restore() { cp "$data/models/gemma2-tiny/model.safetensors" model; }
set -- generate -q -m model --no-eos -n 1500 -p 'Every morn'
restore
"$MHA" "$@" >whole || fail 'generation from the complete file must succeed'

# Mapped file: stdout is a full pipe, so the program waits after its first token while the file is truncated. For its
# second token, the program must read a row of the embedding table that is no longer in the file.
[ -r /proc/self/maps ] || skip '/proc is not available to check the mapping'
mkfifo pipe
exec 3<>pipe
dd if=/dev/zero of=pipe bs=4096 oflag=nonblock 2>/dev/null
"$MHA" "$@" >pipe 2>err 3>&- &
program=$!
until grep -q model.safetensors "/proc/$program/maps" 2>/dev/null; do
    kill -0 $program 2>/dev/null || break
    sleep 0.02
done
: >model/model.safetensors
exec 4<pipe 3>&-
cat <&4 >/dev/null
status=0
wait $program || status=$?
[ "$status" = 3 ] || fail "truncated mapped file: exit status must be 3 (got $status)"
has err 'mha: model: a mapped file shrank while being read'
has err --no-map
[ "$(wc -l <err)" = 1 ] || fail "stderr must have one line (got $(cat err))"

# Copied file: after its first byte of output, the program must not read the file.
restore
{
    "$MHA" "$@" --no-map 2>err
    echo $? >status
} | {
    dd bs=1 count=1 2>/dev/null
    : >model/model.safetensors
    cat
} >text
[ "$(cat status)" = 0 ] || fail "--no-map: exit status must be 0 (got $(cat status): $(cat err))"
same whole text --no-map
finish

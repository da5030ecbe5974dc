#!/bin/sh
# run_fuzz.sh PROGRAM NAME CORPUS... - runs libFuzzer on the target NAME for MHA_FUZZ_SECONDS (default: 5), starting from
# the committed corpus. New inputs are discarded, except for failing inputs, which are written next to PROGRAM and printed.
# MHA_FUZZ_SEED (default: 1) is the seed; 0 selects a random seed. Two runs of one build with the same seed try the same inputs under `setarch -R`.
set -eu
program=$1
name=$2
shift 2
here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
[ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && export TMPDIR=/dev/shm # in memory, because every input is written to a file
found=$(mktemp -d)
trap 'rm -rf "$found"' EXIT
dictionary=
[ ! -e "$here/dictionaries/$name.dict" ] || dictionary=-dict=$here/dictionaries/$name.dict
# shellcheck disable=SC2086 # one word, or none
"$program" $dictionary -seed="${MHA_FUZZ_SEED:-1}" -max_total_time="${MHA_FUZZ_SECONDS:-5}" -timeout=20 -rss_limit_mb=1024 -verbosity=0 \
    -print_final_stats=1 -artifact_prefix="$program-" "$found" "$@"

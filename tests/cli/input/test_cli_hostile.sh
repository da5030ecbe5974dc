#!/bin/sh
# test_cli_hostile.sh - runs commands on a corpus of hostile files and folders. Each command must either read the input
# correctly or reject it with a message and exit status 3, in bounded time and memory, with escaped output, and without
# leaving temporary files.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# Valid and invalid safetensors files: each error message must name the file.
for file in "$data"/safetensors/*.safetensors; do
    name=${file##*/}
    case $name in
    accept-*) expect 0 timeout 30 "$MHA" info "$file" ;;
    reject-*)
        refused 3 timeout 30 "$MHA" info "$file"
        has err "$name: "
        ;;
    *)
        timeout 30 "$MHA" info "$file" >out 2>err
        status=$?
        [ $status = 0 ] || [ $status = 3 ] || fail "$name: exit status must be 0 or 3 (got $status)"
        ;;
    esac
    harmless out
    harmless err
done

command -v python3 >/dev/null || skip 'python3 is not installed'
sanitizer=
if grep -qa __asan_init "$MHA"; then sanitizer=--sanitizer; fi
corpus() {
    python3 "$here/tests/cli/input/run_hostile.py" "$data/hostile" --refuse-codes 3 $sanitizer "$@" || fail 'all cases of run_hostile.py must pass'
}
corpus --safetensors "$MHA info {file}" --npy "$MHA info {file}" --fsobj "$MHA info -m {model}" --config "$MHA info -m {model}" \
    --sharded "$MHA info -m {model}" --tokenizer "$MHA tokenize -m {model} -f {text}" --text "$MHA tokenize -m {model} -f {file}" \
    --tokenize "$MHA tokenize -m {model} -f {file}"
for command in 'score' 'generate -n 4 --stop never' 'logits'; do
    run="$MHA $command -m {model} -f"
    corpus --config "$run {text}" --sharded "$run {text}" --tokenizer "$run {text}" --fsobj "$run {text}"
done
for command in 'score' 'generate -n 4 --samples 2 --temperature 1' 'embed'; do
    corpus --text "$MHA $command -m {model} -f {file}"
done
finish

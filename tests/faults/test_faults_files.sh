#!/bin/sh
# test_faults_files.sh - tests commands while one file call fails, is interrupted by a signal, transfers fewer bytes than
# requested, or kills the process. The folder must then contain either the old or the new file, and a failure must print
# a message. For files read through streams (texts, scores, JSON of options), only opening and closing are tested.
set -u
# shellcheck source=tests/faults/setup.sh
. "$PWD/tests/faults/setup.sh"
most=${MHA_FAULTS_MAX:-10}
ENOSPC=28 EIO=5 EINTR=4

# strike COMMAND ARGUMENT...: runs the command with a fault in each file call.
check=
strike() {
    command=$1
    shift
    for kind in "files $EIO $ENOSPC" "slow $EINTR" 'bytes short' 'change kill half'; do
        # shellcheck disable=SC2086 # words, or none
        faulty -m "$most" ${check:+-c "$check"} "$SHIM" start $kind -- "$MHA" "$command" -t 1 "$@"
    done
}

strike prune -q -m "$gpt2" --heads 0.1 -o pruned --force
strike tokenizer train -q -f texts --vocab-size 280 -o tok --force
strike report -q -m "$tiny" -o page.html --force 'you keep the count'
strike embed -q -m "$tiny" -f texts -o vectors.npy --force

# If a signal interrupts the opening of a JSON or scores file, the program must retry the call.
expect 0 "$MHA" heads -q -m "$gpt2" --by ov_norm --csv --ids 1,2,3
mv out start/scores.csv
echo '[[0, 1, 2], [0, 1, 2, 3]]' >start/keep.json
for chosen in '--scores scores.csv --count 1' '--keep keep.json'; do
    # shellcheck disable=SC2086 # splits the variable into words
    faulty -m "$most" "$SHIM" start slow $EINTR -- "$MHA" prune -t 1 -q -m "$gpt2" $chosen -o pruned --force
done

# A resumed training run saves a checkpoint after each step. A complete checkpoint must exist at any time, and a run
# resumed from it must have the same result.
check="$MHA info -m run >/dev/null"
strike train -q --json --resume --steps 3 --save-every 1 -o run
strike train -q --json --resume --steps 3 --save-every 1 --keep 2 -o run
finish

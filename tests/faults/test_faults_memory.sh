#!/bin/sh
# test_faults_memory.sh - tests commands while one allocation fails, or one and all later allocations. The command must
# either give the expected result, or print a message about memory, exit with 1 and leave the files unchanged.
set -u
# shellcheck source=tests/faults/setup.sh
. "$PWD/tests/faults/setup.sh"

# starve [-s] COMMAND ARGUMENT...: tests the command with failing allocations; -s: the command streams its output. Uses
# one thread, so that the order of allocations is the same in each run.
most=${MHA_FAULTS_MAX:-25} check=
starve() {
    option=
    if [ "$1" = -s ]; then
        option=-s
        shift
    fi
    command=$1
    shift
    faulty -m "$most" $option ${check:+-c "$check"} "$SHIM" start memory once from -- "$MHA" "$command" -t 1 "$@"
}

starve embed -m "$tiny" --json 'you keep the count'
starve embed -m "$tiny" -f texts -o vectors.npy --force
starve heads -m "$tiny" --json 'you keep the count'
starve heads -m run --by gradmag -f texts --csv
starve prune -m "$gpt2" --heads 0.1 -o pruned --force
starve prune -m "$tiny" --ratio 0.25 --by confidence -f texts -o pruned --force --json
starve -s generate -m run 'you keep' -n 2 --no-eos
starve generate -m run -n 2 --json 'you' 'keep'
starve report -m "$tiny" -o page.html --force 'you keep the count'
starve tokenizer train -f texts --vocab-size 280 -o tok --force
starve regroup -m "$tiny" --kv-heads 2 -f texts -o grouped --force

# A training run writes its log continuously, and its first checkpoint before the first step, so a failed run changes the
# folder. A complete checkpoint must exist at any time.
check="$MHA info -m run >/dev/null"
starve train -q --json --shape gpt2:1x2x8 --tokenizer tok -f texts --length 8 --batch 2 --steps 2 --eval-share 0.2 -o run --force
starve train -q --json --resume --steps 2 -o run
finish

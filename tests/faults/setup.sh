# setup.sh - setup of the fault tests, sourced by test_*.sh in tests/faults. $SHIM is the shim, $FAULTS the driver.
# Commands run in copies of the folder `start`, which already contains an output of each command; a failed run must keep
# this output. The driver tests MAX calls of each kind, or all calls with MHA_FAULTS=all.
# shellcheck shell=sh
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
gpt2=$data/families/gpt2

LD_PRELOAD="$SHIM" "$MHA" --version >out 2>&1 || skip "libraries cannot be preloaded: $(head -n 1 out)"
mkdir start
cd start || exit 1
awk 'BEGIN { split("you keep the count of all that they said and then again once more", w, " ")
             for (i = 0; i < 8; i++) { for (j = 0; j < 6 + i % 5; j++) printf "%s ", w[(i * 5 + j * 3) % 14 + 1]; print "" } }' >texts
expect 0 "$MHA" tokenizer train -q --vocab-size 270 -o tok -f texts
expect 0 "$MHA" prune -q -m "$gpt2" --heads 0.0 -o pruned
expect 0 "$MHA" regroup -q -m "$tiny" --kv-heads 1 --method mean -f texts -o grouped
set -- -t 1 -q --shape gpt2:1x2x8 --tokenizer tok -f texts --length 8 --batch 2 --eval-share 0.2 --eval-every 2
expect 0 "$MHA" train "$@" --steps 1 -o run
echo old >page.html
echo old >vectors.npy
rm -f out err
cd .. || exit 1

# faulty ARGUMENT...: runs the driver with these arguments and counts a failure.
faulty() {
    echo "== $*"
    "$FAULTS" "$@" || failures=$((failures + 1))
}

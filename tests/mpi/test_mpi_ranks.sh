# test_mpi_ranks.sh - mha-mpi --tp divides the weights of a model: score, logits, embed and generate print the same bytes for 1 to
# 4 ranks, also if long texts are divided as well. Other commands, and ranks with different models, are rejected. A signal ends all ranks.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"

cp -r "$here/share/mha/builtin" long
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 8192/' "$here/share/mha/builtin/config.json" >long/config.json
tr '\n' ' ' <"$here/share/mha/texts/stories.txt" | head -c 6000 >text.txt

# divided COUNTS COMMAND...: with each of these rank counts, the output must equal the output with 1 rank.
divided() {
    counts=$1
    shift
    "$ranks" 1 "$MHA_MPI" --tp 1 "$@" >one 2>err </dev/null || fail "must succeed: $* ($(cat err))"
    for count in $counts; do
        expect 0 "$ranks" "$count" "$MHA_MPI" --tp "$count" "$@"
        same one out "$count ranks of $*"
    done
}
divided "2 3 4" generate -p "One day Clara finds" -n 3 --json
divided 3 generate -p "One day" -n 2 --temperature 1 -s 4 --samples 2 --dtype bf16
divided 2 score "One day Clara finds a kite. The kite is red." --tokens
divided 3 embed "a cat" "a dog and a kite" --json
divided "2 4" logits -m "$data/models/gpt2-tiny" --ids 3,4,5 --json
divided 3 logits -m "$data/models/gemma2-tiny" --ids 3,4,5 --dtype int8 --json

# The printed loss, which has 4 digits, must equal the loss of the whole model.
expect 0 "$ranks" 2 "$MHA_MPI" --tp 2 score "One day Clara finds a kite."
"$MHA" score "One day Clara finds a kite." >one
same one out "the loss of the whole model"

# Tests two ranks per model with texts divided into two parts.
for command in score "generate -n 2 --json" embed; do
    # shellcheck disable=SC2086
    divided "" $command -m long -f text.txt --documents whole
    # shellcheck disable=SC2086
    expect 0 "$ranks" 4 "$MHA_MPI" --tp 2 $command -m long -f text.txt --documents whole
    same one out "2 x 2 ranks of $command"
done

# Unsupported commands and options must be rejected.
refused 2 "$ranks" 2 "$MHA_MPI" --tp 2 heads -f text.txt
has err "with --tp, the command must be score, embed, logits or generate"
refused 2 "$ranks" 2 "$MHA_MPI" --tp 2 info
has err "(got info)"
refused 2 "$ranks" 2 "$MHA_MPI" --tp 2 logits --hidden "a cat" -o x.safetensors
has err "mha-mpi logits: rank 0 ($host): --tp must not be combined with --hidden"
refused 2 "$ranks" 2 "$MHA_MPI" --tp 2 generate --gates 0.7=0 -p "One day"
has err "mha-mpi generate: rank 0 ($host): --tp must not be combined with --gates"
refused 2 "$ranks" 2 "$MHA_MPI" --tp 2 score -f -
has err "mha-mpi score: rank 0 ($host): --tp must not be combined with texts from standard input (give arguments or -f FILE)"
refused 2 "$ranks" 2 "$MHA_MPI" --tp 9 score -f text.txt
has err '--tp must be a whole number from 1 to 8 (got "9")'
"$ranks" 3 "$MHA_MPI" --tp 2 score -f text.txt >out 2>err && fail "3 ranks with --tp 2 must be rejected"
has err "tp * cp must be a divisor of 3, the rank count"
refused 3 "$ranks" 2 "$MHA_MPI" --tp 2 logits -m "$data/families2/olmo2" --ids 1,2
expect 0 "$MHA_MPI" launch -np 4 --tp 2 --print score -f text.txt
has out "--tp 2 score -f text.txt"

# A different or a missing model on one rank must be rejected.
mkdir folder.0 folder.1
cp -r long folder.0/model
cp -r long folder.1/model
printf '\001' | dd of=folder.1/model/model.safetensors bs=1 seek=$(($(wc -c <long/model.safetensors) - 8)) conv=notrunc 2>dd.log
refused 3 "$ranks" 2 "$each" --tp 2 score -m model -f ../text.txt
has err "rank 1 ($host): config.json and tensors must be the same as on rank 0"
rm folder.1/model/model.safetensors
refused 3 "$ranks" 2 "$each" --tp 2 score -m model -f ../text.txt
has err "rank 1 ($host): "
rm -r folder.1/model
refused 3 "$ranks" 2 "$each" --tp 2 generate -m model -p "One day" -n 3
has err "rank 1 ($host): "

# A signal to one rank during a pass must end all ranks with the status of the signal.
rm -rf folder.* pid.*
"$ranks" 2 "$each" --tp 2 generate -m long -p "One day" --no-eos -n 8000 >out 2>err </dev/null &
job=$!
await $job test -s out
kill -TERM "$(cat pid.1)"
status=0
wait $job || status=$?
[ $status -eq 143 ] || fail "a rank that received SIGTERM: exit status must be 143 (got $status)"
has err "rank 1 ($host): stopped by signal 15"
await_gone "a rank that received SIGTERM" 60
finish

# test_mpi_texts.sh - score, embed, logits and generate of mha-mpi must print the same bytes as those of mha for any number
# of ranks, both for texts that are distributed over ranks and for short texts. If the texts or models differ, an error must
# name the rank and its host.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"

# A decoder with rotary position embeddings that accepts long texts, and texts of about 3,000, 1,500 and 10 tokens.
cp -r "$here/share/mha/builtin" long
sed 's/"max_position_embeddings": *[0-9]*/"max_position_embeddings": 8192/' "$here/share/mha/builtin/config.json" >long/config.json
tr '\n' ' ' <"$here/share/mha/texts/stories.txt" | head -c 12000 >text.txt
{
    head -c 6000 text.txt
    printf '\nOne day Clara finds a kite.\n'
} >texts.txt
awk 'BEGIN { for (i = 0; i < 2500; i++) printf "%s%d", i ? "," : "", i * 7 % 1000 }' >ids.txt

for count in 1 2 3 4; do alike $count score -m long -f text.txt --json; done
alike 2 score -m long -f texts.txt --tokens
alike 3 embed -m long -f texts.txt --json
alike 4 embed -m long -f text.txt --pool cls --no-normalize --json
alike 2 logits -m long --ids -f ids.txt --json
alike 4 generate -m long -f text.txt -n 20 --json
alike 3 generate -m long -f texts.txt -n 20 --temperature 1 -s 4 --samples 2
alike 2 generate -m long -f text.txt -n 4 --kv-dtype bf16 --json
alike 2 generate -m long -f text.txt -n 6 --dtype bf16 --json

# Tests short texts and tiny models.
alike 3 generate -n 5 -p "One day Clara finds"
alike 2 logits -m "$data/models/gpt2-tiny" --ids 3,4,5 --json
alike 3 logits -m "$data/models/gemma2-tiny" --ids 3,4,5 --json
alike 2 logits -m "$tiny" "a cat" --json
alike 4 embed -m "$tiny" "a cat" "a dog" --json

# Tests output files, the modes ordered and ring, and standard input.
expect 0 "$ranks" 3 "$MHA_MPI" --attention ordered logits -m long -f text.txt -o shared.npy
"$MHA" logits -m long -f text.txt -o one.npy >one 2>/dev/null
same one.npy shared.npy "logits of all tokens"
same one out "the most likely tokens"
expect 0 "$ranks" 2 "$MHA_MPI" embed -m long -f text.txt -o shared.json
"$MHA" embed -m long -f text.txt -o one.json 2>/dev/null
same one.json shared.json "vectors"
"$MHA" score -m long -f text.txt >one
expect 0 "$ranks" 2 "$MHA_MPI" --attention ring score -m long -f text.txt
same one out "mode ring, 4 digits"
"$ranks" 2 "$MHA_MPI" score -m long - <text.txt >out 2>err || fail "texts must be read from standard input: $(cat err)"
same one out "standard input"
refused 2 "$ranks" 2 "$MHA_MPI" --attention star score -m long -f text.txt
has err '--attention must be one of tree, ordered, ring (got "star")'

# A different text on one rank must be rejected.
mkdir folder.0 folder.1
cp text.txt folder.0/text.txt
sed 's/brown/green/' text.txt >folder.1/text.txt
for command in embed generate; do
    refused 3 "$ranks" 2 "$each" $command -m ../long -f text.txt
    has err "rank 1 ($host): the text must be the same as on rank 0 ($host)"
done

# A missing text or a different model on one rank must be rejected.
rm folder.1/text.txt
refused 3 "$ranks" 2 "$each" score -m ../long -f text.txt
has err "rank 1 ($host): text.txt: No such file or directory"
mkdir folder.1/long
cp text.txt folder.1/text.txt
cp long/* folder.1/long
cp -r long folder.0/long
printf '\001' | dd of=folder.1/long/model.safetensors bs=1 seek=$(($(wc -c <long/model.safetensors) - 1001)) conv=notrunc 2>dd.log
refused 3 "$ranks" 2 "$each" score -m long -f text.txt
has err "rank 1 ($host): the model and the CPU instruction set must be the same as on rank 0 ($host)"
finish

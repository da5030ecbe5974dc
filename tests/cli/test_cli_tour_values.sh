#!/bin/sh
# test_cli_tour_values.sh - tests the options of `mha tour` that change its values: words, seed, width, heads, weights, and
# layers of a checkpoint.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# tensor TOUR-OUTPUT NAME: prints the elements of a tensor of the JSON in `out`, one per line.
tensor() {
    step=0
    while [ "$step" -lt "$("$JSON_AT" 'tours.0.steps.#' <out)" ]; do
        n=0
        while [ "$n" -lt "$("$JSON_AT" "tours.0.steps.$step.tensors.#" <out)" ]; do
            if [ "$("$JSON_AT" "tours.0.steps.$step.tensors.$n.name" <out)" = "$1" ]; then
                "$JSON_AT" "tours.0.steps.$step.tensors.$n.values" <out | tr -d '[]' | tr ',' '\n'
                return
            fi
            n=$((n + 1))
        done
        step=$((step + 1))
    done
    fail "the tour must have the tensor $1"
}

# rows_sum_to_one COLUMNS: the rows of the elements on stdin must each sum to 1.
rows_sum_to_one() {
    awk -v n="$1" '{ sum += $1 } NR % n == 0 { if ((sum - 1) ^ 2 > 1e-10) bad = 1; sum = 0 } END { exit bad || NR % n || !NR }' ||
        fail "the rows of $1 weights must sum to 1"
}

# ---- the values of the walk-through, given as options, do not change a digit ----
expect 0 "$MHA" tour self-attention
mv out usual
expect 0 "$MHA" tour self-attention --text 'Once upon a time there' --seed 123 --width 4
same usual out
expect 0 "$MHA" tour llama-attention
mv out usual
expect 0 "$MHA" tour llama-attention --width 8 --heads 2
same usual out
expect 0 "$MHA" tour grouped-query
mv out usual
expect 0 "$MHA" tour grouped-query -s 42 --width 8 --heads 4
same usual out

# ---- own words, width and heads ----
expect 0 "$MHA" tour weight-split --text 'my cat saw my dog' --heads 4 --seed 7 --width 32
tr -s '\n ' ' ' <out >flat
has flat 'The input is [2, 5, 32]: a batch of two sentences of five words, with 32 features for each word of "my cat saw my dog", sampled from seed 7 as in nn.Embedding(4, 32).'
has flat 'One matrix [32, 32] replaces four matrices [8, 32]: rows 0 to 7 belong to head 0, rows 8 to 15 to head 1, and so on.'
has flat 'mha_cview, .stride = {160, 8, 32, 1}'
has out 'weights [2, 4, 5, 5]'
expect 0 "$MHA" tour weight-split --text 'my cat saw my dog' --heads 4 --seed 7 --width 32 --json
tensor weights >weights.txt
[ "$(wc -l <weights.txt)" = 200 ] || fail "the weights must be [2, 4, 5, 5] (got $(wc -l <weights.txt) elements)"
rows_sum_to_one 5 <weights.txt
tensor x >x.txt
sed -n '1,32p' x.txt >first
sed -n '97,128p' x.txt >fourth
same first fourth 'equal words have equal rows'
sed -n '33,64p' x.txt >second
cmp -s first second && fail 'different words must have different rows'
tensor output >seven
expect 0 "$MHA" tour weight-split --text 'my cat saw my dog' --heads 4 --seed 8 --width 32 --json
tensor output >eight
cmp -s seven eight && fail 'another seed must give other values'
# Every tour accepts a width and a number of heads, or states the reason.
for name in stacked-heads batched-product reshape weight-split qkv-attention standard-mha grouped-query moe-heads head-pruning llama-attention; do
    expect 0 "$MHA" tour "$name" --heads 4 --width 16 --seed 1
    expect 0 "$MHA" tour "$name" --heads 2 --width 4
    refused 2 "$MHA" tour "$name" --heads 3 --width 16
    has err 'the width must be a multiple of the number of heads (got width 16, three heads)'
done
for name in self-attention causal-attention dropout; do expect 0 "$MHA" tour "$name" --text 'so it is so' --width 1 --seed 3; done
expect 0 "$MHA" tour adaptive-heads --width 32 --seed 3
expect 0 "$MHA" tour variants --seed 3
expect 0 "$MHA" tour induction --text 'red cat drum kite red cat'
tr -s '\n ' ' ' <out >flat
has flat '"red cat drum kite red cat"'
expect 0 "$MHA" tour dropout --text 'so it is so' --seed 5 --html own.html
has own.html 'With seed 5'

# ---- weights from a file: with identity matrices, q = x ----
{
    printf '\300\000\000\000\000\000\000\000'
    printf '%-192s' '{"w_q":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"w_k":{"dtype":"F32","shape":[2,2],"data_offsets":[16,32]},"w_v":{"dtype":"F32","shape":[2,2],"data_offsets":[32,48]}}'
    for _ in 1 2 3; do printf '\000\000\200\077\000\000\000\000\000\000\000\000\000\000\200\077'; done
} >identity.safetensors
expect 0 "$MHA" tour self-attention --width 2 --weights identity.safetensors --json
tensor x >x.txt
for projected in q k v; do
    tensor $projected >got
    same x.txt got "identity weights must give $projected = x"
done
refused 3 "$MHA" tour self-attention --weights identity.safetensors
has err 'w_q'
has err 'identity.safetensors'
refused 3 "$MHA" tour weight-split --weights identity.safetensors
has err 'q_proj.weight'
refused 3 "$MHA" tour weight-split --weights missing.safetensors
has err 'missing.safetensors'
: >empty.safetensors
refused 3 "$MHA" tour weight-split --weights empty.safetensors

# ---- a layer of a checkpoint ----
expect 0 "$MHA" tour causal-attention -m "$data/models/gpt2-tiny" --layer 1 --head 2 --text 'the cat sat'
tr -s '\n ' ' ' <out >flat
has flat 'head 2 of layer 1 of gpt2-tiny'
has flat 'the output of head 2 in the model'
expect 0 "$MHA" tour weight-split -m "$data/models/gpt2-tiny" --layer 2 --text 'the cat sat' --json
tensor weights >weights.txt
n=$("$JSON_AT" tours.0.steps.0.tensors.0.shape.0 <out)
rows_sum_to_one "$n" <weights.txt
expect 0 "$MHA" tour weight-split -m "$data/models/gpt2-tiny" --layer 2 --text 'the cat sat'
tr -s '\n ' ' ' <out >flat
has flat 'The text "the cat sat" has'
grep -q 'It is bitwise identical to the output of the attention in the model\|It differs by at most [0-9.]*e-0[5-9] from' flat ||
    fail "the output must equal that of the model (got $(grep -o 'It [a-z ]*[0-9.e-]*.\{40\}' flat))"
expect 0 "$MHA" tour self-attention -m "$tiny" --layer 1
expect 0 "$MHA" tour standard-mha -m "$tiny" --layer 1 --text 'the cat sat' --html layer.html
has layer.html 'layer 1 of bert-tiny'
expect 0 "$MHA" tour llama-attention -m builtin --layer 1 --text 'red cat red cat'
has out 'q_turned [8, 4, 32]'
expect 0 "$MHA" tour induction -m builtin --text 'red cat drum kite red cat'
has out 'The given model has'

# ---- refusals ----
refused 2 "$MHA" tour self-attention --heads 2
has err 'the tour self-attention does not accept --heads: it shows one head'
refused 2 "$MHA" tour moe-heads --text 'a b'
has err 'the tour moe-heads does not accept --text: its three sequences must differ'
refused 2 "$MHA" tour dropout -m builtin
has err 'the tour dropout does not accept --model: models apply dropout during training only'
refused 2 "$MHA" tour weight-split -m builtin --head 1
has err 'does not accept --head: it shows all heads'
refused 3 "$MHA" tour weight-split -m builtin
has err 'layer 0 of builtin has rotary causal attention, which the tour llama-attention shows'
hostile="$(printf 'evil\033[31m')"
ln -s "$data/models/gpt2-tiny" "$hostile"
refused 3 "$MHA" tour standard-mha -m "$hostile"
has err 'layer 0 of evil\x1b[31m has causal attention'
harmless err
refused 3 "$MHA" tour self-attention -m "$data/models/gpt2-tiny"
has err 'see the tour causal-attention'
refused 3 "$MHA" tour llama-attention -m "$data/models/gemma2-tiny"
has err 'softcap'
refused 2 "$MHA" tour llama-attention -m builtin --layer 2
has err 'the layer must be 0 to 1 (got 2)'
refused 2 "$MHA" tour causal-attention -m "$data/models/gpt2-tiny" --head 9
has err 'the head must be 0 to 3 (got 9)'
refused 2 "$MHA" tour weight-split -m builtin --width 8
has err '--width and -m are mutually exclusive'
refused 2 "$MHA" tour weight-split --layer 1
has err '--layer requires -m MODEL'
refused 2 "$MHA" tour all --seed 1
has err '--seed requires the name of one tour'
refused 2 "$MHA" tour --text 'a b'
refused 2 "$MHA" tour self-attention --text one
has err 'the text must have 2 to 64 words (got 1)'
refused 2 "$MHA" tour self-attention --text ''
refused 2 "$MHA" tour self-attention --width 0
has err '--width must be'
refused 2 "$MHA" tour self-attention --text "$(printf 'a \033[2Jb')"
harmless err
refused 2 "$MHA" tour llama-attention --width 6 --heads 2
has err 'the width of a head must be even'
refused 2 "$MHA" tour induction --text 'red cat drum'
has err 'the last token of the text must have occurred before'
finish

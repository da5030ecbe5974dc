#!/bin/sh
# test_cli_prune.sh - tests `mha prune` and `mha diff`: removal of heads by number and by score, and evaluation on
# held-out texts.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
prune() { "$MHA" prune -m "$tiny" "$@"; }

awk 'BEGIN { split("you keep the count of all that they said and then again once more", w, " ")
             for (i = 0; i < 24; i++) { for (j = 0; j < 6 + i % 5; j++) printf "%s ", w[(i * 5 + j * 3) % 14 + 1]; print "" } }' >texts

# With --heads, the command must not use texts for fitting; without texts, it must not evaluate the model.
expect 0 prune --heads 0.1,2.3 -o one --json
at removed.0.0 1
at removed.1.# 0
at removed.2.0 3
at heads.0 12
at heads.1 10
at chosen_by named
has_not out quality
has one/config.json '"mha.heads"'
has one/config.json "$(sha256sum "$tiny/model.safetensors" | cut -d ' ' -f 1)"
[ -s one/tokenizer.json ] || fail 'the folder must contain tokenizer.json'
expect 0 prune --heads 0.1,2.3 -o one --force -f texts --json
at quality.texts 24
at quality.held_out -f

# A pruned model must load and accept pruning again; heads must keep their original numbers.
expect 0 "$MHA" embed -m one 'you keep the count'
refused 2 "$MHA" prune -m one --heads 0.1 -o two
has err 'already removed'
refused 2 "$MHA" prune -m one --heads 7.0 -o two
has err '--heads must name heads of one (got 7.0)'
refused 2 "$MHA" prune -m one --heads 2.0,0.2,2.0 -o two
has err '--heads must list each head once (got 2.0 twice)'
expect 0 "$MHA" prune -m one --heads 2.0,0.2 -o two --json
at removed.0.0 2
at removed.2.0 0
at heads.1 8
expect 0 prune --heads 0.1,2.3,2.0,0.2 -o both
expect 0 "$MHA" diff -m two -m both --json -f texts
at tensors.# 0
at texts.min_cosine 1.0
at a.heads.0.0 0
at a.heads.0.1 3
# A folder that cannot be written must be rejected before the model is opened.
mkdir foreign
touch foreign/notes.txt
for search in '--count 1 -o nowhere/x' '--search -o nowhere/curve.svg' '--count 1 -o two/config.json/x'; do
    # shellcheck disable=SC2086 # a list of words
    refused 1 "$MHA" prune -m nowhere -f texts $search
    has err ': cannot write: No'
done
refused 1 "$MHA" prune -m nowhere --count 1 -f texts --force -o foreign
has err 'foreign: cannot overwrite: it contains notes.txt'
[ -e foreign/notes.txt ] || fail 'a rejected command must not remove a file'

expect 0 prune --keep two/config.json -o kept
same kept/model.safetensors two/model.safetensors

# The lists of --keep must fit the layers; a part of an encoder-decoder without a list keeps all heads.
keeps() { # MODEL JSON MESSAGE: the lists are rejected with this message
    printf '%s' "$2" >lists.json
    refused 3 "$MHA" prune -m "$1" --keep lists.json -o x
    has err "$3"
}
t5=$data/seq2seq/t5
keeps "$tiny" '[[0], [1]]' 'lists.json: heads must be 3 lists, one per layer (got 2 elements)'
keeps "$tiny" '{"model_type": "bert"}' 'heads must be 3 lists, one per layer (got an object)'
keeps "$tiny" '[[0], 1, [2]]' 'heads of layer 1 must be a list of head numbers (got 1)'
keeps "$tiny" '[[0], [-1], [2]]' 'heads of layer 1 must be head numbers (got -1)'
keeps "$t5" '{"decoders": []}' '"mha.heads" must have the members cross, decoder and encoder only (got "decoders")'
keeps "$t5" '{"cross": [[0]]}' 'cross heads must be '
refused 2 "$MHA" prune -m "$t5" --heads cross.0.1,0.1,cross.0.1 -o x
has err '--heads must list each head once (got cross.0.1 twice)'
printf '[[0], [1], [2, 1, 2]]' >lists.json
refused 2 "$MHA" prune -m "$tiny" --keep lists.json -o x
has err '--keep must list each head once (got 2.2 twice)'
expect 0 "$MHA" prune -m "$t5" --heads cross.0.1 -o cross
printf '{"mha.heads": {"cross": [[0, 2, 3], [0, 1, 2, 3]]}}' >lists.json
expect 0 "$MHA" prune -m "$t5" --keep lists.json -o kept-cross
same kept-cross/model.safetensors cross/model.safetensors
expect 0 "$MHA" prune -m "$t5" --keep cross/config.json -o kept-cross --force
same kept-cross/model.safetensors cross/model.safetensors

# --compatible must keep the shapes and set the weights of the heads to 0; the model must compute the same results.
expect 0 prune --heads 0.1,2.3 --compatible -o zeros
expect 0 "$MHA" diff -m one -m zeros --json 'you keep the count' 'again'
at texts.min_cosine 1.0
at b.heads.0.# 4
has_not zeros/config.json mha.heads

# --ratio must remove a fraction of the model's 12 heads; with --per-layer, it must remove this fraction of the 4 heads
# of each layer, rounded up.
for amount in 0.1:11 0.2:10 0.3:8 0.4:7; do
    expect 0 prune --ratio ${amount%:*} --by ov_norm -o ratio --force --json
    at heads.1 ${amount#*:}
done
expect 0 prune --ratio 0.3 --per-layer --by ov_norm -o ratio --force --json
at removed.0.# 2
at removed.1.# 2
at removed.2.# 2

# If the number of removed heads is not the fraction of --ratio, a message must state the reason.
asks() { # RATIO MESSAGE OPTION...: with --ratio RATIO, a message must contain "--ratio RATIO is MESSAGE"
    ratio=$1 sentence=$2
    shift 2
    expect 0 prune --by ov_norm --ratio "$ratio" -o ratio --force "$@"
    has err "--ratio $ratio is $sentence"
}
asks 1 '12 of 12 heads; removing 9: --floor keeps at least 1 per layer'
asks 0.95 '11.4 of 12 heads; removing 6: --floor keeps at least 2 per layer' --floor 2
asks 0.9 '10.8 of 12 heads; removing 9: --floor keeps at least 1 per layer' --per-layer
asks 0.03 '0.36 of 12 heads; removing 0: rounded to whole heads'
asks 0.3 '3.6 of 12 heads; removing 6: rounded up in each layer to whole heads' --per-layer
expect 0 prune --by ov_norm --ratio 0.25 -o ratio --force
has_not err '; removing'
expect 0 "$MHA" prune -m "$data/families/gemma2" --by ov_norm --ratio 0.3 -o ratio --force
has err 'rounded to whole groups of heads that share keys'
expect 0 "$MHA" prune -m "$data/families/gemma2" --by ov_norm --ratio 0.3 --per-layer -o ratio --force
has err 'rounded up in each layer to whole groups of heads that share keys'

# A message must name the violated rule of transformers.
breaks() { # RULE MODEL HEADS: if HEADS of MODEL are removed without --compatible, a message must contain RULE
    expect 0 "$MHA" prune -m "$2" --heads "$3" -o ratio --force
    has err "transformers cannot load this folder, because $1; use --compatible"
    expect 0 "$MHA" prune -m "$2" --heads "$3" -o ratio --force --compatible
    has_not err transformers
}
breaks 'all layers must have the same number of heads' builtin 0.0
breaks 'the hidden size must be a multiple of the number of heads' builtin 0.0,1.0
breaks 'head_dim must be the hidden size divided by the number of heads' "$tiny" 0.0,1.0,2.0
expect 0 "$MHA" prune --heads 0.0,0.1,0.2,0.3,1.0,1.1,1.2,1.3 -o ratio --force
has_not err transformers

# If scores or heads are given by a file or an option, a message must state that they may depend on the evaluation texts.
expect 0 "$MHA" heads -q -m "$tiny" --by jacobian_probe -f texts --csv
mv out scores.csv
expect 0 prune --scores scores.csv --count 2 -f texts -o unknown
has out 'on 24 texts'
tr '\n' ' ' <out >words
has words 'on 24 texts (-f). The scores of scores.csv may have been measured on these texts.'
expect 0 prune --scores scores.csv --count 2 --refit -f texts -o unknown --force
tr '\n' ' ' <out >words
has words 'on 6 texts not used for fitting (every fourth text of -f). The scores of scores.csv may have been'
expect 0 "$MHA" regroup -m "$tiny" --kv-heads 2 --scores scores.csv -f texts -o shared
tr '\n' ' ' <out >words
has words '(every fourth text of -f). The scores of scores.csv may have been measured on these texts.'
expect 0 prune --heads 0.0 -f texts -o unknown --force
tr '\n' ' ' <out >words
has words 'The heads given with --heads may have been chosen on these texts.'
expect 0 prune --by ov_norm --count 2 -f texts -o unknown --force
has_not out 'may have been'
has_not out 'not used for'

# For every type of weights, the reported bytes must equal those that mha info prints.
for model in "$data/families/llama-f16" "$data/families/gemma2" "$data/families/llama-sharded"; do
    expect 0 "$MHA" prune -m "$model" --heads 0.0,0.1 -o stored --force --json
    before=$("$JSON_AT" bytes.0 <out) after=$("$JSON_AT" bytes.1 <out)
    expect 0 "$MHA" info "$model" --json
    at bytes "$before"
    expect 0 "$MHA" info stored --json
    at bytes "$after"
    [ "$after" -lt "$before" ] || fail "$model: pruning must decrease the size (got $before bytes before, $after bytes after)"
done

# If texts are used for fitting, some of them must be held out for evaluation.
expect 0 prune --ratio 0.25 -f texts --refit --fill -o fitted --json
at heads.1 9
at quality.texts 6
at quality.held_out 'every fourth text of -f'
at chosen_by 'joint, ratio 0.25'
has fitted/config.json '"ridge": 3.0'
cp out first
expect 0 prune -t 3 --ratio 0.25 -f texts --refit --fill -o fitted2 --json
same fitted/model.safetensors fitted2/model.safetensors 'three threads'
head -n 4 texts >few
expect 0 prune --by ov_norm --count 2 --per-layer -f few --test texts -o by_norm --json
at quality.texts 24
at heads.1 6
expect 0 prune --by jacobian_probe --count 3 --floor 2 -f texts -o by_probe --json
at heads.1 9
expect 0 prune --heads 0.1 -o plain -f texts
has out 'Embeddings before and after'
# The speed must be omitted if a pass takes less than 20 ms. Since passes may take longer on a loaded machine or with sanitizers, a
# printed speed must correspond to a pass of at least 20 ms.
tr '\n' ' ' <out >words
if grep -qF 'tokens per second' out; then
    has_not words 'Speed is omitted'
    awk '/^tokens per second/ { print ($4 > $5) ? $4 : $5 }' out >speed
    expect 0 prune --heads 0.1 -o plain_json -f texts --json
    tokens=$("$JSON_AT" quality.tokens <out)
    awk "{ exit !($tokens / \$1 > 0.0199) }" speed || fail "a printed speed must be of a pass of at least 20 ms (got $(cat speed) tokens per second for $tokens tokens)"
else
    has words 'Speed is omitted: a pass over these texts takes less than 20 ms'
fi

# --search must measure the loss for each number of heads, and write the curve.
expect 0 prune --search --by ov_norm -f texts --max-loss-increase 0.02 -o curve.svg --json
at curve.0.heads 3
at best.within true
has curve.svg '<svg'
expect 0 prune --search -f texts --max-loss-increase 0 -o curve.png
has out 'No head can be removed with a loss increase of at most 0'
has out 'tokens/s'
has_not out 'KV bytes' # an encoder has no KV cache

# With --per-layer, every point of the curve must have the same number of heads in each layer.
for by in ov_norm joint; do
    expect 0 prune --search --per-layer --by $by -f texts --max-loss-increase 9 --json
    at curve.# 4
    for n in 0 1 2 3; do
        at curve.$n.heads $((3 * (n + 1)))
    done
    at best.heads 3
    has out 'the same number in each layer'
done
expect 0 prune --search --per-layer --floor 3 -f texts --max-loss-increase 9
has out 'With 9 of 12 heads, the loss increases by at most 9'
found=$(sed -n 's/^--heads //p' out)
[ -n "$found" ] || fail 'the best point must have a --heads line'
cp out search
expect 0 prune --count 1 --per-layer -f texts -o each --json
at heads.1 9
[ "$("$JSON_AT" removed.0.# <out)" = 1 ] || fail 'one head must be removed from each layer'

# The heads found by the search must be accepted by --heads.
expect 0 prune --heads "$found" -f texts --test texts -o found --json
at heads.1 9
# Texts used for fitting must not be evaluation texts.
refused 2 prune --ratio 0.25 -f texts --test texts -o judged
has err 'every evaluation text (--test) is also used to choose heads'
expect 0 prune --by ov_norm --fill --count 2 -f few --test texts -o judged --json
has err 'skipping 4 of 24 evaluation texts'
at quality.texts 20
# A decoder's texts must have at least one token to predict.
printf '5\n6\n7\n8\n' >words
refused 3 "$MHA" prune -m "$data/models/gpt2-tiny" --search --by ov_norm --ids -f words

# Each point of a decoder's curve must have all sizes and quality measures, in the text, the JSON and the figure.
decoder() { "$MHA" prune -m "$data/models/gpt2-tiny" --search --by ov_norm -f texts "$@"; }
expect 0 decoder --json -o gpt2.svg --force
for key in heads parameters bytes kv_bytes_per_token loss mean_cosine tokens_per_second within; do
    "$JSON_AT" curve.1.$key <out >/dev/null || fail "each point of the curve must have $key"
done
more() { awk -v a="$("$JSON_AT" "curve.0.$1" <out)" -v b="$("$JSON_AT" "curve.2.$1" <out)" 'BEGIN { exit !(a + 0 > 0 && a + 0 < b + 0) }'; }
for key in heads parameters bytes kv_bytes_per_token; do
    more $key || fail "$key must increase with the number of heads"
done
# A decoder's figure must have an additional panel for the KV cache. Its title cannot be searched, because the text of a figure consists
# of glyphs, so the heights of two figures are compared.
expect 0 prune --search --by ov_norm -f texts -o curve.svg --force
height() { sed -n 's/.*<svg[^>]* height="\([0-9]*\)pt".*/\1/p' "$1"; }
[ "$(height gpt2.svg)" -gt "$(height curve.svg)" ] || fail 'the figure of a decoder must have a panel for the cache'
expect 0 decoder
for title in heads parameters 'KV bytes' 'tokens/s' 'loss increase'; do
    has out "$title"
done

# The options that repeat a search of an encoder must name the part. Heads of a decoder must not be chosen by scores that
# cover only the encoder.
expect 0 "$MHA" prune -m "$t5" --search --part encoder --by ov_norm -f texts --max-loss-increase 9
again=$(grep '^--heads ' out)
case $again in
    *' --part encoder') ;;
    *) fail "the options must end in --part encoder (got $again)" ;;
esac
# shellcheck disable=SC2086 # a list of options
expect 0 "$MHA" prune -m "$t5" $again -o encoder
expect 0 "$MHA" heads -q -m "$t5" --by ov_norm -f texts --csv
mv out encoder.csv
expect 0 "$MHA" prune -m "$t5" --part encoder --scores encoder.csv --count 1 -o encoder --force
refused 3 "$MHA" prune -m "$t5" --scores encoder.csv --count 1 -o decoder
has err 'encoder.csv: must contain the scores of the decoder, cross and encoder heads of t5'
refused 2 "$MHA" prune -m "$t5" --by joint --count 1 -o decoder
has err 'missing texts to choose heads or fit weights on'
[ ! -e decoder ] || fail 'a rejected command must not create a folder'
refused 2 prune --search -f texts -o curve.txt
refused 2 prune --search --keep one/config.json -f texts
refused 2 prune --search --ratio 0.5 -f texts
refused 2 prune --search

refused 2 prune --heads 0.1
refused 2 prune -o x
refused 2 prune --heads 0.1 --ratio 0.5 -o x
refused 2 prune --heads 0-1 -o x
refused 2 prune --ratio 2 -f texts -o x
refused 2 prune --ratio 0.5 -o x
has err 'missing texts to choose heads or fit weights on'
refused 2 prune --ratio 0.5 --by beauty -f texts -o x
refused 2 prune --count 10 -f texts -o x
refused 2 prune --heads 0.0,0.1,0.2,0.3 -o x
has err 'layer 0 must keep at least one head'
refused 2 prune --heads 0.1 -o one
has err '--force'
head -n 2 texts >few
refused 2 prune --ratio 0.5 -f few -o x
refused 2 "$MHA" diff -m "$tiny" 'one text'
refused 2 "$MHA" diff -m "$tiny" -m "$tiny" -m "$tiny"
refused 3 "$MHA" diff -m "$tiny" -m nowhere
[ ! -e x ] || fail 'a rejected command must not create a folder'

# If the command is killed while it writes, the old folder must remain complete.
cp -r one before
for delay in 0.00 0.01 0.02 0.04 0.08; do
    "$MHA" prune -m "$tiny" --ratio 0.5 -f texts --refit -o one --force >/dev/null 2>&1 </dev/null &
    sleep $delay
    kill -9 $! 2>/dev/null
    wait $! 2>/dev/null
    expect 0 "$MHA" embed -m one 'you keep the count'
    cmp -s one/model.safetensors before/model.safetensors || break # stops if the command finished before it was killed
done

# Blank texts must be rejected. For a model without a tokenizer, ids must be accepted.
printf '\n\n\n\n\n' >blank
mkdir mute
cp "$data/models/gpt2-tiny/config.json" "$data/models/gpt2-tiny/model.safetensors" mute
for i in 1 2 3 4 5 6 7 8; do echo "$i,402,88,$i,402,88"; done >ids
refused 3 "$MHA" prune -m "$tiny" -f blank --count 2 -o blank_out
has err 'blank'
refused 3 "$MHA" prune -m mute -f ids --count 2 -o mute_out
has err '--ids'
expect 0 "$MHA" prune -m mute --ids -f ids --count 2 -o mute_out
[ -e mute_out/model.safetensors ] || fail 'prune with ids must write a model'
[ ! -e blank_out ] || fail 'a rejected command must not write blank_out'
finish

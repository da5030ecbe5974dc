#!/bin/sh
# test_cli_score.sh - tests `mha score`: the loss and log-probabilities must not depend on other texts or on threads.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
model=$data/models/gpt2-tiny
score() { "$MHA" score -m "$model" "$@"; }

expect 0 score --json 'Hello, world!'
at text 'Hello, world!'
at ids '[39,631,78,11,262,292,427,0]'
at logprobs.0 null
at tokens.1 ell
cp out alone
expect 0 score --json -t 2 'another text' 'Hello, world!'
[ "$(wc -l <out)" = 3 ] || fail 'two texts must give two objects and a total'
sed -n 2p out >second
same alone second 'the score of a text must not depend on other texts or on threads'
sed 's/.*"loss": \([0-9.]*\).*"logprobs": \[null, \([^]]*\)\].*/\1 \2/; s/.*"predicted_tokens": \([0-9]*\), "loss": \([0-9.]*\).*/\2 \1/; s/,//g' out |
    awk 'NR < 3 { n += NF - 1; sum += $1 * (NF - 1) } NR == 3 { d = sum / n - $1; exit !($2 == n && d < 1e-6 && d > -1e-6) }' ||
    fail 'the total loss must be the mean over all tokens'
expect 0 score --json ''
at loss null
at truncated 0
expect 0 score --json "$(seq -s ' ' 200)"
cut=$("$JSON_AT" truncated <out)
[ "$cut" -gt 0 ] || fail 'a long text must be truncated'
at ids.# 96
has err "mha score: $cut tokens were truncated: the model accepts at most 96"
expect 0 score --tokens 'Hello, world!' 'Goodbye'
has out perplexity
has out ' all '

# The loss of a text must be the negative mean of the log-probabilities of its tokens.
expect 0 score --json 'wait for the tank'
sed 's/.*"loss": \([0-9.]*\).*"logprobs": \[null, \([^]]*\)\].*/\1 \2/; s/,//g' out |
    awk '{ for (n = 2; n <= NF; n++) sum -= $n; d = sum / (NF - 1) - $1; exit !(d < 1e-6 && d > -1e-6) }' ||
    fail 'the loss must be the negative mean of the log-probabilities'

refused 3 "$MHA" score -m "$data/models/bert-tiny" text
has err 'must be a decoder (got an encoder, '
refused 2 score

# Results that are not finite must be errors that name the text. The position embedding of token 6 is NaN, so that only
# texts of 7 and more tokens have such results.
cp -R "$model" nan
chmod -R u+w nan
start=$(grep -ao '"transformer.wpe.weight":{[^}]*}' nan/model.safetensors | sed 's/.*offsets":\[\([0-9]*\).*/\1/')
header=$(od -An -tu4 -N4 nan/model.safetensors)
printf '\000\000\300\177' | dd of=nan/model.safetensors bs=1 seek=$((8 + header + start + 6 * 48 * 4)) conv=notrunc 2>/dev/null
printf 'one\n\nHello, world!\ntwo\n' >lines
tail -n +3 lines | head -n 1 >line
expect 0 "$MHA" score -m nan one
for command in score 'score --json' 'embed --json'; do
    # shellcheck disable=SC2086
    refused 3 "$MHA" $command -m nan -f lines
    has err "lines: line 3: the "
    has err "must be finite (got nan)"
done
for by in gate loo_loss loo jacobian_probe taylor_token; do
    refused 3 "$MHA" heads -m nan --by $by -f lines
    has err 'lines: line 3: the scores of all heads must be finite (got nan)'
done
refused 3 "$MHA" heads -m nan --by gradmag --batch 2 -f lines
has err 'lines: lines 1 to 3: the scores of all heads must be finite (got nan)'
echo "Quite another text." >other
refused 3 "$MHA" prune -m nan --by gradmag --count 1 -f lines --test other -o none
has err 'the scores of all heads must be finite (got nan)'
refused 3 "$MHA" prune -m nan --by ov_norm --search -f lines
has err 'the loss of the held-out texts must be finite (got nan)'
# The same for scores from the weights alone: a NaN in q of head 0.0.
cp -R "$model" weights
chmod -R u+w weights
start=$(grep -ao '"transformer.h.0.attn.c_attn.weight":{[^}]*}' weights/model.safetensors | sed 's/.*offsets":\[\([0-9]*\).*/\1/')
printf '\000\000\300\177' | dd of=weights/model.safetensors bs=1 seek=$((8 + header + start)) conv=notrunc 2>/dev/null
for command in 'heads --by qk_norm -f lines' 'heads --by qk_norm --csv -f lines' 'prune --by qk_norm --count 1 -o none' \
    'regroup --by qk_norm --kv-heads 1 --method mean --ridge 0 -o none'; do
    # shellcheck disable=SC2086
    refused 3 "$MHA" $command -m weights
    has err 'the score of head 0.0 must be finite (got nan)'
done
refused 3 "$MHA" lens -m nan -f line -o lens.html
has err 'line: line 1: the largest probability of layer embed at token 6 must be finite (got nan)'
refused 3 "$MHA" logits -m nan --effects -f line
has err 'line: line 1: the effect of head 0.0 must be finite (got nan)'
refused 3 "$MHA" attribute -m nan --answer ell -f line -o attribute.html
has err 'line: line 1: the logit of --answer must be finite (got nan)'
refused 3 "$MHA" knockout -m nan --answer ell 'Hello, world!'
has err 'the logprob of the clean prompt must be finite (got nan)'
[ ! -e lens.html ] && [ ! -e attribute.html ] || fail 'a failed command must not write files'
finish

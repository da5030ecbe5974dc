#!/bin/sh
# test_cli_generate.sh - tests `mha generate`: recorded tokens, streaming, stop strings, several prompts, and the end of
# generation.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
model=$data/models/gpt2-tiny
generate() { "$MHA" generate -m "$model" "$@"; }
field() { sed -n "s/.*\"$1\": \(\"\([^\"\\\\]\|\\\\.\)*\"\|\[[^]]*\]\).*/\1/p"; }

# The tokens must equal those of transformers, and must not depend on the cache type, threads or other prompts.
expect 0 generate --json --no-eos -n 32 -p 'Every morn'
at prompt_ids '[36,402,88,287,292,77]'
at ids '[45,124,467,320,297,45,180,180,180,180,180,436,387,387,180,620,75,180,180,180,180,180,87,180,638,638,123,638,387,387,475,475]'
at ended length
has err 'prompt: 6 tokens'
has err 'new: 32 tokens'
cp out alone
expect 0 generate --json --no-eos -n 32 -t 2 'Hello, world!' 'Every morn' 'x'
[ "$(wc -l <out)" = 3 ] || fail 'three prompts must give three objects'
sed -n 2p out >second
same alone second 'the text of a prompt must not depend on other prompts or on threads'
expect 0 generate --json --no-eos -n 32 -q --at-once 1 'Hello, world!' 'Every morn' 'x'
[ ! -s err ] || fail '-q must suppress stderr'
sed -n 2p out >second
same alone second '--at-once'
expect 0 generate --json --no-eos -n 32 --lookup 8 'Every morn'
same alone out 'the text must not depend on --lookup'
for type in f32 bf16 f16 int8; do
    expect 0 generate --json --no-eos -n 3 --kv-dtype $type 'Every morn'
    at ids '[45,124,467]'
done
expect 0 generate --json --no-eos -n 3 --kv-dtype e4m3 'Every morn'
expect 0 "$MHA" generate -m builtin --no-eos -n 3 --kv-dtype int4 'One day'

# With --gates, the first token must be the most likely one of `mha logits --gates`, also if other prompts run at the same time.
gates=0.0=0,0.1=0,1.0=0,1.2=0.5
expect 0 "$MHA" logits -m "$model" --gates $gates --json --top 1 'Every morn'
first=$(sed -n 's/.*"id": \([0-9]*\).*/\1/p' out)
expect 0 generate --json --no-eos -n 4 --gates $gates 'Every morn'
list=$(field ids <out | tr -d ' ')
[ "${list%%,*}" = "[$first" ] || fail "--gates must give the token of mha logits (got $list instead of $first)"
expect 0 generate --json --no-eos -n 4 --gates $gates 'x' 'Every morn'
[ "$(sed -n 2p out | field ids | tr -d ' ')" = "$list" ] || fail '--gates must not depend on other prompts'
expect 0 generate --json --no-eos -n 4 'Every morn'
[ "$(field ids <out | tr -d ' ')" != "$list" ] || fail '--gates must change the text'
expect 2 generate --gates 0.9=0 'x'
has err '--gates must name heads of the model (got 0.9)'
refused 2 generate --gates 0.1=0,0.0=1,0.1=1 'x'
has err '--gates must list each head once (got 0.1 twice)'

# The streamed text must equal the text in the JSON and must consist of whole characters, with control characters escaped.
# --echo must print the prompt before the text.
expect 0 generate --no-eos -n 32 -p 'Every morn'
harmless out
iconv -f UTF-8 -t UTF-8 out >/dev/null || fail 'the text must end with a whole character'
cp out text
printf 'Every morn' | cat - text >echoed
expect 0 generate --no-eos -n 32 --echo -p 'Every morn'
same echoed out --echo
expect 0 generate --no-eos -n 32 'Hello, world!' 'Every morn'
has out '1  Hello, world!'
has out '2  Every morn'
sed '1,/^2  /d' out >second
same text second 'the text must be the same with several prompts'
printf 'Hello, world!\nEvery morn\n' >prompts
cp out both
expect 0 generate --no-eos -n 32 -f prompts
same both out '-f'

# The text must end before a stop string, even if the string spans two tokens.
expect 0 generate --json --no-eos -n 32 --stop 'small' --stop '--i' 'Every morn'
at ended stop
at ids '[45,124,467,320,297]'
at text 'N� F--'
expect 0 generate --no-eos -n 32 --stop '--i' 'Every morn'
printf 'N\357\277\275 F--\n' >want
same want out 'text before a stop string'
expect 0 generate --json --no-eos -n 4 --stop 'never there' 'Every morn'
at ended length

# Sampling: the seed must determine the text. Sample i must have the seed s + i, and the samples of a prompt must share
# its cached keys and values.
draw() { generate --json --no-eos -n 12 --temperature 1.2 --top-k 80 --top-p 0.95 --min-p 0.001 "$@"; }
expect 0 draw -s 5 'the tank was seen again at the harbour this morning'
cp out first
expect 0 draw -s 6 'the tank was seen again at the harbour this morning'
cat first out >want
expect 0 draw -s 5 --samples 2 'the tank was seen again at the harbour this morning'
same want out 'samples'
has err 'of these tokens shared'
cmp -s first out && fail 'the seed must change the text'
expect 0 generate --json -n 12 --no-repeat-ngram 1 --no-eos 'Every morn'
[ "$(field ids <out | tr -d '[] ' | tr ',' '\n' | sort -u | wc -l)" = 12 ] || fail '--no-repeat-ngram 1 must prevent the repetition of a token'

# If the first token ends the text, the text must be empty, the exit status must be 0, and a message must be printed.
expect 0 generate -n 8 'Every morn'
has_not err 'immediately'
cp -r "$data/models/gpt2-tiny" ending
chmod -R u+w ending
expect 0 generate --json -n 1 --no-eos 'Every morn'
first=$("$JSON_AT" ids.0 <out)
expect 0 generate --json -n 1 --no-eos Hello
printf '{"eos_token_id": [%s, %s]}' "$first" "$("$JSON_AT" ids.0 <out)" >ending/generation_config.json
expect 0 "$MHA" generate -m ending -n 8 'Every morn'
[ "$(cat out)" = '' ] || fail 'the text must be empty if the first token ends it'
has err 'mha generate: the model ended the text immediately'
expect 0 "$MHA" generate -m ending -n 8 'Every morn' Hello
has err 'text 2: the model ended the text immediately'
expect 0 "$MHA" generate -q -m ending -n 8 'Every morn'
[ ! -s err ] || fail '-q must suppress the message'

# The end-of-text token must end the text, and the ids must include it.
expect 0 generate --json --temperature 3 --samples 200 -n 60 -s 1 'Every morn'
[ "$(grep -c '"ended": "eos"' out)" -gt 0 ] || fail 'at least one text must end with the end-of-text token'
grep '"ended": "eos"' out | grep -qv ', 639\], "ended"' && fail 'the ids of a text must include its end-of-text token'
expect 0 generate --json --temperature 3 --samples 200 -n 60 -s 1 --min-tokens 60 'Every morn'
has_not out '"ended": "eos"'

# Without -n, generation after a long prompt must end at the maximum of the model; a larger -n must be rejected. A model
# with rotary position embeddings must generate beyond its maximum.
long=$(printf 'the small house %.0s' 1 2 3 4 5 6 7 8)
expect 0 generate --json --no-eos "$long"
[ $(($("$JSON_AT" 'prompt_ids.#' <out) + $("$JSON_AT" 'ids.#' <out))) = 96 ] || fail 'the default must use all positions'
has err 'new tokens: the model accepts 96'
refused 3 generate -n 64 "$long"
has_not err 'the model was trained on'
cp -r "$data/families2/opt" opt
counting 8 | "$MHA" tokenizer train -q --type wordpiece --vocab-size 48 -f - -o words >log || fail "a tokenizer must be trained"
cp words/* opt
refused 3 "$MHA" generate -m opt -n 64 -p 'the number'
has_not err 'the model was trained on'
expect 0 generate -n 4 "$long"
has_not err 'the model'
expect 0 "$MHA" generate -m "$data/models/gemma2-tiny" --no-eos -n 200 -p 'Every morn' -p x
[ "$(grep -c 'the model was trained on sequences of at most 128 (max_position_embeddings)' err)" = 1 ] || fail "the message must be printed once: $(cat err)"
expect 0 "$MHA" generate -m "$data/models/gemma2-tiny" -n 20 -p 'Every morn'
has_not err 'max_position_embeddings'

# A message must list the other settings of generation_config.json as options, except for options that were given.
cp -r "$model" settings
said() { sed -n 's|.*ignored by default, give||p' err; }
expect 0 "$MHA" generate -m settings -n 2 x
[ -z "$(said)" ] || fail "without generation_config.json, no options must be listed (got $(said))"
printf '{"eos_token_id": 639, "temperature": 0.5, "repetition_penalty": 1.25, "min_new_tokens": 3, "top_p": null}' >settings/generation_config.json
expect 0 "$MHA" generate -m settings x
[ "$(said)" = ' --min-tokens 3 --repetition-penalty 1.25' ] || fail "options of a config without sampling must be listed (got $(said))"
printf '{"do_sample": true, "temperature": 0.5, "top_p": 0.9, "max_new_tokens": 7, "no_repeat_ngram_size": 2}' >settings/generation_config.json
expect 0 "$MHA" generate -m settings x
[ "$(said)" = ' -n 7 --no-repeat-ngram 2 --temperature 0.5 --top-k 50 --top-p 0.9' ] || fail "options of a config with sampling must be listed (got $(said))"
expect 0 "$MHA" generate -m settings -n 2 --temperature 1 --top-k 3 x
[ "$(said)" = ' --no-repeat-ngram 2 --top-p 0.9' ] || fail "only options that were not given must be listed (got $(said))"
expect 0 "$MHA" generate -m settings -q -n 2 x
[ ! -s err ] || fail '-q must suppress the list of options'

# If the reader closes the pipe, or on Ctrl-C, the program must end, and the text printed so far must be complete. Without
# --foreground, timeout would send the signal twice, and the second signal would end the program immediately.
long() { timeout --foreground --preserve-status -s INT "$1" "$MHA" generate -m "$model" --no-eos -n 90 --samples 100000 --temperature 1 'Every morn'; }
{ long 60 2>err; echo $? >code; } | head -c 20 >few
[ "$(wc -c <few)" = 20 ] || fail 'head must read 20 bytes'
[ "$(cat code)" = 0 ] || fail "after the reader closes the pipe, the exit status must be 0 (got $(cat code))"
status=0
long 2 >out 2>err || status=$?
[ $status = 130 ] || fail "after Ctrl-C, the exit status must be 130 (got $status)"
has out 'Every morn'
[ -z "$(tail -c 1 out | tr -d '\n')" ] || fail 'the last line must end with a newline'
[ ! -s err ] || fail 'stderr must be empty after Ctrl-C'
long 60 >/dev/full 2>err && fail 'a full disk must be reported as an error'
has err 'No space left'

# Invalid calls must be rejected.
refused 3 "$MHA" generate -m "$data/models/bert-tiny" text
has err 'must be a decoder (got an encoder'
refused 3 generate ''
has err 'prompt 1 of 1 must have tokens'
refused 3 generate -n 1000 text
has err 'prompt tokens + max_new must be at most 96'
refused 2 generate
refused 2 generate -p a b
for wrong in '-n 0' '-n x' '--temperature -1' '--temperature nan' '--top-p 1.5' '--min-p x' '--top-k -1' '--samples 0' '--kv-dtype f8' \
    '--repetition-penalty -2' '--at-once 0' '--lookup 65'; do
    # shellcheck disable=SC2086 # splits the variable into words
    refused 2 generate $wrong text
done
refused 2 generate --stop '' text
refused 2 generate --min-tokens 5 -n 3 text
has err 'mha generate: --min-tokens must be at most -n (got 5 and 3)'
# A generation_config.json that cannot be read must be an error; it must not be treated as missing.
mkdir odd
cp "$model"/*.json "$model"/model.safetensors odd
rm -f odd/generation_config.json
for make in 'mkfifo odd/generation_config.json' 'mkdir odd/generation_config.json' 'ln -s nowhere odd/generation_config.json'; do
    $make
    refused 3 "$MHA" generate -m odd -n 1 'Every morn'
    has err generation_config.json
    rm -r odd/generation_config.json
done
expect 0 "$MHA" generate -m odd -n 1 'Every morn'
finish

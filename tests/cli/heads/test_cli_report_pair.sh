#!/bin/sh
# test_cli_report_pair.sh - tests `mha report --source --target`: the page and the JSON of encoder-decoders, and messages for other
# models and unsuitable options.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

for family in t5 bart marian mbart; do
    model=$data/seq2seq/$family
    expect 0 "$MHA" report -q -m "$model" --source 'a b c' --target 'd e' -o "$family.html" --json
    has "$family.html" 'Cross-attention: d e'
    at source 'a b c'
    at decoder.heads.0.0 0
done

# The decoder reads its first token and the tokens of the template before the target, but not those after it.
expect 0 "$MHA" report -q -m "$data/seq2seq/bart" --source 'a b c' --target 'd e' -o tokens.html --json
at decoder.tokens '["</s>","<s>","d","Ġe"]'
at cross.queries '["</s>","<s>","d","Ġe"]'
expect 0 "$MHA" report -q -m "$data/seq2seq/mbart" --source 'a b c' --target 'd e' -o tokens.html --force --json
at decoder.tokens '["de_DE","▁d","▁e"]'

# The encoder has the labels and the masses of mha heads, on a text with punctuation and special tokens.
for family in t5 bart marian mbart; do
    expect 0 "$MHA" heads -q --no-probe -m "$data/seq2seq/$family" --json 'a, b. c'
    for key in labels metrics.first metrics.sep metrics.punct metrics.vertical; do
        "$JSON_AT" "$key" <out >"$family.$key" || fail "mha heads must print $key"
    done
    expect 0 "$MHA" report -q -m "$data/seq2seq/$family" --source 'a, b. c' --target 'd, e' -o kinds.html --force --json
    for key in labels metrics.first metrics.sep metrics.punct metrics.vertical; do
        at "encoder.$key" "$(cat "$family.$key")"
    done
done
at decoder.metrics.prev.# 2
at cross.metrics.# 13
# A source without words has one key, so that the normalized entropy is undefined.
expect 0 "$MHA" report -q -m "$data/seq2seq/t5" --source '' --target 'd e' -o one.html --json
at cross.metrics.entropy_norm.0 '[null,null,null,null]'
at cross.metrics.first.0 '[1.0,1.0,1.0,1.0]'
at cross.labels.0.0 first

model=$data/seq2seq/t5
refused 2 "$MHA" report -m "$model" --source a -o x.html
has err '--source and --target require each other'
refused 2 "$MHA" report --source a --target b -o x.html
has err 'requires an encoder-decoder of texts (got llama)'
refused 2 "$MHA" report -m "$data/seq2seq/whisper" --source a --target b -o x.html
has err 'requires an encoder-decoder of texts'
refused 2 "$MHA" report -m "$model" --source a --target b -o x.html c
has err 'must not be given with TEXT or -f'
for option in --diversity --live --ids '--compare builtin'; do
    # shellcheck disable=SC2086 # an option and its value
    refused 2 "$MHA" report -m "$model" --source a --target b -o x.html $option
    has err 'must not be given with --compare'
done
for option in '--batch 1' '--loss mlm' '--probes 1' '--settle 0.9' '--state x'; do
    for by in '' '--by loo_loss'; do
        # shellcheck disable=SC2086 # options and their values
        refused 2 "$MHA" report -m "$model" --source a --target b -o x.html $option $by
        has err '--source must not be given with --batch, --loss, --probes, --settle or --state'
    done
done
tab=$(printf 'a\tb')
refused 2 "$MHA" report -m "$model" --source "$tab" --target c -o x.html
has err '--source must not contain a tab (got "a'
refused 2 "$MHA" report -m "$model" --source c --target "$tab" -o x.html
has err '--target must not contain a tab (got "a'
refused 2 "$MHA" report -m "$model" --source a --target b -o x.html --by ov_norm
has err '--by must be loo_loss with --source'
refused 2 "$MHA" report -m "$model" --source a --target '' -o x.html --by loo_loss
has err 'a target of at least one token'

expect 0 "$MHA" report -q -m "$model" --source 'a b c' --target 'd e' -o gates.html --by loo_loss --json
at encoder.importance.by loo_loss
at cross.importance.by loo_loss
at decoder.importance.texts 1
has gates.html '"importance"'
# The loss and the effects are those of mha heads for the same pair.
for family in t5 bart marian; do
    pair=$(printf 'a b c\td e')
    expect 0 "$MHA" heads -q -m "$data/seq2seq/$family" --by loo_loss --json "$pair"
    for key in loss cross.values.0.0; do
        "$JSON_AT" "importance.$key" <out >"heads.$key" || fail "mha heads must print $key"
    done
    expect 0 "$MHA" report -q -m "$data/seq2seq/$family" --source 'a b c' --target 'd e' -o gates.html --force --by loo_loss --json
    at cross.importance.loss "$(cat heads.loss)"
    at cross.importance.values.0.0 "$(cat heads.cross.values.0.0)"
done
expect 0 "$MHA" prune -m "$model" --heads cross.0.1,encoder.1.0,0.2 -o pruned --json
at removed.cross '[[1],[]]'
at removed.encoder.1.0 0
at removed.decoder.0.0 2
expect 0 "$MHA" prune -m "$model" --keep pruned/config.json -o kept
same kept/model.safetensors pruned/model.safetensors
expect 0 "$MHA" prune -m pruned --part encoder --count 2 --floor 1 -f "$data/../../../share/mha/texts/texts.txt" -o chosen
refused 3 "$MHA" prune -m "$model" --count 2 -f "$data/../../../share/mha/texts/texts.txt" -o none
has err 'must be a source and a target, separated by one tab'
refused 2 "$MHA" prune -m pruned --heads cross.0.1 -o none
has err '--heads must name heads of pruned (got cross.0.1, already removed)'
refused 2 "$MHA" report -m pruned --source a --target b -o x.html
has err 'from which no heads were removed'
refused 2 "$MHA" report -m "$model" text -o x.html
has err "is an encoder-decoder, which requires --source and --target instead of a text"
refused 2 "$MHA" report text --compare "$model" -o x.html
finish

#!/bin/sh
# test_cli_heads.sh - tests `mha heads` and `mha demo`: JSON, CSV, grid, colors and, if MiniLM is installed, its labels.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
heads() { "$MHA" heads -m "$tiny" "$@"; }

expect 0 heads --json 'you keep the count' 'and then again, they said'
at model "$tiny"
at texts 2
at layers 3
at heads 4
at metrics.entropy.# 3
at metrics.entropy.2.# 4
at labels.0.# 4
cp out two
for threads in 1 2 3; do
    expect 0 heads -t $threads --json 'you keep the count' 'and then again, they said'
    same out two "$threads threads"
done
expect 0 heads -s 7 --json 'you keep the count' 'and then again, they said'
cmp -s out two && fail 'the seed must change the probe'
expect 0 heads --no-probe --json 'you keep the count'
at metrics.dup_probe.0.0 null

# The diversity must be that of mha report.
expect 0 heads --diversity --json 'you keep the count' 'and then again, they said'
at diversity.measures.js.blocks.# 1
at diversity.measures.output_cka.blocks.# 3
at diversity.unique.2.# 4
at diversity.merges.# 11
expect 0 heads --diversity 'you keep the count' 'and then again, they said'
has out 'Diversity of the heads of each layer'
has out 'Most similar maps'
refused 2 heads --diversity --csv 'you keep the count'
has err '--diversity and --csv are mutually exclusive'

expect 0 heads --maps --json 'you keep the count'
n=$("$JSON_AT" tokens.# <out)
at attention.# 3
at attention.0.# 4
at attention.0.0.# "$n"
at attention.0.0.0.# "$n"
refused 2 heads --maps 'you keep the count'
refused 2 heads --maps --json one two
refused 2 heads --json --csv one

# Every command must reject input that consists only of blank texts; blank lines among other texts must be skipped.
printf '\n \t\n' >blank
printf '\nyou keep the count\n' >one_blank
refused 3 heads -f blank
has err 'blank'
refused 3 heads --maps --json ' '
refused 3 heads ''
for command in 'report -o blank.html' 'draw --grid -o blank.png'; do
    # shellcheck disable=SC2086 # splits the variable into words
    refused 3 "$MHA" $command -m "$tiny" ''
    has err 'the text must not be blank'
done
expect 0 heads -f one_blank --json
at texts 1
refused 3 "$MHA" embed -m "$tiny" -f blank
has err 'got only blank lines'

# Ids must give the same results as the text with these ids, with and without a tokenizer.
gpt2=$data/models/gpt2-tiny
mkdir mute
cp "$gpt2/config.json" "$gpt2/model.safetensors" mute
printf '36,402,88,287,292,77\n17,402\n' >ids
expect 0 "$MHA" heads -m "$gpt2" --maps --json 'Every morn'
cp out read
expect 0 "$MHA" heads -m "$gpt2" --maps --json --ids 36,402,88,287,292,77
same out read 'ids and their text'
expect 0 "$MHA" heads -m mute --maps --json --ids 36,402,88,287,292,77
at tokens '["36","402","88","287","292","77"]'
at texts 1
refused 3 "$MHA" heads -m mute 'Every morn'
has err '--ids'
expect 0 "$MHA" heads -m mute --ids -f ids --by gate --json
at texts 2
cp out listed
expect 0 "$MHA" heads -m "$gpt2" --ids 36,402,88,287,292,77 17,402 --by gate --json
[ "$("$JSON_AT" importance.values <out)" = "$("$JSON_AT" importance.values <listed)" ] || fail 'ids of a file and of arguments must give the same results'
expect 0 "$MHA" heads -m mute --ids -f ids --by gradmag --json
"$JSON_AT" importance.values <out >exact
expect 0 "$MHA" heads -m mute --ids -f ids --by gradmag --json --dtype bf16
"$JSON_AT" importance.values <out >rounded
cmp -s exact rounded && fail '--dtype bf16 must change the scores'
tr -d '[]' <exact | tr ',' '\n' >exact.lines
tr -d '[]' <rounded | tr ',' '\n' | paste exact.lines - | awk '{ if ($1 > top) top = $1; off = $1 > $2 ? $1 - $2 : $2 - $1; if (off > worst) worst = off }
    END { exit !(NR > 1 && top > 0 && worst < 0.05 * top) }' || fail "scores in bf16 must be within 5 % of those in f32 (got $(cat exact rounded))"
refused 1 "$MHA" heads -m mute --ids -f ids --by gradmag --dtype f16
has err 'dtype of the model must be f32 or bf16 for gradients (got f16)'
refused 2 "$MHA" heads -m mute --ids -f ids --by gate --loss mlm
refused 2 "$MHA" heads -m mute --ids 1,2 3,640
has err "text 2: a token id must be less than the model's vocab_size 640 (got 640)"
printf '1,2\n\n3\n' >gap
expect 0 "$MHA" heads -m mute --ids -f gap --json
at texts 2
refused 3 "$MHA" heads -m mute --ids -f blank

expect 0 heads --csv 'you keep the count'
[ "$(wc -l <out)" = 13 ] || fail 'the CSV must have one line per head and a header'
has out 'layer,head,label,entropy'

# Every output format must contain the importance scores with their intervals. The scores must not depend on the number
# of threads.
printf '%s\n' 'you keep the count' 'and then again' 'they said so' 'all the words that we know' >texts
expect 0 heads -f texts --by jacobian_probe --json
at texts 4
at importance.by jacobian_probe
at importance.texts 4
at importance.loss null
at importance.values.# 3
at importance.values.2.# 4
at importance.low.2.# 4
at importance.high.0.# 4
at importance.saturated false
cp out two
expect 0 heads -f texts --by jacobian_probe --json -t 3
same out two '3 threads'
expect 0 heads -f texts --by jacobian_probe --json --probes 2
cmp -s out two && fail 'the number of probes must change the scores'
expect 0 heads -f texts --by jacobian_probe --csv
has out ',importance,importance_low,importance_high'
[ "$(tail -n 1 out | tr , '\n' | wc -l)" = "$(head -n 1 out | tr , '\n' | wc -l)" ] || fail 'all lines of the CSV must have the same columns'
expect 0 heads -f texts --by jacobian_probe
has out 'rank correlation between'
has out 'percentages of the largest importance'
awk '$1 ~ /^[0-9]+\.[0-9]+$/ { print $3 }' out >ranked
[ "$(wc -l <ranked)" = 12 ] || fail 'the ranking must have one line per head'
sort -g -r ranked | cmp -s - ranked || fail 'the ranking must be sorted by importance'
printf 'a cat\tone cat\nthe sun\ta sun\nold men\tmen of age\n' >pairs
expect 0 heads -f pairs --by gate --loss pairs --json
at texts 6
at importance.by gate
refused 2 heads -f texts --by gate --loss pairs # these texts are not pairs separated by tabs
refused 2 heads -f texts --by gate              # an encoder has no next-token loss
has err '--loss pairs'
has_not err '--loss mlm'
refused 2 "$MHA" heads -m "$data/models/bert-mlm-tiny" -f texts --by gate
has err '--loss mlm'
expect 0 "$MHA" heads -m "$data/models/bert-mlm-tiny" -f texts --by gate --loss mlm
refused 2 "$MHA" heads -m "$data/models/bert-tiny" -f texts --by gate
has_not err '--loss mlm' # must not be suggested, because the model has no logits
refused 2 heads -f texts --by nonsense
has err 'nonsense'
refused 2 heads -f texts --by gate --loss nonsense
refused 2 heads -f texts --probes 3
has err 'requires --by'
for wrong in 0 -1 x 9999; do
    refused 2 heads -f texts --by jacobian_probe --probes $wrong
done

# With --loss mlm, the seed must determine the masked tokens.
mlm() { "$MHA" heads -m "$data/models/bert-mlm-tiny" -f words --json "$@"; }
printf 'you keep the count, and then again\nthey said: wait for the tank\nold men of age, and the sun\n' >words
for by in gate loo_loss; do
    expect 0 mlm --by $by --loss mlm
    cp out first
    at importance.by $by
    at importance.texts 3
    awk -v loss="$("$JSON_AT" importance.loss <out)" 'BEGIN { exit !(loss > 1 && loss < 50) }' || fail "$by: the masked-token loss must be between 1 and 50"
    expect 0 mlm --by $by --loss mlm --no-progress
    same out first 'masked words, again'
    expect 0 mlm --by $by --loss mlm --seed 7
    cmp -s out first && fail 'the seed must change the masked tokens'
done
refused 2 heads -f words --by gate --loss mlm # the model has no logits
refused 2 "$MHA" heads -m "$data/models/gpt2-tiny" -f words --by gate --loss mlm
has err '[MASK]'

# Output must fit the width of COLUMNS, and must have colors only on a terminal.
for width in 40 60 80 120; do
    expect 0 env COLUMNS=$width "$MHA" heads -m "$tiny" 'you keep the count'
    most=$(awk '{ if (length > most) most = length } END { print most }' out)
    [ "$most" -le $width ] || fail "lines must have at most $width columns (got $most)"
    expect 0 env COLUMNS=$width "$MHA" heads -m "$tiny" -f texts --by jacobian_probe
    most=$(awk '{ if (length > most) most = length } END { print most }' out)
    [ "$most" -le $width ] || fail "importance: lines must have at most $width columns (got $most)"
done
has_not out "$(printf '\033')"
if script -qec true /dev/null </dev/null >/dev/null 2>&1; then
    on_terminal() { script -qec "$1" /dev/null </dev/null >out; }
    on_terminal "TERM=xterm '$MHA' heads -m '$tiny' keep" || fail 'must succeed on a terminal'
    has out "$(printf '\033[48;5;')"
    on_terminal "TERM=xterm '$MHA' heads -m '$tiny' keep --by confidence" || fail '--by must succeed on a terminal'
    has out "$(printf '\033[48;5;226')"
    for plain in NO_COLOR=1 TERM=dumb; do
        on_terminal "TERM=xterm $plain '$MHA' heads -m '$tiny' keep --no-progress" || fail "must succeed on a terminal with $plain"
        has_not out "$(printf '\033[48')"
    done
else
    echo 'skipped: colors on a terminal: script is not installed or cannot open a terminal'
fi

# `mha demo` must print the text that the built-in model generates and the heads that copy it, and write a page of heads.
expect 0 "$MHA" demo -o page.html
has out 'Repeat after me: wug dax blicket toma fep.'
has out '... wug dax blicket toma fep.'
has out ' induction '
has out 'continues repeats'
# shellcheck disable=SC2016 # $1 belongs to awk
awk '/with all .* heads$/ { all = $1 } / the induction heads:/ { without = $1 } / other heads of/ { others = $1 }
    END { exit !(all > 70 && without < all / 4 && others > all / 2) }' out || fail "the induction heads must be required for copying (got $(grep '%' out | tail -n 4))"
has page.html 'builtin'
has err 'open it in a browser'
cp out first
expect 0 "$MHA" demo -t 3
same out first '3 threads'
refused 2 "$MHA" demo -o page.html # the file exists

if [ -d "$minilm" ]; then
    mkdir -p "$XDG_CACHE_HOME/mha"
    ln -s "$minilm" "$XDG_CACHE_HOME/mha/minilm"
    expect 0 "$MHA" heads -m minilm --json 'The ferry leaves at noon.'
    at model minilm
    at labels.0.2 prev
else
    echo "skipped: labels of MiniLM, which is not installed (./run fetch minilm)"
fi
# ---- color scale ----
refused 2 "$MHA" heads -m "$tiny" 'the cat' --colors cubic
has err '--colors must be one of root, linear (got "cubic")'
finish

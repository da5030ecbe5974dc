#!/bin/sh
# test_cli_lens.sh - tests `mha attribute`, `mha lens` and `mha circuit`: results, formats, exit codes and messages.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
text=' red cat key boat hat drum red cat key'
attribute() { "$MHA" attribute "$@"; }
lens() { "$MHA" lens "$@"; }
circuit() { "$MHA" circuit "$@"; }

# ---- attribute ----

expect 0 attribute "$text" --answer ' boat' --wrong ' ring' --json
at position 8
at answer.token ' boat'
at wrong.token ' ring'
at target 'difference'
at parts.heads.# 2
at parts.heads.1.# 8
at parts.sources.1.0.# 9
cp out whole
# The sum of the parts must be the total.
cat >sum.py <<'PY'
import json, sys
r = json.load(open(sys.argv[1]))
p = r["parts"]
total = p["embed"] + p["pos_embed"] + p["norm_bias"] + p["logit_bias"] + sum(map(sum, p["heads"])) + sum(p["attn_bias"]) + sum(p["mlp"])
assert abs(total - r["total"]) < 1e-4, (total, r["total"])
assert all(abs(sum(s) - h) < 1e-4 for hs, ss in zip(p["heads"], p["sources"]) for h, s in zip(hs, ss))
PY
if command -v python3 >/dev/null; then
    python3 sum.py whole || fail 'the parts must add up to the total'
fi

# Ids and positions in all forms must give the same result as texts.
ids=$("$MHA" tokenize "$text" --json | sed 's/.*"ids": \[\([0-9, ]*\)\].*/\1/' | tr -d ' ')
expect 0 attribute --ids "$ids" --answer 383 --wrong 368 --json
same out whole 'ids and texts'
expect 0 attribute "$text" --answer ' boat' --wrong ' ring' --json --position -1
same out whole '--position -1'
expect 0 attribute "$text" --answer ' boat' --wrong ' ring' --json --position 3
cp out earlier
expect 0 attribute "$text" --answer ' boat' --wrong ' ring' --json --position boat
same out earlier '--position with a token'
expect 0 attribute "$text" --answer ' boat'
has out 'logit above the mean'
for by in component head source; do
    expect 0 attribute "$text" --answer ' boat' --by $by --csv
    [ "$(wc -l <out)" -gt 6 ] || fail "--by $by --csv must have a line per cell"
done
expect 0 attribute "$text" --answer ' boat' -o page.html
[ ! -s out ] || fail 'with -o, stdout must be empty'
has page.html 'Parts by source token'
refused 2 attribute "$text" --answer ' boat' -o page.html

refused 2 attribute "$text"
has err 'missing --answer'
refused 2 attribute "$text" --answer ' boat ring'
has err '--answer must be one token, with its leading space (got " boat ring", 2 tokens'
refused 2 attribute "$text" --answer ' boat' --position key
has err 'which occurs 2 times'
refused 2 attribute "$text" --answer ' boat' --position 9
has err '--position must be from -9 to 8 (got 9)'
refused 2 attribute "$text" --answer ' boat' --by layer
has err '--by must be component, head or source (got "layer")'
refused 2 attribute "$text" --answer ' boat' --target difference
refused 2 attribute --ids 1,2 --answer 99999
has err '--answer must be a token id from 0 to 1023'
refused 2 attribute one two --answer ' boat'
refused 3 attribute -m "$data/models/bert-mlm-tiny" --ids 2,5,3 --answer 7
has err 'got bert: a norm after each layer'

# ---- lens ----

expect 0 lens "$text" --target ' boat' --json
at top.# 3
at top.0.# 9
at top.2.8.0.token ' boat'
at target_ranks.2.8 0
at kl.2.8 0.0
expect 0 lens "$text" --csv --top 2
[ "$(wc -l <out)" = $((1 + 3 * 9 * 2)) ] || fail "--csv must have a line per layer, token and prediction (got $(wc -l <out))"
expect 0 lens "$text" --top 1
has out 'after token 8'
expect 0 lens -m "$data/models/bert-mlm-tiny" --ids 2,5,4,3 --json
at targets '[2,5,4,3]'
expect 0 lens "$text" -o lens.html
has lens.html 'Logit lens'
refused 2 lens "$text" --top 0
refused 2 lens "$text" --target 'not one token'
refused 3 lens -m "$tiny" --ids 2,5,3
has err 'output head'

# ---- circuit ----

expect 0 circuit --json
at baseline 0.0883883476
at heads.# 16
at singular.qk.1.7.# 32
at composition.compose_k.# 16
at composition.compose_k.0.0 0.0
at copying_centred.# 2
at undefined '{}'
expect 0 circuit --csv
[ "$(wc -l <out)" = 17 ] || fail 'circuit --csv must have a line per head'
expect 0 circuit --compose v --singular 0.5
has out 'ov of head 0.5'
has out 'strongest v-composition'
expect 0 circuit -o circuit.html
has circuit.html 'K-composition above random heads'
refused 3 circuit -m "$data/models/bert-mlm-tiny"
has err '--raw is required for a post-norm model (got bert'
expect 0 circuit -m "$data/models/bert-mlm-tiny" --raw
has out 'copying: not defined for bert'
expect 0 circuit -m "$data/families/qwen3" --json
at undefined.qk 'q and k are divided by norms that depend on the text'
refused 3 circuit -m "$data/families2/deepseek-v3"
has err 'latent attention'
refused 2 circuit --compose x
has err '--compose must be q, k or v (got "x")'
refused 2 circuit --singular 2.0
has err '--singular must be a head of the model (got 2.0)'
refused 2 circuit --singular five
refused 2 circuit some text

# ---- figures ----
expect 0 attribute "$text" --answer ' boat' --wrong ' ring' -o parts.svg
has parts.svg '<svg'
expect 0 lens "$text" -o lens.png
printf '\211PNG' | cmp -s -n 4 - lens.png || fail 'lens.png must be a PNG'
expect 0 circuit -o circuit.pdf
printf '%%PDF' | cmp -s -n 4 - circuit.pdf || fail 'circuit.pdf must be a PDF'
# The columns of a long text are drawn in several bands, each with the row names.
expect 0 lens "$(yes 'red cat' | head -n 250 | tr '\n' ' ')" -o long.png
expect 0 lens "$(yes 'red cat' | head -n 250 | tr '\n' ' ')" -o long.svg
width=$(sed -n 's/.*<svg .*width="\([0-9]*\).*/\1/p' long.svg | head -n 1)
height=$(sed -n 's/.*<svg .*height="\([0-9]*\).*/\1/p' long.svg | head -n 1)
[ "$width" -le 3060 ] && [ "$height" -ge 400 ] || fail "a long figure must be split (got $width x $height)"

# Hostile text must be escaped on the terminal.
expect 0 lens "$(printf 'a\033[31mb \342\200\256c')"
harmless out
finish

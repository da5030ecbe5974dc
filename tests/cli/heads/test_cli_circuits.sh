#!/bin/sh
# Tests `mha patch` and `mha knockout`: every command of docs/circuits.md must print the lines shown there; formats, pairs,
# and messages for prompts and answers that cannot be used.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# ---- the commands of docs/circuits.md ----
shown=0
while IFS= read -r line; do
    case $line in
    '```console') on=1 ;;
    '```') on=0 ;;
    '$ mha '*)
        [ "${on:-0}" = 1 ] || continue
        eval "set -- ${line#\$ mha }"
        expect 0 "$MHA" "$@"
        shown=$((shown + 1))
        ;;
    *) [ "${on:-0}" = 0 ] || has out "$line" ;;
    esac
done <"$here/docs/circuits.md"
[ "$shown" -ge 7 ] || fail "docs/circuits.md must show at least 7 commands (got $shown)"
# The figure of the page has the edges of the figure that its command draws; text depends on the font.
curves() { grep -o 'd="M [0-9. ]*C [0-9. ]*"' "$1" | sort; }
curves circuit-paths.svg >drawn
curves "$here/docs/images/circuit-paths.svg" >want
[ "$(grep -c . drawn)" -eq 11 ] || fail "the figure must have 11 edges (got $(grep -c . drawn))"
same drawn want 'docs/images/circuit-paths.svg must be the figure of its command'

clean=' red cat key boat hat drum red cat key'
corrupted=' red cat key ring hat drum red cat key'
patch() { "$MHA" patch "$clean" --corrupted "$corrupted" --answer ' boat' --wrong ' ring' "$@"; }

# ---- formats ----
expect 0 patch --json
at site z
at by head
at exact true
at case.position 8
at 'axes.1' head
expect 0 patch --site resid_pre --direction both --json
at 'grids.1.direction' noise
expect 0 patch --csv
has out 'site,by,direction,metric,estimate,sender,layer,head,position,raw,normalised,interval'
has out 'z,head,denoise,logit-diff,exact,,0,1,,'
expect 0 patch --path all --csv
has out 'k,path,denoise,logit-diff,exact,0.5,1,3,,'
expect 0 patch --path 0.5 --to v --csv
has out 'v,path,denoise,logit-diff,exact,0.5,1,7,,'
expect 0 patch --path 0.5 --to v
has out 'v by path from 0.5, denoise: '
expect 0 patch --path 1.4 --to logits --csv
has out 'logits,path,denoise,logit-diff,exact,1.4,,,,'
expect 0 patch --path all --to logits --json
at axes.0 sender
at heads.0 8
expect 0 patch --path 0.5 --json
at sender 0.5
expect 0 patch --site all --by head-position --json
at grids.4.site pattern
expect 0 patch --site all -o page.html
has page.html '"pattern"'
refused 2 patch -o page.html
expect 0 patch -o -
has out '</html>'
has_not out 'top answer'
refused 2 patch -o - --csv
# Without a wrong answer, the metric is the log-probability of the answer.
expect 0 "$MHA" knockout "$clean" --answer ' boat' --sweep row --json
at by row
at metric logprob
at case.wrong null
expect 0 "$MHA" knockout "$clean" --answer ' boat' --from -1 --to 3
has out 'answer     " boat" after token 8'
has out 'logprob, nats'

# ---- every edge ----
expect 0 patch --edges --json
at axes.0 edge
at edges.0.from embedding
at edges.0.to 0.0
at edges.0.input q
expect 0 patch --edges --csv
has out 'mlp,path,denoise,logit-diff,exact,0.5,0,,,'
has out 'logits,path,denoise,logit-diff,exact,mlp 1,,,,'
expect 0 patch --edges --direction both --metric kl -o edges.html
has edges.html '"graph"'
expect 0 patch --edges -o edges.png --top 3
has err 'the 3 strongest of 310 edges'
refused 2 patch --edges --path all
refused 2 patch --edges --site q
refused 2 patch --edges --direction both -o both.svg
expect 0 "$MHA" patch "$clean" --corrupted "$clean" --answer ' boat' --wrong ' ring' --edges -o none.svg
has err 'the 0 strongest'

# Figures of grids: the orange of a cell with the whole effect has the opacity 0.65.
whole() { grep -c 'rgb(76%, *25%, *5%).*opacity[:="]*0\.65[";]' "$1"; }
expect 0 patch --site resid_pre -o grid.svg
has out '+1.00'
[ "$(whole grid.svg)" = 1 ] || fail "one cell of layer 0 has the whole effect (got $(whole grid.svg))"
expect 0 patch --site all --direction both -o grids.png
printf '\211PNG' | cmp -s -n 4 - grids.png || fail 'grids.png must be a PNG'
expect 0 "$MHA" knockout "$clean" --answer ' boat' -o knockout.pdf
printf '%%PDF' | cmp -s -n 4 - knockout.pdf || fail 'knockout.pdf must be a PDF'
expect 0 "$MHA" knockout "$clean" --answer ' boat' --from -1 --to boat -o edge.svg
has edge.svg '<svg'

# An edge is the one that is named: removing the weight of `boat` is not removing the weight of `red`.
expect 0 "$MHA" knockout "$clean" --answer ' boat' --wrong ' ring' --from -1 --to boat --layers 1 --json
mv out boat.json
expect 0 "$MHA" knockout "$clean" --answer ' boat' --wrong ' ring' --from -1 --to 3 --layers 1 --json
same out boat.json '--to accepts a token and its index'
expect 0 "$MHA" knockout "$clean" --answer ' boat' --wrong ' ring' --from -1 --to 0 --layers 1 --json
cmp -s out boat.json && fail '--to must select the removed edge'

# Equal prompts change nothing and are not normalized.
expect 0 "$MHA" patch "$clean" --corrupted "$clean" --answer ' boat' --wrong ' ring' --json
at normalised null
has err 'hardly differ'

# ---- pairs ----
printf '%s\n' '{"clean": " red cat key boat hat drum red cat key", "corrupted": " red cat key ring hat drum red cat key", "answer": " boat", "wrong": " ring"}' \
    '{"clean": " red cat boat hat red cat", "corrupted": " red cat ring hat red cat", "answer": " boat", "wrong": " ring", "position": -1}' >pairs.jsonl
expect 0 "$MHA" patch --pairs pairs.jsonl --json
at pairs 2
has out '"interval"'
expect 0 "$MHA" patch --pairs pairs.jsonl --edges -o pairs.html
has pairs.html '"half"'
has pairs.html '"pairs":2'
expect 0 patch --edges -o pair.html
has_not pair.html '"half":'
# The figure is wider with intervals.
width() { sed -n 's/.*<svg [^>]*width="\([0-9]*\).*/\1/p' "$1" | head -n 1; }
expect 0 "$MHA" patch --pairs pairs.jsonl --edges -o pairs.svg
expect 0 patch --edges -o pair.svg
[ "$(width pairs.svg)" -gt "$(width pair.svg)" ] || fail 'the figure of several pairs must have intervals'

# The interval of two pairs is 12.7062 times half the difference of their changes.
expect 0 "$MHA" patch --pairs pairs.jsonl --raw-metric --json
interval=$("$JSON_AT" interval.0.3 <out)
for pair in 1 2; do
    sed -n "${pair}p" pairs.jsonl >pair.jsonl
    expect 0 "$MHA" patch --pairs pair.jsonl --raw-metric --json
    "$JSON_AT" raw.0.3 <out
    "$JSON_AT" metrics.corrupted <out
done >changes
awk -v got="$interval" '{ v[NR] = $1 }
    END { d = (v[1] - v[2] - v[3] + v[4]) / 2 * 12.7062047; e = got - (d < 0 ? -d : d); exit !(e < 1e-6 && e > -1e-6) }' changes ||
    fail "the interval must be that of the changes of the pairs (got $interval)"

# ---- state ----
# A run over many pairs that is killed and resumed prints the bytes of an uninterrupted run.
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do cat pairs.jsonl; done >many.jsonl
many() { "$MHA" patch --pairs many.jsonl --direction both --json --no-progress "$@"; }
expect 0 many
mv out whole
"$MHA" patch --pairs many.jsonl --direction both --json --no-progress --state kept >/dev/null 2>&1 &
run=$!
until [ -s kept.3.z.denoise ]; do kill -0 $run || break; done
kill -9 $run 2>/dev/null
wait $run 2>/dev/null
[ -s kept.1.z.noise ] || fail 'the first pair must be saved'
expect 0 many --state kept
same out whole 'a killed run'
[ -s kept.24.z.noise ] || fail 'the last pair must be saved'
expect 0 many --state kept
same out whole 'a complete state'
refused 2 patch --by head-position --state kept
has err 'kept.1.z.denoise: state must be from a run with the same options (got patch z by head, denoise'
refused 2 "$MHA" patch "$clean" --corrupted "$corrupted" --answer ' boat' --wrong ' drum' --state kept
has err 'kept.1.z.denoise: state must be from a run with the same model and data (got other data)'
expect 0 "$MHA" heads "$clean" --json --state other # a state file of another command
cp other.statistics kept.1.z.denoise
refused 2 patch --state kept
has err 'kept.1.z.denoise: state must be from a run with the same options (got '
printf 'no state' >kept.1.z.denoise
refused 3 patch --state kept
has err 'kept.1.z.denoise'
for other in '--edges' '--path all' '--estimate attr'; do
    # shellcheck disable=SC2086 # an option and its value
    refused 2 patch $other --state kept
    has err "--state must not be given with ${other%% *}"
done
refused 2 patch --state ''

refused 2 "$MHA" patch --pairs pairs.jsonl --site resid_pre
has err '--by head'
printf '{"clean": "a"}\n' >broken.jsonl
refused 3 "$MHA" patch --pairs broken.jsonl
printf '\n{"clean": \n' >broken.jsonl
refused 3 "$MHA" patch --pairs broken.jsonl
has err 'broken.jsonl: line 2: '
has_not err 'line 1'
# Messages name the line and the member of a pair; a misspelled key must not be ignored.
broken() { printf '\n{"clean": " red cat", "corrupted": " red key", "answer": " boat", %s}\n' "$1" >broken.jsonl; }
broken '"wrong": " ring", "positon": 0'
refused 3 "$MHA" patch --pairs broken.jsonl
has err 'broken.jsonl: line 2: pair must be an object'
broken '"wrong": " ring", "position": 7'
refused 2 "$MHA" patch --pairs broken.jsonl
has err 'broken.jsonl: line 2: position must be from -2 to 1 (got 7)'
broken '"wrong": " boathouse"'
refused 2 "$MHA" patch --pairs broken.jsonl
has err 'broken.jsonl: line 2: wrong must be one token, with its leading space (got " boathouse", 3 tokens, the first is " boat")'
broken '"wrong": " boat"'
refused 2 "$MHA" patch --pairs broken.jsonl
has err 'broken.jsonl: line 2: wrong must differ from the answer'

# ---- pruned models: heads have the numbers of the unpruned model ----
expect 0 "$MHA" prune -m builtin --heads 0.0,0.3,1.1 -o pruned
pruned() { patch -m pruned "$@"; }
expect 0 pruned --csv
# `layer head` of the rows; the removed heads are missing.
cut -d, -f7,8 out | grep '^[0-9]' | tr , . | tr '\n' ' ' >numbers
[ "$(cat numbers)" = '0.1 0.2 0.4 0.5 0.6 0.7 1.0 1.2 1.3 1.4 1.5 1.6 1.7 ' ] || fail "patch --csv must list the heads by number (got $(cat numbers))"
value=$(sed -n 's/^z,head,denoise,logit-diff,exact,,0,7,,[^,]*,\([^,]*\),$/\1/p' out)
# The largest estimate is patched by position and printed with its number.
expect 0 pruned --by head --estimate attr --verify 13 --top 0
grep '^  0\.7 z' out | grep -q "exact $(printf %.3f "$value")$" || fail '--verify must patch the head that it names'
expect 0 pruned --json
at raw.0.0 null
at raw.1.1 null
[ "$("$JSON_AT" normalised.0.7 <out)" = "$value" ] || fail 'elements of --json must be at the numbers of their heads'
expect 0 pruned --site k
has out '  0.1 k 0.07'
expect 0 pruned --path all --to logits --csv
has out 'logits,path,denoise,logit-diff,exact,0.7,'
has_not out ',0.3,'
value=$(sed -n 's/^logits,path,denoise,logit-diff,exact,1.4,,,,\([^,]*\),.*/\1/p' out)
expect 0 pruned --path 1.4 --to logits --raw-metric --json
[ "$("$JSON_AT" raw.0 <out)" = "$value" ] || fail '--path must patch the head that it names'
expect 0 pruned --edges --csv
has out 'q,path,denoise,logit-diff,exact,0.7,1,2,,'
has_not out ',1,1,,'
expect 0 pruned --edges -o pruned.html
has pruned.html '"name":"0.7","x"'
has_not pruned.html '"name":"1.1"'
expect 0 pruned -o pruned.html --force
has pruned.html '"readers":[[[],[1],[2],[],[4],'
expect 0 "$MHA" knockout -m pruned "$clean" --answer ' boat' --wrong ' ring' --sweep row --csv
has out 'renorm,row,,logit-diff,exact,,1,7,,'
has_not out ',0,3,,'
expect 0 "$MHA" attribute -m pruned "$clean" --answer ' boat' --json
at parts.head_numbers.0.0 1
at parts.head_numbers.1.1 2

# A key/value head has the number that it had in the unpruned model.
expect 0 "$MHA" prune -m "$data/families/llama" --heads 0.0,0.1 -o groups
expect 0 "$MHA" patch -m groups --ids 2,5,4,3 --corrupted 2,6,4,3 --answer 9 --wrong 8 --site v --csv
has out 'v,head,denoise,logit-diff,exact,,0,1,,'
has out 'v,head,denoise,logit-diff,exact,,1,0,,'
has_not out 'exact,,0,0,,'
expect 0 "$MHA" patch -m groups --ids 2,5,4,3 --corrupted 2,6,4,3 --answer 9 --wrong 8 --site v -o groups.html
has groups.html '"readers":[[[],[2,3]],[[0,1],[2,3]]]'

# ---- messages ----
refused 2 "$MHA" patch "$clean" --corrupted "$corrupted b" --answer ' boat' --wrong ' ring'
has err 'same number of tokens'
refused 2 "$MHA" patch "$clean" --corrupted "$corrupted" --answer ' boathouse' --wrong ' ring'
has err 'must be one token'
refused 2 patch --site head
refused 2 patch --by row
refused 2 patch --site z --by position
refused 2 patch --metric loss
refused 2 "$MHA" knockout "$clean" --answer ' boat' --metric logit-diff
has err '--metric logit-diff requires --wrong TOKEN'
refused 2 "$MHA" knockout "$clean" --answer ' boat' --wrong ' boat'
has err '--wrong must differ from the answer'
refused 2 patch --estimate guess
refused 2 patch --path 9.9
refused 2 patch --to q
refused 2 patch --path 0.5 --site q
refused 2 patch --path 0.5 --estimate attr
refused 2 patch --estimate qkfix
refused 2 patch --estimate attr --verify 2 --json
refused 2 patch --draws 3
refused 2 "$MHA" patch "$clean" --noise boat,3,3,3,3,3,3,3,3,3 --answer ' boat'
has err 'at most one entry per token'
expect 0 "$MHA" patch "$clean" --noise boat --draws 2 --answer ' boat' --csv
expect 0 "$MHA" patch "$clean" --noise boat --draws 2 --answer ' boat'
has out 'first of 2 draws of noise'
has out '* boat'
refused 2 patch --metric kl --estimate attr --direction noise
refused 2 "$MHA" knockout "$clean" --answer ' boat' --from nothing
refused 2 "$MHA" knockout "$clean" --answer ' boat' --heads 1.9
refused 2 "$MHA" knockout "$clean" --answer ' boat' --layers 0-2
refused 3 "$MHA" patch -m "$data/models/bert-mlm-tiny" --ids 2,5,4,3 --corrupted 2,6,4,3 --answer 9 --wrong 8 --position 2 --path all
has err 'post-norm'
finish

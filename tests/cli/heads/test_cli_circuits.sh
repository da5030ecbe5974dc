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
has out 'site,by,direction,metric,estimate,layer,head,position,raw,normalised,interval'
has out 'z,head,denoise,logit-diff,exact,0,1,,'
expect 0 patch --site all -o page.html
has page.html '"pattern"'
refused 2 patch -o page.html
expect 0 "$MHA" knockout "$clean" --answer ' boat' --sweep row --json
at by row

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
refused 2 "$MHA" patch --pairs pairs.jsonl --site resid_pre
has err '--by head'
printf '{"clean": "a"}\n' >broken.jsonl
refused 3 "$MHA" patch --pairs broken.jsonl
printf '{"clean": \n' >broken.jsonl
refused 3 "$MHA" patch --pairs broken.jsonl

# ---- messages ----
refused 2 "$MHA" patch "$clean" --corrupted "$corrupted b" --answer ' boat' --wrong ' ring'
has err 'same number of tokens'
refused 2 "$MHA" patch "$clean" --corrupted "$corrupted" --answer ' boathouse' --wrong ' ring'
has err 'must be one token'
refused 2 patch --site head
refused 2 patch --by row
refused 2 patch --site z --by position
refused 2 patch --metric loss
refused 2 patch --estimate guess
refused 2 patch --path 9.9
refused 2 patch --to q
refused 2 patch --metric kl --estimate attr --direction noise
refused 2 "$MHA" knockout "$clean" --answer ' boat' --from nothing
refused 2 "$MHA" knockout "$clean" --answer ' boat' --heads 1.9
refused 2 "$MHA" knockout "$clean" --answer ' boat' --layers 0-2
refused 3 "$MHA" patch -m "$data/models/bert-mlm-tiny" --ids 2,5,4,3 --corrupted 2,6,4,3 --answer 9 --wrong 8 --position 2 --path all
has err 'post-norm'
finish

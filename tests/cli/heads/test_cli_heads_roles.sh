#!/bin/sh
# test_cli_heads_roles.sh - tests `mha heads --roles`: the tagged text, accuracies recomputed from attention maps, chance
# levels, and malformed files.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
roles=$here/share/mha/texts/roles.txt

# ---- the tagged text: counts and chance levels, counted by awk ----
[ "$(wc -l <"$roles")" = 40 ] || fail "the tagged text must have 40 sentences"
for role in subject object determiner pronoun; do
    awk -F'\t' -v role="$role" '
        { n = split($2, relation, ", ")
          for (i = 1; i <= n; i++) { split(relation[i], part, /[ >]/); if (part[1] == role) { all++; if (++same[part[2] - part[3]] > most) most++ } } }
        END { printf "%d %.6f\n", all, most / all }' "$roles" >"$role"
done
expect 0 "$MHA" heads 'the cat' --roles "$roles" --json --no-probe
at roles.sentences 40
for role in subject object determiner pronoun; do
    read -r all most <"$role"
    at "roles.relations.$role" "$all"
    awk -v a="$("$JSON_AT" "roles.offset.$role" <out)" -v b="$most" 'BEGIN { exit (a - b) ^ 2 > 1e-10 }' || fail "the chance level of $role must be $most"
done

# ---- one sentence: the accuracy must follow from the attention map ----
printf 'red cat drum kite red\tsubject 3>2, object 5>3, determiner 5>4\n' >one.txt
for model in builtin "$tiny"; do
    expect 0 "$MHA" heads -m "$model" 'red cat drum kite red' --roles one.txt --json --maps --no-probe
    cp out both
    n=$("$JSON_AT" 'tokens.#' <both)
    # With one token per word, word w is token w - 1, after [CLS] in the encoder.
    first=$((n == 5 ? 0 : 1))
    [ "$n" = $((5 + 2 * first)) ] || continue # a word has several tokens
    for at in 0.0 0.1 1.0 1.1; do
        layer=${at%.*} head=${at#*.}
        "$JSON_AT" "attention.$layer.$head" <both | tr -d '[]' | tr ',' '\n' >map
        awk -v n="$n" -v f="$first" '
            { p[NR - 1] = $1 }
            function right(later, earlier,   k, best) {
                best = -1
                for (k = f; k < f + 5; k++)
                    if (k != later + f - 1 && (f == 1 || k < later) && (best < 0 || p[(later + f - 1) * n + k] > p[(later + f - 1) * n + best])) best = k
                return best == earlier + f - 1
            }
            END { print right(3, 2), right(5, 3), right(5, 4) }' map >want
        got="$("$JSON_AT" "roles.accuracy.subject.$layer.$head" <both | cut -c1) $("$JSON_AT" "roles.accuracy.object.$layer.$head" <both | cut -c1) $("$JSON_AT" "roles.accuracy.determiner.$layer.$head" <both | cut -c1)"
        [ "$got" = "$(cat want)" ] || fail "$model head $at: accuracies must be $(cat want) (got $got)"
    done
    compared=yes
done
[ "${compared-}" = yes ] || fail 'at least one model must have one token per word'
# A role without relations has no value.
"$JSON_AT" roles.accuracy.pronoun.0.0 <both | grep -q null || fail 'a role without relations must be null'

# ---- table ----
expect 0 "$MHA" heads 'the cat' --roles "$roles" --no-probe
has out 'determiner'
has out 'at least 0.10 above chance'
for columns in 40 100; do
    expect 0 env COLUMNS=$columns "$MHA" heads 'the cat' --roles one.txt --no-probe
done

# ---- documented roles of MiniLM ----
if [ -d "$minilm" ]; then
    expect 0 "$MHA" heads -m "$minilm" 'the cat' --roles "$roles" --no-probe --json
    at roles.labels.2.0 object
    at roles.labels.3.1 pronoun
    at roles.labels.1.3 pronoun
fi

# ---- malformed files ----
bad() {
    printf "$1" >bad.txt # shellcheck disable=SC2059
    refused 3 "$MHA" heads 'the cat' --roles bad.txt
    has err "bad.txt: line $2: $3"
    harmless err
}
bad 'a cat sat\n' 1 'a line must have a sentence, a tab and relations'
bad 'a cat sat\tsubject 3>2\na cat  sat\tsubject 3>2\n' 2 'words must be separated by single spaces'
bad 'a cat sat\tsubject 2>3\n' 1 'a relation must be ROLE LATER>EARLIER'
bad 'a cat sat\tsubject 4>3\n' 1 'a relation must be ROLE LATER>EARLIER'
bad 'a cat sat\tverb 3>2\n' 1 'a relation must be ROLE LATER>EARLIER'
bad 'a cat sat\tsubject 3>0\n' 1 'a relation must be ROLE LATER>EARLIER'
bad 'a cat sat\tsubject 3>2;object 3>1\n' 1 'a relation must be ROLE LATER>EARLIER'
bad 'a cat sat\tsubject 99999999999999999999>2\n' 1 'a relation must be ROLE LATER>EARLIER'
bad 'a !!! cat\tsubject 3>1\n' 1 'words must be separated by single spaces and not be punctuation only'
many=$(seq -s ' ' 65)
bad "$many\tsubject 3>2\n" 1 'a sentence must have at most 64 words'
bad "a cat sat\t$(for n in $many; do printf 'subject 3>2, '; done)\n" 1 'a sentence must have at most 64 relations'
printf 'a cat sat\t\n' >bad.txt
refused 3 "$MHA" heads 'the cat' --roles bad.txt
has err 'bad.txt: the text must have at least one relation (got none)'
refused 3 "$MHA" heads 'the cat' --roles missing.txt
# The tagged text is read before the texts are measured, and always line by line.
refused 3 "$MHA" heads ' ' --roles missing.txt
has err missing.txt
printf 'the cat\nsat\n\na dog\n' >texts.txt
expect 0 "$MHA" heads -f texts.txt --documents paragraph --roles "$roles" --json --no-probe
at texts 2
at roles.sentences 40
refused 2 "$MHA" heads 'the cat' --roles one.txt --csv
finish

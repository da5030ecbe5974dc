#!/bin/sh
# test_cli_score.sh - `mha score`: loss and log-probabilities, one object per text, whatever the other texts and threads.
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
[ "$(wc -l <out)" = 2 ] || fail 'two texts are not two objects'
sed -n 2p out >second
same alone second 'the score of a text depends on its neighbours or on threads'
expect 0 score --json ''
at loss null
expect 0 score --tokens 'Hello, world!' 'Goodbye'
has out perplexity
has out ' all '

# The loss is the mean of what the tokens have.
expect 0 score --json 'wait for the tank'
sed 's/.*"loss": \([0-9.]*\).*"logprobs": \[null, \([^]]*\)\].*/\1 \2/; s/,//g' out |
    awk '{ for (n = 2; n <= NF; n++) sum -= $n; d = sum / (NF - 1) - $1; exit !(d < 1e-6 && d > -1e-6) }' ||
    fail 'the loss is not the mean of the log-probabilities'

refused 3 "$MHA" score -m "$data/models/bert-tiny" text
has err 'is an encoder'
refused 2 score
finish

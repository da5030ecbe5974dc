#!/bin/sh
# test_cli_train_log.sh - when a training run is resumed, its log must be truncated after the step of the checkpoint and
# continued, or, if it is invalid, rejected.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -t 1 "$@"; }

counting 40 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 train -q --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 4 --sample the --sample-every 2 --sample-tokens 3 \
    -o base
log=base/training.jsonl
lines() { [ "$(wc -l <"$1")" = "$2" ] || fail "$3: $1 must have $2 lines (got $(wc -l <"$1"))"; }
# again FOLDER: replaces FOLDER with a copy of the checkpoint at step 4.
again() {
    rm -rf "$1"
    cp -r base "$1"
}

# Records up to the step of the checkpoint must not change by a single byte; later records and incomplete lines must be
# removed.
again cut
printf '{"step":5,"loss":3,"tokens":640,"seconds":1}\n{"step":6,"lo' >>cut/training.jsonl
expect 0 train -q --resume -o cut
same $log cut/training.jsonl 'the log before and after'
printf '{"step":5' >>cut/training.jsonl
expect 0 train -q --resume -o cut --steps 6
lines cut/training.jsonl 7 'two more steps'
head -n 5 cut/training.jsonl >five
same $log five 'the records before the checkpoint'
# A log that a user has edited, without the last newline and with additional spaces, must be continued.
again edited
head -c -1 $log | sed 's/,"loss"/, "loss"/' >edited/training.jsonl
cp edited/training.jsonl before
expect 0 train -q --resume -o edited
echo >>before
same before edited/training.jsonl 'an edited log'
expect 0 train -q --resume -o edited --steps 5
lines edited/training.jsonl 6 'one more step'
head -n 5 edited/training.jsonl >five
same before five 'the edited records must be kept'

# A temporary file of a killed process with the same process id must not cause an error: process ids repeat in
# containers.
again left
# shellcheck disable=SC2016 # the inner shell expands $$ and becomes the program
expect 0 sh -c 'touch .logged.jsonl.tmp.$$; exec "$MHA" train -q -t 1 --resume -o left --steps 6 --log logged.jsonl'
same left/training.jsonl logged.jsonl 'with a leftover temporary file'

# A new file of --log must begin with the records of all previous steps. An existing file must be replaced only with
# --force, and symbolic links must not be followed.
again copied
echo 'not a log' >log.csv
ln -s log.csv link.csv
refused 2 train -q --resume -o copied --steps 5 --log log.csv
refused 1 train -q --resume -o copied --steps 5 --log link.csv --force
has err 'link.csv: cannot open the log'
mkfifo fifo.csv
refused 1 train -q --resume -o copied --steps 5 --log fifo.csv --force
has log.csv 'not a log'
expect 0 train -q --resume -o copied --steps 5 --log log.csv --force
lines log.csv 7 'the log must have a header and steps 0 to 5'
expect 0 train -q --resume -o copied --steps 6
lines log.csv 8 'the log must have a header and steps 0 to 6'
[ "$(grep -c step log.csv)" = 1 ] || fail 'the log must not have a header in the middle'

# On a full disk, here a limit on the size of files, a new log without a record must not remain, even if the checkpoint
# cannot be written either.
for limit in 0 1; do
    (
        ulimit -f $limit
        "$MHA" train -q -t 1 --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 4 -o full --log full.jsonl 2>&1
        echo "status $?"
    ) | cat >message
    has message 'status 1'
    [ ! -e full.jsonl ] || [ "$(tail -c 2 full.jsonl)" = '}' ] || fail "full.jsonl must contain complete records (got $(cat full.jsonl))"
    [ $limit = 1 ] || has message 'full.jsonl: cannot write the log'
    [ ! -e full ] || fail 'the folder of a run that failed must not exist'
    rm -f full.jsonl
done

# If the log is a symbolic link, the link must not be followed, and steps must not be logged until the next checkpoint
# replaces the log.
again linked
mv linked/training.jsonl elsewhere
cp elsewhere before
ln -s ../elsewhere linked/training.jsonl
expect 0 train --resume -o linked --steps 6
has err 'linked/training.jsonl: cannot open the log: Too many levels of symbolic links; logging resumes at the next checkpoint'
same elsewhere before 'the target of the link'
lines linked/training.jsonl 7 'after the next checkpoint'

# Counters that would overflow, invalid bytes, and a line longer than any record must be rejected.
number() {
    again wrong
    sed "\$s/\"tokens\":[0-9]*/\"tokens\":$1/" $log >wrong/training.jsonl
}
number 4611686018427387904
expect 0 train -q --resume -o wrong --json
refused 2 train -q --resume -o wrong --steps 5
has err 'tokens must be an integer from 0 to 4611686018427387904 (got 46116860184273'
number 4611686018427380000
expect 0 train -q --resume -o wrong --steps 5 --json
for tokens in 4611686018427387905 9223372036854775807 -1; do
    number $tokens
    refused 3 train --resume -o wrong --steps 5
    has err "wrong/training.jsonl: line 5: tokens must be an integer from 0 to 4611686018427387904 (got $tokens); repair the log, or move it away"
done
number 9223372036854775808
refused 3 train --resume -o wrong --steps 5
has err 'wrong/training.jsonl: line 5 must be the record of a step; repair the log, or move it away'
again wrong
sed '3s/$/\x00/' $log >wrong/training.jsonl
refused 3 train --resume -o wrong --steps 5
has err 'wrong/training.jsonl: line 3 must be the record of a step'
head -n 2 $log >wrong/training.jsonl
truncate -s +600M wrong/training.jsonl
tail -n 3 $log >>wrong/training.jsonl
if lives_with_little; then
    refused 3 with_little "$MHA" train --resume -o wrong --steps 5
    has err 'wrong/training.jsonl: line 3 must be the record of a step'
fi
refused 3 train --resume -o wrong --steps 5
has err 'wrong/training.jsonl: line 3 must be the record of a step'
# A FIFO in the folder must be rejected without waiting for a writer.
for name in training.json training.jsonl; do
    again piped
    rm piped/$name
    mkfifo piped/$name
    refused 3 timeout -k 1 10 "$MHA" train --resume -o piped --steps 5
    case $name in
    training.json) has err 'piped/training.json: must be a regular file (got a fifo)' ;;
    *) has err 'piped/training.jsonl: must be a regular file (got a fifo)' ;;
    esac
done
finish

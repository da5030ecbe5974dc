#!/bin/sh
# test_cli_train_keep.sh - `mha train` must not delete or overwrite other checkpoints and files, or its last valid
# checkpoint.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
train() { "$MHA" train -q -t 1 "$@"; }
new() { train --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 "$@"; }
# unchanged FOLDER: FOLDER must equal its copy FOLDER.before.
unchanged() { diff -r "$1" "$1.before" >differences || fail "$1 must not change (got $(cat differences))"; }

counting 60 >text
cp text text.before
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text

# --export must not replace existing files, except for an earlier export of the same run.
expect 0 new --steps 3 -o P
expect 0 new --steps 3 -o Q
expect 0 new --steps 3 -o R --export alone
cp -r P P.before
cp -r Q Q.before
refused 2 train --resume -o Q --steps 4 --export P
has err 'already contains a training run'
refused 2 train --resume -o Q --steps 4 --export alone
has err 'alone exists; --force replaces it'
expect 0 train --resume -o R --steps 4
expect 0 train --resume -o R --steps 5 --export alone
expect 0 "$MHA" info -m alone

# A resumed run reads only the -o folder, which may also be named by the options that it ignores.
expect 0 train --resume --from R -o R --steps 5
expect 0 train --resume --tokenizer R -o R --steps 5

# The --export folder must not be in the training folder or in a model that the run reads, whatever name it is given by.
ln -s Q link
for place in Q Q/ ./Q link Q/sub; do
    refused 2 train --resume --force -o Q --steps 4 --export "$place"
    has err 'must not be the -o folder or be inside it'
done
refused 2 new --steps 4 -o fresh --export fresh
has err 'the -o folder'
refused 2 train --force --from P -f text --steps 4 -o fresh --export P
has err '--export must not be an input (got "P", the folder read by --from)'
refused 2 train --force --from Q --teacher P -f text --steps 4 -o fresh --export ./P
has err '--export must not be an input (got "./P", the folder read by --teacher)'
expect 0 new --steps 3 -o other --export E
cp -r E E.before
refused 2 new --steps 4 --force -o E/sub --export E
has err "E must not contain the -o folder"
unchanged E
unchanged P
unchanged Q
[ ! -e fresh ] || fail 'a rejected command must not start training'

# --log must not replace existing files, inputs, or files in folders that the run reads or writes.
echo precious >notes
cp notes notes.before
refused 2 train --resume -o Q --steps 4 --log notes
has err 'notes exists; --force replaces it'
for list in '-f text' '-f text --eval text'; do
    # shellcheck disable=SC2086 # splits the variable into words
    refused 2 train --shape gpt2:1x1x8 --tokenizer bpe $list --length 16 --steps 4 --force -o fresh --log ./text
    has err 'must not be an input'
done
printf '\001\000\002\000\003\000\004\000' >ids.bin
refused 2 train --shape gpt2:1x1x8 --vocab 50 --tokens ids.bin --length 2 --steps 4 --force -o fresh --log ids.bin
has err 'must not be an input'
refused 2 new --steps 4 -o fresh --log -
has err 'must be the name of a file'
refused 2 train --resume -o Q --steps 4 --log Q/mine.csv
has err 'must not be in the -o folder'
refused 2 new --steps 4 --force -o fresh --export E --log E/log.csv
has err 'must not be in the --export folder'
refused 2 train --force --from P -f text --steps 4 -o fresh --log P/config.json
has err '--log must not be an input (got "P/config.json", a file in the folder read by --from)'
refused 2 train --force --from Q --teacher P -f text --steps 4 -o fresh --log ./P/config.json
has err '--log must not be an input (got "./P/config.json", a file in the folder read by --teacher)'
refused 2 train --force --from P -f text --steps 4 -o fresh --log P/new.csv
has err 'must not be in the --from folder'
refused 2 train --force --from Q --teacher P -f text --steps 4 -o fresh --export P/new
has err 'the --teacher folder'
unchanged P
same notes notes.before
same text text.before
unchanged Q
expect 0 train --resume -o R --steps 6 --log R.csv
expect 0 train --resume -o R --steps 7
[ "$(wc -l <R.csv)" = 9 ] || fail "R.csv must have 9 lines (got $(wc -l <R.csv))"
expect 0 train --resume -o R --steps 8 --log notes --force
[ "$(wc -l <notes)" = 9 ] || fail "notes must have 9 lines (got $(wc -l <notes))"
# The file names in training.json are not trusted, because the file may have been forged: a log must be recognized by its
# records, an export by its marker.
tamper() { sed "s|\"$1\": *\"[^\"]*\"|\"$1\": \"$2\"|" R/training.json >changed && mv changed R/training.json; }
cp notes rows.csv && cp notes rows.csv.before # records of this run, in another format
echo precious >precious.csv && cp precious.csv precious.csv.before
cp -r P model && rm model/training.* && cp -r model model.before
for name in rows.csv precious.csv; do
    tamper log "$name"
    refused 2 train --resume -o R --steps 9
    has err "$name is not a log of this run; --force replaces it"
    same "$name" "$name.before"
done
tamper log notes
tamper export model
refused 2 train --resume -o R --steps 9
has err 'model is not an export of this run; --force replaces it'
unchanged model
tamper export alone
expect 0 train --resume -o R --steps 9
[ "$(wc -l <notes)" = 10 ] || fail "notes must have 10 lines (got $(wc -l <notes))"
head -n 3 notes >short && mv short notes # the log of a run that was killed earlier
expect 0 train --resume -o R --steps 10
[ "$(wc -l <notes)" = 11 ] || fail "notes must have 11 lines (got $(wc -l <notes))"

# If the last step makes the weights NaN, the run must fail and keep the last valid checkpoint.
refused 1 train --shape llama:2x2x16 --tokenizer bpe -f text --length 16 --rate 1e6 --clip 0 --floor 0 --schedule constant --steps 3 \
    -o apart
has err 'step 4: the loss of batch 1 is nan; the first non-finite result is the output of layer 0'
expect 0 "$MHA" generate -m apart -n 4 'the number'

# Only one training run at a time may write to a folder; the lock of a killed run must be ignored.
"$MHA" train -q -t 1 --shape gpt2:1x1x8 --tokenizer bpe -f text --length 16 --steps 1000000 --warmup 0 -o busy >out 2>err &
victim=$!
while [ ! -s busy/training.jsonl ]; do sleep 0.01; done
refused 1 train --resume -o ./busy/ --steps 3
has err 'another training run is writing to it'
refused 1 new --steps 3 -o busy --force
has err 'another training run is writing to it'
kill -KILL $victim
wait $victim 2>/dev/null
[ -e .busy.lock ] || fail 'the running command must have a lock file'
expect 0 train --resume -o busy --steps 2
[ ! -e .busy.lock ] || fail 'a completed training run must remove its lock file'

# If an output cannot be saved, the run must fail before the first step.
mkdir full
touch Q/mine full/thing
cp Q/training.jsonl lines
refused 1 train --resume -o Q --steps 4
has err 'it contains mine, which is not a checkpoint file'
same Q/training.jsonl lines
rm Q/mine
refused 1 new --steps 3 -o fresh --export nowhere/model
has err 'nowhere/model'
refused 1 new --steps 3 -o fresh --export full --force
has err 'it contains thing'
refused 1 new --steps 3 -o fresh --export notes --force
has err 'it is a file'
[ ! -e fresh ] || fail 'a rejected command must not start training'

# --keep must remove only checkpoints of this run; other files, and a checkpoint from which another run was resumed, must
# be kept.
expect 0 new --steps 3 --save-every 1 --keep 2 -o row
expect 0 train --resume -o row.step-1 --steps 2 --keep 0
touch row.step-2/notes.txt
expect 0 "$MHA" train -t 1 --resume -o row --steps 6
has err 'not removing row.step-1'
has err 'not removing row.step-2'
[ "$(wc -l <row.step-1/training.jsonl)" -ge 3 ] || fail 'the training run in row.step-1 must be kept'
for name in notes.txt model.safetensors; do [ -e row.step-2/$name ] || fail "row.step-2 must keep $name"; done
[ "$(echo row.step-*)" = 'row.step-1 row.step-2 row.step-4 row.step-5' ] || fail "only the checkpoints of steps 1, 2, 4 and 5 must be kept (got $(echo row.step-*))"
expect 0 new --steps 3 --save-every 1 --keep 2 -o row --force
[ -e row.step-2/notes.txt ] || fail '--force must not delete other files'
expect 0 "$MHA" info -m row.step-1
[ "$(echo row.step-*)" = 'row.step-1 row.step-2' ] || fail "only the folders of steps 1 and 2 must be kept (got $(echo row.step-*))"

# --force must replace a run only at the first checkpoint of the new run; a command that fails earlier must not delete any file.
expect 0 new --steps 4 --save-every 1 --keep 2 -o again
touch again/notes.txt
refused 1 new --steps 3 --keep 2 -o again --force
has err 'it contains notes.txt'
rm again/notes.txt
cp -r again again.before
refused 1 new --steps 3 --keep 2 -o again --force --log nowhere/log.csv
has err 'nowhere'
unchanged again
[ "$(echo again.step-*)" = 'again.step-2 again.step-3' ] || fail "a rejected command must keep again.step-2 and again.step-3 (got $(echo again.step-*))"
# Temporary files of a killed process with the same process id must not cause an error: process ids repeat in containers.
expect 0 sh -c 'mkdir .again.tmp.$$ && touch .again.tmp.$$/part && exec "$@"' sh "$MHA" train -q -t 1 --shape gpt2:1x1x8 \
    --tokenizer bpe -f text --length 16 --steps 1 --keep 2 -o again --force
leftovers=$(find . -name '.again.*' -o -name 'again.step-*')
[ -z "$leftovers" ] || fail "no temporary file may remain (got $leftovers)"

# An existing folder with the name of a checkpoint of --keep must not be replaced, and must be reported once.
expect 0 new --steps 2 --save-every 1 --keep 1 -o told
mkdir told.step-2
touch told.step-2/mine
expect 0 "$MHA" train -t 1 --resume -o told --steps 3
[ "$(grep -c 'not removing told.step-2' err)" = 1 ] || fail "must be reported once: $(cat err)"
[ "$(echo told.step-2/*)" = told.step-2/mine ] || fail "told.step-2 must contain only mine (got $(echo told.step-2/*))"

# A trailing slash must have no effect. A folder name that leaves too few bytes for suffixes must be rejected.
ln -s Q slashed
refused 2 train --resume -o slashed/ --steps 4
has err 'slashed/ must not be a symbolic link'
expect 0 new --steps 2 -o S// --keep 1 --save-every 1 --export ES/
expect 0 train --resume -o S/ --steps 3 --export ES
expect 0 train --resume -o "$PWD/S/" --steps 4 --export "$PWD/ES//"
[ "$(echo S.step-*)" = S.step-3 ] || fail "only S.step-3 must be kept (got $(echo S.step-*))"
long=$(printf '%0230d' 0)
for place in "$long" "$long/" "sub/$long" / ///; do
    refused 2 new --steps 2 -o "$place"
    has err 'the folder name must be 1 to 223 bytes long'
done
long=$(printf '%0223d' 0)
expect 0 new --steps 3 --save-every 1 --keep 1 -o "$long"
expect 0 "$MHA" info -m "$long.step-2"

# If the folder cannot be written, the run must fail before it reads the data.
mkdir plain
touch plain/mine
for place in nowhere/new plain; do
    refused 1 train --shape gpt2:1x1x8 --tokenizer bpe -f missing --length 16 --steps 3 --resume -o "$place"
    has err "$place"
    has_not err 'missing'
done

# After a kill between two renames, the old folder must be deleted if the new folder exists, and otherwise be restored.
cp -r Q twice
cp -r Q .twice.old.77
expect 0 train --resume -o twice --steps 5
[ ! -e .twice.old.77 ] || fail 'the replaced folder must be deleted'
cp -r Q .twice.old.99999999
mv twice .twice.old.7
refused 2 new --steps 3 -o twice
has err '--resume continues it'
[ ! -e twice ] || fail 'a new run must not start if an earlier run can be restored'
expect 0 "$MHA" train -t 1 --resume -o twice --steps 6
has err 'restored twice from .twice.old.7:'
has_not err 'step 4 of 6'
[ "$(wc -l <twice/training.jsonl)" = 7 ] || fail 'the run must restore the latest of two folders'
leftovers=$(find . -name '.twice.*')
[ -z "$leftovers" ] || fail "no temporary file may remain (got $leftovers)"
# If the lock file cannot be removed, the run must fail, but the model must be complete.
mkfifo pipe
train --shape gpt2:1x1x8 --tokenizer bpe -f - --length 16 --steps 1 -o locked <pipe >out 2>err &
exec 3>pipe
while [ ! -e .locked.lock ] && kill -0 $!; do sleep 0.05; done
rm .locked.lock
mkdir .locked.lock
cat text >&3
exec 3>&-
status=0
wait $! || status=$?
[ $status = 1 ] || fail "lock cannot be removed: exit status must be 1 (got $status)"
has err '.locked.lock: cannot be removed: Is a directory'
[ ! -s out ] || fail 'a failed command must not print a result'
expect 0 "$MHA" info locked
rmdir .locked.lock
finish

#!/bin/sh
# test_cli_inputs.sh - a command must not overwrite its inputs, even with --force or if the output has another name (a
# hard link, a symbolic link, another path).
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

counting 8 >texts.svg
cp texts.svg before
ln texts.svg hard.svg
ln -s texts.svg soft.svg
cp -R "$tiny" model
ln -s model linked
ln model/config.json config.svg

kept() { # OUT WHERE COMMAND...: the command must fail with a message that contains OUT and WHERE, and must not change any input
    name=$1 where=$2
    shift 2
    refused 2 "$MHA" "$@"
    has err "must not be an input (got \"$name\", $where)"
    same texts.svg before
    diff -r model "$tiny" >/dev/null || fail "the model must not change: $*"
}

for name in texts.svg hard.svg soft.svg ./texts.svg "$PWD/hard.svg"; do
    kept "$name" 'the file read by -f' report -m model -f texts.svg -o "$name" --force
    kept "$name" 'the file read by -f' report -m model -f texts.svg -o "$name"
    kept "$name" 'the file read by -f' draw --grid -m model -f soft.svg --documents whole -o "$name" --force
    kept "$name" 'the file read by --test' prune -m model --search --test hard.svg -o "$name" --force
done
kept hard.svg 'the file read by --scores' prune -m model --scores texts.svg --count 1 -o hard.svg --force
kept hard.svg 'the file read by --keep' prune -m model --keep texts.svg -o hard.svg --force
kept hard.svg 'the file read by --data' report -m model --by gate --data texts.svg -o hard.svg --force text
kept hard.svg 'the file read by --curve' report -m model --curve texts.svg -o hard.svg --force text
kept config.svg 'a file in the folder read by -m' report -m linked -o config.svg --force text
kept config.svg 'a file in the folder read by --compare' report --compare model -o config.svg --force text
kept linked 'the folder read by -m' prune -m model --count 1 -f texts.svg -o linked --force
kept model 'the folder read by -m' regroup -m linked --kv-heads 1 -f texts.svg -o model --force
kept model 'which contains the input of --keep' prune -m "$tiny" --keep config.svg -o model --force
kept hard.svg 'the file read by -f' tokenizer train -f before -f texts.svg -o hard.svg --force
kept hard.svg 'the file read by -f' tokenizer train -f before -o hard.svg --force texts.svg
expect 2 "$MHA" report -m model -o hard.svg --force <texts.svg
status=0
"$MHA" report -m model -o hard.svg --force <texts.svg >out 2>err || status=$?
[ $status = 2 ] || fail "standard input that is also the output must be rejected (got exit status $status)"
has err 'must not be an input (got "hard.svg", which is standard input)'
same texts.svg before

# A file in the folder of a model that is not part of the model is not an input, so writing a report to it must succeed,
# even twice.
cp -R "$tiny" own
for option in '' --force; do
    # shellcheck disable=SC2086 # splits the variable into words
    expect 0 "$MHA" report -q -m own -o own/heads.html $option text
done
refused 2 "$MHA" report -q -m own -o own/tokenizer.json --force text

# The files of a sentence-transformers module are inputs, and so is the folder of the module.
cp -R "$tiny" sentence
mkdir sentence/1_Pooling sentence/other
echo '[]' >sentence/modules.json
echo '{}' >sentence/1_Pooling/config.json
cp sentence/1_Pooling/config.json before.json
for name in sentence/1_Pooling/config.json sentence/1_Pooling; do
    refused 2 "$MHA" report -m sentence -o $name --force text
    has err "must not be an input (got \"$name\", a file in the folder read by -m)"
done
same sentence/1_Pooling/config.json before.json
expect 0 "$MHA" report -q -m sentence -o sentence/other/config.json text
expect 0 "$MHA" report -q -m sentence -o sentence/other/config.json --force text

# Two options that read standard input must be rejected.
echo text >line
for words in '--scores - --count 1 -f -' '--keep - -f -' '--scores - --count 1 -f line --test -'; do
    # shellcheck disable=SC2086 # splits the variable into words
    refused 2 "$MHA" prune -m own $words -o never
    has err '- (standard input) must be given at most once (got '
done
has err '(got --scores - and --test -)'
refused 2 "$MHA" tokenizer train --vocab-size 300 -f - -o never -
has err '(got -f - and the argument -)'
status=0 # --refit also reads piped texts, without an option
echo text | "$MHA" prune -m own --scores - --count 1 --refit -o never >out 2>err || status=$?
[ "$status" = 2 ] || fail "a second reader of standard input must be rejected (got exit status $status)"
has err 'must be given at most once'

# For mha train, every output must be checked against all inputs, including those given by --config.
cp texts.svg log.jsonl
ln -f log.jsonl hard.jsonl
learn() { kept "$@" --shape gpt2:1x2x8 --tokenizer "$data/models/gpt2-tiny" --steps 1; }
learn hard.jsonl 'the file read by -f' train -f log.jsonl -o new --log hard.jsonl --force
learn hard.jsonl 'the file read by --eval' train -f texts.svg --eval log.jsonl -o new --log hard.jsonl --force
echo '{"file": ["log.jsonl"]}' >config.json
learn "$PWD/hard.jsonl" 'the file read by -f' train --config config.json -o new --log hard.jsonl --force
ln config.json set.jsonl
learn set.jsonl 'the file read by --config' train --config config.json -f texts.svg -o new --log set.jsonl --force
kept model 'the folder read by --from' train --from linked -f texts.svg -o model --force --steps 1
same log.jsonl before

# Every output option must be checked against every input option of its command. The completion script lists the options
# of all commands; their descriptions tell outputs from inputs. --state and --files are not the names of written files.
"$MHA" completion fish | sed -n -e "s/^.*_from \([a-z]*\)'.* -l \([a-z-]*\) -rF -d '\(.*\)'\$/\1 \2 file \3/p" \
    -e "s/^.*_from \([a-z]*\)'.* -l \([a-z-]*\) -xa 'builtin .*' -d '\(.*\)'\$/\1 \2 model \3/p" |
    awk '$2 == "state" || $2 == "files" { next }
         /^[^ ]+ [^ ]+ [^ ]+ (at the end, )?(also )?(write|draw|save) / { outputs[$1] = outputs[$1] " " $2; next }
         { inputs[++count] = $1 " " $3 " " $2 }
         END { for (n = 1; n <= count; n++) { split(inputs[n], part); print inputs[n] outputs[part[1]] } }' >pairs
checked=0
while read -r name kind input outputs; do
    for output in $outputs; do
        [ "$kind" = model ] && given=model aim=config.svg || given=texts.svg aim=hard.svg
        refused 2 "$MHA" "$name" "--$input" "$given" "--$output" "$aim"
        has err "must not be an input (got \"$aim\", "
        checked=$((checked + 1))
    done
done <pairs
[ $checked -ge 55 ] || fail "at least 55 pairs of options must be checked (got $checked)"
same texts.svg before

# mha tour replaces the files of three options; --files writes files with the names of tensors.
cp model/model.safetensors kept.safetensors
for option in html=kept.safetensors figure=config.svg; do
    ln -f model/model.safetensors kept.safetensors
    refused 2 "$MHA" tour weight-split -m model --layer 0 "--$option" --force
    has err "--${option%%=*} must not be an input (got \"${option#*=}\", a file in the folder read by -m)"
done
same model/model.safetensors "$tiny/model.safetensors"
expect 0 "$MHA" tour standard-mha -m model --files tables
table=$(find tables -name '*.csv' | sort | head -n 1)
ln -f model/model.safetensors "$table"
refused 2 "$MHA" tour standard-mha -m model --files tables --force
has err "--files must not be an input (got \"$table\", a file in the folder read by -m)"
same "$table" "$tiny/model.safetensors"
refused 3 "$MHA" tour weight-split --weights - --files -
has_not err 'must be given at most once'
# Unknown arguments must be in the message.
refused 2 "$MHA" completion tcsh
has err 'must be one of bash, zsh, fish (got "tcsh")'
refused 2 "$MHA" bench matmul
has err 'must be "attention" (got "matmul")'
# An empty path must be an error that names the option.
refused 2 "$MHA" heads --roles '' -f texts.svg
has err '--roles must name a file (got "")'
refused 2 "$MHA" report --curve= -o page.html a
has err '--curve must name a file (got "")'
refused 2 "$MHA" info -m ''
has err '-m must name a model (got "")'
refused 2 "$MHA" train --teacher= --from builtin -f texts.svg -o trained
has err '--teacher must name a '
refused 2 "$MHA" train --from builtin -f '' -o trained
has err '-f must name a file (got "")'
# --documents must be an error where no file of texts is read.
refused 2 "$MHA" prune -m "$tiny" --heads 0.1 --documents whole -o fewer
has err '--documents requires texts from a file'
refused 2 "$MHA" diff -m "$tiny" -m "$tiny" --documents page
has err '--documents requires texts from a file'
# --state saves scores, so it is an error if none are measured.
refused 2 "$MHA" prune -m "$tiny" --heads 0.1 --state saved -o fewer
has err '--state requires --by SCORE'
refused 2 "$MHA" regroup -m "$tiny" --kv-heads 2 --state saved -o grouped
has err '--state requires --by SCORE'


# Numbers of options must be decimal.
for number in 0x1p0 0X1 inf nan infinity ' 1' 1p1 1e 1,5; do
    refused 2 "$MHA" generate -n 1 --temperature "$number" Once
    has err "--temperature must be a number from 0 to"
    refused 2 "$MHA" logits --gates "0.0=$number" Once
    refused 2 "$MHA" bench attention --seconds "$number"
    refused 2 "$MHA" plan --prune "$number" --d-model 64 --heads 4 --layers 1
    refused 2 "$MHA" plan --hosts 1 --memory "$number"
    refused 2 "$MHA" plan --hosts 1 --speed "1e9:$number"
    refused 2 "$MHA" plan --hosts 1 --speed "$number:1e9"
done
expect 0 "$MHA" generate -q -n 1 --temperature +.5e0 Once
finish

# test_mpi_train.sh - `mha-mpi train` on 1, 2 and 4 ranks must write checkpoints that are bitwise identical to those of `mha train`, even if
# a run is killed or stopped and resumed with another number of ranks. With --reduce fast, the loss must agree within 1e-3. An error must
# name the rank and its host. With MHA_FAULTS=all, ranks are killed and frozen at 20 random times each.
# shellcheck shell=sh source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
# shellcheck source=tests/mpi/lib.sh
. "$here/tests/mpi/lib.sh"
rounds=1
[ "${MHA_FAULTS:-}" != all ] || rounds=20
counting 80 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
shape='--shape gpt2:2x2x32 --tokenizer bpe -f text --length 16 --batch 2 --rate 0.01 -t 1'

# same_run A B WHAT: the folders A and B must contain the same training run.
same_run() {
    for file in model.safetensors training.safetensors training.json; do same "$1/$file" "$2/$file" "$3"; done
    for folder in "$1" "$2"; do sed 's/,"seconds":[^,}]*//' "$folder/training.jsonl" >"$folder.log"; done
    same "$1.log" "$2.log" "$3: the log"
}

# ---- checkpoints and output of mha-mpi and mha ----
steps='--steps 20 --workers 4 --dropout 0.1 --eval-share 0.1 --sample the'
# shellcheck disable=SC2086 # options
{
    expect 0 "$MHA" train -q $shape $steps -o one
    for count in 1 2 4; do
        expect 0 "$ranks" $count "$MHA_MPI" train -q $shape $steps -o ranks.$count --export ranks.$count.out
        "$MHA" train -q $shape $steps -o one.$count --export ranks.$count.out --force >one.text
        sed '/parameters/d; s/one.*: /: /' one.text >expected
        sed '/parameters/d; s/ranks.*: /: /' out >result
        same expected result "$count ranks: the result"
        for file in model.safetensors training.safetensors; do same one/$file ranks.$count/$file "$count ranks"; done
    done
    # One worker adds the gradients in another order, so its weights must differ.
    expect 0 "$MHA" train -q $shape --steps 20 --accumulate 4 --dropout 0.1 --eval-share 0.1 -o in_order
    cmp -s one/model.safetensors in_order/model.safetensors && fail 'the weights of four workers and one worker must differ'
}

# ---- 10 steps with 4 ranks, resumed with other numbers of ranks ----
# shellcheck disable=SC2086
{
    expect 0 "$MHA" train -q $shape --steps 20 --workers 4 --schedule constant --warmup 2 --gates l1 --gates-end 15 -o whole
    expect 0 "$ranks" 4 "$MHA_MPI" train -q $shape --steps 10 --workers 4 --schedule constant --warmup 2 --gates l1 \
        --gates-end 15 -o first
}
cp -r first second
cp -r first third
expect 0 "$ranks" 2 "$MHA_MPI" train -q --resume --steps 20 --save-every 2 -o first
expect 0 "$MHA" train -q --resume --steps 20 --save-every 2 -o second
same whole/model.safetensors first/model.safetensors '4 ranks, then 2'
same whole/training.safetensors first/training.safetensors '4 ranks, then 2'
same_run first second '4 ranks, then 2 or mha'
expect 0 "$MHA" train -q --resume --steps 14 -o third
expect 0 "$ranks" 4 "$MHA_MPI" train -q --resume --steps 20 --save-every 2 -o third
same whole/training.safetensors third/training.safetensors '4 ranks, then mha, then 4 ranks'

# ---- distillation, encoders, bf16 ----
expect 0 "$MHA" tokenizer train -q --vocab-size 90 --type wordpiece -o wp -f text
while read -r name options; do
    # shellcheck disable=SC2086
    {
        expect 0 "$MHA" train -q -f text --length 16 --batch 2 -t 1 --steps 4 --workers 2 $options -o "$name"
        expect 0 "$ranks" 2 "$MHA_MPI" train -q -f text --length 16 --batch 2 -t 1 --steps 4 --workers 2 $options -o "$name.2"
    }
    same_run "$name" "$name.2" "$name"
done <<'END'
encoder --shape bert:1x2x16 --tokenizer wp --dtype bf16 --moments bf16 --recompute
taught --from one --teacher one --gates l0 --heads 2
END

# ---- --reduce fast ----
# shellcheck disable=SC2086
{
    expect 0 "$ranks" 4 "$MHA_MPI" train -q --json $shape $steps --reduce fast -o fast
    at steps 20
    loss=$("$JSON_AT" loss <out)
    expect 0 "$ranks" 4 "$MHA_MPI" train -q $shape $steps --reduce fast -o fast.again
    same fast/model.safetensors fast.again/model.safetensors '--reduce fast, twice'
}
exact=$(tail -n 1 one/training.jsonl | "$JSON_AT" loss)
awk -v a="$loss" -v b="$exact" 'BEGIN { exit !(a - b < 1e-3 && b - a < 1e-3) }' || fail "--reduce fast: the loss must be $exact within 1e-3 (got $loss)"

# ---- invalid options ----
# shellcheck disable=SC2086
{
    expect 2 "$ranks" 3 "$MHA_MPI" train -q $shape $steps -o absent
    has err "rank 0 ($host): the number of processes must be a power of two (got 3)"
    expect 2 "$ranks" 2 "$MHA_MPI" train -q $shape --steps 3 -o absent
    has err "rank 0 ($host): --workers must be at least the number of processes, 2 (got 1)"
    expect 2 "$ranks" 2 "$MHA_MPI" train -q --shape gpt2:2x2x32 --tokenizer bpe -f - --workers 2 -o absent
    has err 'with several processes, -f must name a file (got -)'
}
for rank in 0 1; do
    mkdir folder.$rank
    cp -r bpe folder.$rank
    cp -r one folder.$rank
    cp text folder.$rank
done
counting 81 >folder.1/text
# shellcheck disable=SC2086
expect 2 "$ranks" 2 "$each" train -q $shape --steps 3 --workers 2 -o absent
has err "rank 1 ($host): the data must be the same as on rank 0 ($host)"
cp text folder.1/text
at=$(($(wc -c <folder.1/one/model.safetensors) - 101)) # a byte of the last tensor
printf '\001' | dd of=folder.1/one/model.safetensors bs=1 seek=$at conv=notrunc 2>dd.log
expect 2 "$ranks" 2 "$each" train -q --from one -f text --steps 3 --workers 2 -o absent
has err "rank 1 ($host): the weights must be the same as on rank 0 ($host)"
expect 2 "$ranks" 2 "$each" train -q --from ../one --teacher one -f text --steps 3 --workers 2 -o absent
has err "rank 1 ($host): the teacher must be the same as on rank 0 ($host)"
[ ! -e folder.0/absent ] || fail 'a rejected run must not leave a folder'
rm -r folder.0 folder.1
[ ! -e absent ] || fail 'a rejected run must not create a folder'

# ---- a full disk while rank 0 writes a checkpoint ----
mkdir small
if mount -t tmpfs -o size=400k mha-test small 2>mount.log; then
    trap 'umount "$work/small"; rm -rf "$work"' EXIT
    # shellcheck disable=SC2086
    expect 1 "$ranks" 2 "$MHA_MPI" train -q $shape --steps 3 --workers 2 -o small/run
    has err "rank 0 ($host): "
    has err 'No space left on device'
    [ ! -e small/run ] || fail 'a failed run must not leave an incomplete checkpoint'
    # The disk is full when rank 0 writes the log, between two steps.
    dd if=/dev/zero of=small/filler bs=4096 2>dd.log || :
    # shellcheck disable=SC2086
    expect 1 "$ranks" 2 "$MHA_MPI" --timeout 60 train -q $shape --steps 3 --workers 2 --log small/log.jsonl -o unlogged
    has err "rank 0 ($host): "
    has err 'No space left on device'
else
    echo "skipped: a full disk, which requires permission to mount a file system"
fi

# ---- killed, frozen and stopped ranks, and resuming with another number of ranks ----
long='--steps 60 --save-every 3 --workers 4'
begin=$(date +%s)
# shellcheck disable=SC2086
expect 0 "$ranks" 2 "$MHA_MPI" train -q $shape $long -o long
limit=$((15 + 3 * ($(date +%s) - begin))) # allows for cores shared with other processes
round=0
while [ $round -lt $rounds ]; do
    for signal in KILL STOP TERM; do
        victim=$(((round + 1) % 2))
        delay=$(awk "BEGIN { srand($round * 3 + $(printf %d "'$signal")); print 0.5 + 2 * rand() }")
        folder=cut.$round.$signal
        rm -f pid.*
        # shellcheck disable=SC2086
        "$ranks" 2 "$each" --timeout 3 train -q $shape $long -o "$folder" >out 2>err </dev/null &
        job=$!
        await "$job" started 2
        sleep "$delay"
        begin=$(date +%s)
        kill -$signal "$(cat pid.$victim)" 2>/dev/null || :
        status=0
        wait "$job" || status=$?
        [ $(($(date +%s) - begin)) -le $limit ] || fail "$signal: the job must end within $limit s"
        [ $status -eq 0 ] || has err "$host"
        await_gone "$signal" $limit
        count=$((4 / (1 + (round + 1) % 2 * 3)))
        # shellcheck disable=SC2086
        expect 0 "$ranks" $count "$MHA_MPI" train -q --resume $shape $long -o "$folder"
        same_run long "$folder" "resumed with $count ranks after $signal"
    done
    round=$((round + 1))
done
finish

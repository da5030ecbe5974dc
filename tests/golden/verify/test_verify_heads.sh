#!/bin/sh
# Checks the recorded heads of the real all-MiniLM-L6-v2 and of a small language model with `mha verify --golden`. A
# wrong value, an unknown name and an invalid folder must be detected. Skipped if the weights of MiniLM are not
# installed.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
requires_golden

refused 2 "$MHA" verify --golden "$data/heads" -m builtin # must fail without --lm
has err '--lm'
refused 2 "$MHA" verify --lm "$data/heads/tinylm"

[ -d "$minilm" ] || skip "MiniLM is not installed (./run fetch minilm)"
verify() { "$MHA" verify -m "$minilm" --lm "$data/heads/tinylm" "$@"; }

# Checks the complete folder, with its recorded weights, which --lm names too.
mkdir whole
cp "$data"/heads/*.safetensors "$data/heads/index.json" whole
cp "$data/heads/tinylm/model.safetensors" whole/tinylm-model.safetensors
expect 0 verify --golden whole -q --strict --json
at kind heads
at failed 0
at refused 0
at passed 139
at groups.synthetic.passed 2
at groups.gqa.passed 22
at groups.weights.passed 1
at groups.labels.passed 1
at groups.layer.passed 8
at groups.choices.passed 6
at 'groups.same bits.passed' 6

# Tests ISA caps without importance scores, because their exact Jacobian takes most of the time. AVX2 was tested above
# if it is the newest ISA of this CPU.
sed -e '/^  "minilm-importance/,/^  }/d' "$data/heads/index.json" >whole/index.json
case " $("$MHA" --version | sed -n 's/^this CPU has: *//p') " in
*" avx2 "[a-z]*) caps='scalar avx2' ;;
*) caps=scalar ;;
esac
for isa in $caps; do
    expect 0 verify --golden whole -q --strict --isa "$isa"
    [ "$(tail -n 1 out)" = '108 passed, 0 failed, 0 unsupported' ] ||
        fail "$isa: the last line must be 108 passed, 0 failed, 0 unsupported: $(cat out)"
done

# A tolerance that cannot be met, a label with a wrong name, and another threshold must fail. Only fast parts are run.
mkdir broken
cp "$data"/heads/*.safetensors broken
edited() {
    sed -e '/^  "minilm-[pigd]/,/^  }/d' -e "$1" "$data/heads/index.json" >broken/index.json
}
edited '/"entropy_norm": {/,/}/s/"abs_tolerance": [^,]*/"abs_tolerance": 1e-12/'
expect 4 verify --golden broken -q
has out 'FAIL  statistics  entropy_norm'
edited '/"label_names"/,/]/s/"broad"/"wide"/'
expect 4 verify --golden broken -q
has out 'FAIL  labels  labels'
edited 's/"vertical": 0.8$/"vertical": 0.5/; s/"vertical": 0.8,/"vertical": 0.5,/'
expect 4 verify --golden broken -q
has out 'FAIL  labels  labels'

# The command must pass without the weights unless --strict is given, and fail with other weights.
edited ''
expect 0 verify --golden broken -q
expect 4 verify --golden broken --strict
has err 'not in the folder; using the weights of --lm'
cp "$data/models/gpt2-tiny/model.safetensors" broken/tinylm-model.safetensors
expect 4 verify --golden broken -q
has out 'FAIL  weights  tinylm-model.safetensors'
rm broken/tinylm-model.safetensors

# Unknown or inconsistent files, tensors, keys and patterns must be rejected.
for edit in 's/"layer-backward.safetensors"/"layer-forward.safetensors"/' 's/"entropy_norm": {/"entropy_squared": {/' \
    's/"seed": 1/"sead": 1/' '0,/"dtype"/s/"dtype"/"type"/' '/"entropy_norm": {/,/}/s/12$/11/' \
    's/"attention_14"/"attention_99"/' 's/"attention_layer0"/"attention_layer77"/' '/"pattern_names"/,/]/s/"broad"/"wide"/' 's/"single": 0.4/"single": "0.4"/'; do
    edited "$edit"
    refused 3 verify --golden broken
done
finish

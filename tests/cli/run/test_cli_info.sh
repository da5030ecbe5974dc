#!/bin/sh
# test_cli_info.sh - tests `mha info` on folders, files and hostile tensor names.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

expect 0 "$MHA" info -m "$tiny" --json
at family bert
at layers 3
at heads 4
at kv_heads 4
at head_dim 12
at hidden 48
at heads_per_layer '[4,4,4]'
at kv_bytes_per_token 0
[ "$("$JSON_AT" parameters <out)" -gt 50000 ] || fail 'the model must have more than 50000 parameters'
[ "$("$JSON_AT" bytes <out)" -gt 200000 ] || fail 'the model must have more than 200000 bytes'
expect 0 "$MHA" info -m "$tiny"
has out 'bert'
expect 0 "$MHA" info "$tiny"
has out '12 in total; per layer: 4 query, 4 key, 4 value heads'
expect 0 "$MHA" prune -m "$tiny" --heads 0.0,0.1,1.0,1.1,2.0,2.1 -o half
expect 0 "$MHA" info half --json
at heads_per_layer '[2,2,2]'
expect 0 "$MHA" info half
has out '6 in total; per layer: 2 query'
expect 0 "$MHA" prune -m "$tiny" --heads 0.0,0.1,1.0 -o uneven
expect 0 "$MHA" info uneven
has out '9 in total; per layer: 2 to 4 query'

# Each list of heads of a pruned encoder-decoder must be printed.
expect 0 "$MHA" prune -m "$data/seq2seq/bart" --heads cross.0.1,cross.1.0,cross.1.2,encoder.1.0,0.2 -o sides
expect 0 "$MHA" info sides
has out '9 in total; per layer: 4 to 5 query'
has out 'cross heads 7 in total; per layer: 3 to 4 heads'
has out '2 layers; per layer: 3 to 4 heads, width 10'
expect 0 "$MHA" info sides --json
at heads_per_layer '[4,5]'
at cross_heads_per_layer '[4,3]'
at encoder.heads_per_layer '[4,3]'
expect 0 "$MHA" info "$tiny" --json
has_not out 'cross_heads'

# An index of shards that names one file must be accepted; an index with a wrong file name or a file outside its folder must be rejected.
mkdir shards
for id in 1 2; do
    expect 0 "$MHA" logits -m "$here/tests/golden/data/models/gpt2-tiny" --ids $id --hidden -o shards/$id
done
echo '{"weight_map": {"logits": "1", "hidden.0": "1", "hidden.1": "1", "hidden.2": "1", "hidden.3": "1"}}' >shards/one.json
expect 0 "$MHA" info shards/one.json --json
at tensors.# 5
at tensors.4.name logits
echo '{"weight_map": {"logits": "1", "hidden.0": "2"}}' >shards/two.json
refused 3 "$MHA" info shards/two.json
has err 'must be "1", which contains the tensor (got "2")'
echo '{"weight_map": {"logits": "../weights"}}' >shards/out.json
refused 3 "$MHA" info shards/out.json
has err 'weight_map must name files in this folder'

# The format of a file must be identified by its contents, not by its name.
cp "$tiny/model.safetensors" weights
expect 0 "$MHA" info weights --json
at format safetensors
at tensors.0.dtype F32
expect 0 "$MHA" info weights
has out 'embeddings.word_embeddings.weight'

# Tensor names are untrusted text and must be escaped.
header='{"a\u001b[2J\u202e":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
printf '%b%s\0\0\0\0' "\\0$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0" "$header" >names
expect 0 "$MHA" info names
harmless out
has out 'a\x1b[2J'
expect 0 "$MHA" info names --json
harmless out

refused 3 "$MHA" info missing
refused 3 "$MHA" info -m missing
refused 3 "$MHA" info /dev/null
echo '<html>' >page
refused 3 "$MHA" info page
printf 'root:x:0:0:root:/root:/bin/sh\n' >passwd
refused 3 "$MHA" info passwd
has err 'passwd: file must be safetensors, .npy or GGUF'
mkdir checkpoint
echo '{"model_type": "wav2vec2"}' >checkpoint/config.json
refused 3 "$MHA" info checkpoint
has err 'checkpoint/config.json: model_type must be one of bert, '
has err '(got "wav2vec2")'

# A config in which two names of the same setting have different values must be rejected.
mkdir two
cp "$here"/tests/golden/data/models/gemma2-tiny/model.safetensors "$here"/tests/golden/data/models/gemma2-tiny/tokenizer.json two
sed 's/"rope_parameters"/"rope_scaling": {"rope_type": "linear", "factor": 4.0}, &/' \
    "$here/tests/golden/data/models/gemma2-tiny/config.json" >two/config.json
refused 3 "$MHA" info two
has err 'rope_scaling and rope_parameters must be equal if both are given'
mkfifo fifo
refused 3 "$MHA" info fifo
refused 2 "$MHA" info a b
refused 2 "$MHA" info -m "$tiny" weights

# In a model with attention-only layers, unused tensors of the file must be ignored.
mkdir alone
cp "$here"/tests/golden/data/models/gpt2-tiny/model.safetensors alone
sed 's/^{/{"mha.feed_forward": [true, false, true], /' "$here/tests/golden/data/models/gpt2-tiny/config.json" >alone/config.json
expect 0 "$MHA" info alone --json
at feed_forward_per_layer.0 192
at feed_forward_per_layer.1 0
expect 0 "$MHA" info alone
has out 'feed-forward 0 to 192'

# The attention of each layer must be printed, as defined by the model family or by the config key "mha.attention".
expect 0 "$MHA" info "$here/tests/golden/data/models/gemma2-tiny" --json
at attention_per_layer.0.window 8
at attention_per_layer.0.rotary true
at attention_per_layer.1.window null
at attention_per_layer.1.softcap 4.0
expect 0 "$MHA" info "$tiny"
has out 'attention   plain'
mkdir mixed
cat >mixed/config.json <<'JSON'
{"model_type": "llama", "vocab_size": 300, "hidden_size": 32, "head_dim": 16, "num_hidden_layers": 4, "num_attention_heads": 2,
 "intermediate_size": 32, "max_position_embeddings": 64,
 "mha.attention": [null, {"rotary": false, "window": 64, "alibi": true}, null, {"qk_norm": true, "scale": 0.5, "softcap": 30}]}
JSON
counting 20 >text
expect 0 "$MHA" tokenizer train -q --vocab-size 300 -o bpe -f text
expect 0 "$MHA" train -q -t 1 --shape mixed/config.json --tokenizer bpe -f text --steps 1 --length 16 --batch 1 -o composed
expect 0 "$MHA" info composed
has out 'attention   rotary in layers 0, 2'
has out '            ALiBi, window 64 in layer 1'
has out '            rotary, norms of q and k, softcap 30, scale 0.5 in layer 3'
expect 0 "$MHA" info composed --json
at attention_per_layer.0 '{"window":null,"rotary":true,"qk_norm":false,"alibi":false,"scale":0.25,"softcap":null,"choice":null,"selection":null,"head_options":null,"heads_per_text":2}'
at attention_per_layer.1 '{"window":64,"rotary":false,"qk_norm":false,"alibi":true,"scale":0.25,"softcap":null,"choice":null,"selection":null,"head_options":null,"heads_per_text":2}'
at attention_per_layer.3.scale 0.5
at attention_per_layer.3.qk_norm true
mkdir chosen
cat >chosen/config.json <<'JSON'
{"model_type": "bert", "vocab_size": 300, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4,
 "intermediate_size": 32, "max_position_embeddings": 64,
 "mha.attention": [{"moe_heads": {"top_k": 3}}, {"adaptive_heads": {"head_options": [2, 8]}}, {"head_pruning": {"prune_ratio": 0.5}}]}
JSON
expect 0 "$MHA" tokenizer train -q --type wordpiece --vocab-size 300 -o pieces -f text
expect 0 "$MHA" train -q -t 1 --shape chosen/config.json --tokenizer pieces -f text --steps 1 --length 16 --batch 1 -o choosing
expect 0 "$MHA" info choosing
has out 'attention   3 experts for each text in layer 0'
has out '            2 or 8 heads for each text (soft) in layer 1'
has out '            2 heads for each text (soft) in layer 2'
expect 0 "$MHA" info choosing --json
at attention_per_layer.0.choice moe_heads
at attention_per_layer.0.heads_per_text 3
at attention_per_layer.1.choice adaptive_heads
at attention_per_layer.2.heads_per_text 2
finish

#!/bin/sh
# test_cli_images.sh - tests commands on images: classes, vectors, heads and pages of ViT and CLIP, and messages for
# files that are not images and for models that read no images.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
images=$data/images
# A model of the golden data, and a preprocessor for its size.
mkdir clip-eos
cp "$data/vision/clip-eos/"* clip-eos
printf '{"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 18}, "crop_size": 18}' >clip-eos/preprocessor_config.json

cat >clip-eos/tokenizer.json <<'EOF'
{"version": "1.0", "added_tokens": [{"id": 7, "content": "<|endoftext|>", "single_word": false, "lstrip": false,
 "rstrip": false, "normalized": false, "special": true}], "normalizer": {"type": "Lowercase"},
 "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "'s|'t|'re|'ve|'m|'ll|'d|[\\p{L}]+|[\\p{N}]|[^\\s\\p{L}\\p{N}]+"},
  "behavior": "Removed", "invert": true},
 "post_processor": {"type": "RobertaProcessing", "sep": ["<|endoftext|>", 7], "cls": ["<|endoftext|>", 7], "trim_offsets": false,
  "add_prefix_space": false},
 "decoder": null,
 "model": {"type": "BPE", "unk_token": "<|endoftext|>", "end_of_word_suffix": "</w>", "vocab": {"a": 8, "b": 9, "a</w>": 10, "b</w>": 11,
  "ab</w>": 12, "<|endoftext|>": 7}, "merges": ["a b</w>"]}}
EOF
# The suffix is that of the last character of each word.
expect 0 "$MHA" tokenize -m clip-eos --json 'AB ba a'
at ids '[7,12,9,10,10,7]'
expect 0 "$MHA" info -m clip-eos
has out 'text and images'
has out '18 x 18 pixels'
expect 0 "$MHA" info -m clip-eos --json
at vision.image.patch_width 6

if [ "$("$MHA" heads -m clip-eos "$images/rgb.png" 2>&1 | grep -c 'require a build')" != 0 ]; then
    echo 'skipped: a build without libpng and libjpeg'
    exit 77
fi

# Heads of the image tower, with the class token and patches as tokens.
expect 0 "$MHA" heads -m clip-eos "$images/rgb.png" --json --maps
at tokens.0 '[class]'
at tokens.1 '0,0'
at tokens.9 '2,2'
at heads 4
[ ! -s err ] || fail 'images must not be reported as texts'
expect 0 "$MHA" heads -m clip-eos "$images/rgb.png" "$images/color.jpg"
refused 2 "$MHA" heads -m clip-eos "$images/rgb.png" text
has err 'must not be mixed'
expect 0 "$MHA" report -m clip-eos "$images/rgb.png" "$images/gray.jpg" -o page.html
has page.html '[class]'
expect 0 "$MHA" draw -m clip-eos "$images/rgb.png" --head 0.1 -o map.svg
refused 2 "$MHA" heads -m clip-eos "$images/rgb.png" --by gradmag
refused 2 "$MHA" heads -m clip-eos "$images/rgb.png" --by jacobian_probe
refused 2 "$MHA" report -m clip-eos "$images/rgb.png" --diversity -o other.html

# Vectors of images do not depend on other arguments; a JPEG with the content of a PNG has a similar vector.
expect 0 "$MHA" embed -m clip-eos --json "$images/rgb.png"
at embedding.# 16
cp out alone
expect 0 "$MHA" embed -m clip-eos --json "$images/gray.png" "$images/rgb.png"
sed -n 2p out >among
same alone among 'the vector of an image must not depend on other images'
expect 0 "$MHA" embed -m clip-eos "$images/rgb.png" "$images/full.jpg"
has out 'cosine similarity'
refused 2 "$MHA" embed -m clip-eos --no-normalize "$images/rgb.png"

# Damaged files, other files and other models.
head -c 100 "$images/rgb.png" >cut.png
refused 3 "$MHA" embed -m clip-eos cut.png
has err 'cut.png: invalid PNG file'
echo text >text.png
refused 3 "$MHA" embed -m clip-eos text.png
has err 'must be a PNG or JPEG file'
refused 3 "$MHA" embed -m clip-eos missing.png
expect 0 "$MHA" embed -m "$tiny" "$images/rgb.png" # a model of texts reads the name as a text

# The preprocessor must give the model's size, and must be supported.
for keys in '"crop_size": 20' '"resample": 0' '"image_std": [1, 0, 1]' '"image_processor_type": "OtherImageProcessor"' '"do_center_crop": "yes"' \
    '"size": {"longest_edge": 18}' '"image_mean": [1, 2]' '"size": 0' '"size": 99999999'; do
    printf '{"size": {"shortest_edge": 18}, "crop_size": 18, %s}' "$keys" | sed 's/"size": {"shortest_edge": 18}, \(.*"size"\)/\1/; s/"crop_size": 18, \("crop\)/\1/' >clip-eos/preprocessor_config.json
    refused 3 "$MHA" embed -m clip-eos "$images/rgb.png"
done
rm clip-eos/preprocessor_config.json
refused 3 "$MHA" embed -m clip-eos "$images/rgb.png"
has err 'must have preprocessor_config.json'
printf '{"image_processor": {"size": {"height": 18, "width": 18}, "do_center_crop": false, "image_processor_type": "CLIPImageProcessor"}}' \
    >clip-eos/processor_config.json
expect 0 "$MHA" embed -m clip-eos "$images/rgb.png"

# A ViT reads only images of its channels; heads can be removed.
expect 0 "$MHA" info -m "$data/vision/vit-classes"
has out 'classes     5'
refused 3 "$MHA" logits -m "$data/vision/vit-classes" "$images/rgb.png"
has err 'num_channels must be 3'
refused 2 "$MHA" logits -m "$data/vision/vit-classes" --ids "$images/rgb.png"
has err '--ids must not be given'
refused 2 "$MHA" logits -m "$data/vision/vit-classes" 'a dog'
has err 'reads images: the argument must be a PNG or JPEG file (got "a dog")'
refused 3 "$MHA" lens -m "$data/vision/vit-classes" 'a dog'
has err 'must read text (got vit, which reads images: use mha logits IMAGE.png)'
echo 'a dog' >texts
for model in "$data/vision/vit-classes" clip-eos; do
    refused 3 "$MHA" train --from "$model" -f texts -o trained
    has err 'which reads images)'
done
expect 0 "$MHA" prune -m "$data/vision/vit-classes" --heads 0.1 -o pruned
expect 0 "$MHA" info -m pruned --json
at heads_per_layer '[1,2]'
echo "$images/rgb.png" >images.txt
for choice in '--count 1 -f images.txt' '--count 1 --by jacobian_probe -f images.txt' '--heads 0.1 -f images.txt' '--count 1'; do
    # shellcheck disable=SC2086 # a list of options
    refused 2 "$MHA" prune -m "$data/vision/vit-classes" $choice -o pruned-vit
    has err 'heads of vit, which reads images, must be given with --heads or --keep'
done
expect 0 "$MHA" prune -m "$data/vision/vit-classes" --by ov_norm --count 1 -o pruned-vit

# --ratio is a fraction of the heads of the pruned tower.
expect 0 "$MHA" prune -m clip-eos --by ov_norm --ratio 0.25 -o pruned-ratio
has err '0.25 is 1.5 of 6 heads; removing 2: rounded to whole heads'
expect 0 "$MHA" prune -m clip-eos --part image --by ov_norm --ratio 0.3 -o pruned-ratio --force
has err '0.3 is 2.4 of 8 heads; removing 2'
expect 0 "$MHA" prune -m clip-eos --heads 0.1 -o pruned-text
expect 0 "$MHA" prune -m pruned-text --part image --heads 0.0,1.2 -o pruned-clip
expect 0 "$MHA" embed -m pruned-clip "$images/rgb.png"

# --keep must read the lists of the pruned tower from the config.json of a CLIP model.
expect 0 "$MHA" prune -m clip-eos --keep pruned-clip/config.json -o kept-text
same kept-text/model.safetensors pruned-text/model.safetensors
expect 0 "$MHA" prune -m kept-text --part image --keep pruned-clip/config.json -o kept-clip
same kept-clip/model.safetensors pruned-clip/model.safetensors
refused 2 "$MHA" prune -m clip-eos --part encoder --heads 0.1 -o pruned-none
has err '--part must be encoder for an encoder-decoder, or image for a CLIP model'
refused 3 "$MHA" regroup -m clip-eos --kv-heads 1 --method mean -o regrouped-clip
has err 'a part of a model of text and images'
refused 3 "$MHA" generate -m "$data/vision/vit-classes" -n 4 text
finish

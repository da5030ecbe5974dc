#!/bin/sh
# test_cli_draw.sh - tests `mha draw` and `mha report`: output formats, protection of existing files, and usage errors.
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

text='Two words, and two words again.'

expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 -o map.png
has err 'mha draw: map.png: '
[ "$(head -c 8 map.png | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail 'map.png must be a PNG file'
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 -o map.svg
has map.svg '<svg'
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 -o map.pdf
has map.pdf '%PDF-'
has map.pdf '/CreationDate (19800101000000' # not the time of the run

for ending in png svg pdf; do
    expect 0 "$MHA" draw -m "$tiny" "$text" --grid -o grid.$ending
done
has grid.svg '<svg'
has grid.pdf '%PDF-'
refused 2 "$MHA" draw -m "$tiny" "$text" --grid --head 0.0 -o no.png

# Heads of a pruned model must have the numbers of the unpruned model.
expect 0 "$MHA" prune -m "$tiny" --heads 0.0,1.1 -o fewer
expect 0 "$MHA" draw -m fewer "$text" --head 0.3 -o fewer.png
has err 'layer 0 head 3'
refused 2 "$MHA" draw -m fewer "$text" --head 0.0 -o no.png
has err '--head must name one of the 3 heads of layer 0 (got "0.0", which was removed)'
refused 2 "$MHA" draw -m fewer "$text" --head 0.4 -o no.png
has err '--head must name one of the 3 heads of layer 0'
has_not err removed
expect 0 "$MHA" draw -m fewer "$text" --grid -o fewer.svg
expect 0 "$MHA" heads -m fewer "$text"
[ "$(grep -c '^0\.0 \|^1\.1 ' out)" = 0 ] || fail 'the table must not list removed heads'
[ "$(grep -c '^0\.3 \|^1\.3 ' out)" = 2 ] || fail 'the table must list the heads with the numbers of the unpruned model'
grep -q '^    0        [a-z.]' out || fail 'the grid must be empty at position 0.0'
expect 0 "$MHA" logits -m fewer "$text" --heads 0.3 -o maps.safetensors
grep -q 'attn\.0\.3' maps.safetensors || fail 'the output must have a map of head 0.3'
refused 2 "$MHA" logits -m fewer "$text" --heads 0.0 -o no.safetensors

# --scale must set the number of pixels per point of a PNG (default: 2), and the size of an SVG and a PDF.
png_size() { od -An -tu1 -j16 -N8 "$1" | awk '{ print $3 * 256 + $4, $7 * 256 + $8 }'; }
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 --scale 1 -o one.png
for scale in 2 4; do
    expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 --scale $scale -o scaled.png --force
    # shellcheck disable=SC2046 # splits the output into two numbers
    set -- $(png_size one.png) $(png_size scaled.png)
    [ "$3 $4" = "$((scale * $1)) $((scale * $2))" ] || fail "--scale $scale must scale the size $1 x $2 (got $3 x $4)"
    [ $scale = 4 ] || same map.png scaled.png 'the default must be --scale 2'
done
sed -n 's/.*<svg[^>]* width="\([0-9]*\)[^"]*" height.*/\1/p' map.svg >wide
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 --scale 3 -o wide.svg
grep -q "width=\"$((3 * $(cat wide)))" wide.svg || fail "--scale 3 must multiply the width of an SVG, $(cat wide), by 3"
for wrong in 0 0.4 17 -1 x nan ''; do
    refused 2 "$MHA" draw -m "$tiny" "$text" --head 1.0 --scale "$wrong" -o no.png
    has err '--scale'
done

# --colors must select the color scale; the default must be root.
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 --colors root -o root.png
same map.png root.png 'the default must be --colors root'
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 --colors linear -o linear.png
cmp -s map.png linear.png && fail '--colors linear must have an effect'
expect 0 "$MHA" draw -m "$tiny" "$text" --grid --colors linear -o linear.pdf
refused 2 "$MHA" draw -m "$tiny" "$text" --head 1.0 --colors cubic -o no.png
has err '--colors must be one of root, linear (got "cubic")'
refused 2 "$MHA" draw -m "$tiny" "$text" --head 1.0 --font '' -o no.png

# Characters without a glyph in the font (Anatolian hieroglyphs) must be drawn as boxes, after a warning.
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 -o silent.png
has_not err 'warning'
unknown=$(printf '\360\224\220\200') # U+14400, an Anatolian hieroglyph
mkdir private
cp "$tiny/config.json" "$tiny/model.safetensors" private
sed "s/\"two\"/\"$unknown\"/" "$tiny/tokenizer.json" >private/tokenizer.json
grep -q "$unknown" private/tokenizer.json || fail 'the vocabulary must contain "two"'
expect 0 "$MHA" draw -m private "$unknown and $unknown" --head 1.0 -o box.png
has err 'lacks characters of 2 of'

# Without fonts, cairo draws ASCII characters in its built-in font.
echo '<fontconfig></fontconfig>' >no_fonts.conf
expect 0 env FONTCONFIG_FILE="$PWD/no_fonts.conf" "$MHA" draw -m "$tiny" "$text" --head 1.0 -o plain.png
has_not err 'warning'
expect 0 env FONTCONFIG_FILE="$PWD/no_fonts.conf" "$MHA" draw -m private "$unknown and $unknown" --head 1.0 -o ascii.png
has err 'no font is installed; the built-in font lacks characters of 2 of'

# The labels of columns must be tokens or, if the model has no tokenizer, ids.
gpt2=$data/models/gpt2-tiny
mkdir mute
cp "$gpt2/config.json" "$gpt2/model.safetensors" mute
expect 0 "$MHA" draw -m mute --ids 36,402,36 --head 0.1 -o ids.svg
expect 0 "$MHA" draw -m mute --ids 402,36,402 --head 0.1 -o other.svg
cmp -s ids.svg other.svg && fail 'different ids must give different drawings'
expect 0 "$MHA" draw -m mute --ids 36,402,36 --grid -o ids.png
expect 0 "$MHA" draw -m "$gpt2" --ids 36,402,88,287,292,77 --head 0.1 -o read.svg
expect 0 "$MHA" draw -m "$gpt2" 'Every morn' --head 0.1 -o text.svg
same read.svg text.svg 'ids and their text'
refused 3 "$MHA" draw -m mute 'Every morn' --head 0.1 -o no.png
refused 2 "$MHA" draw -m mute --ids 36,x --head 0.1 -o no.png
printf '36,402\n88,88,1\n' >ids
expect 0 "$MHA" report -m mute --ids 36,402,36 --by jacobian_probe --data ids -o ids.html --json
at tokens '["36","402","36"]'
at importance.texts 2

# Two figures of the same input must be bitwise identical.
expect 0 "$MHA" draw -m "$tiny" "$text" --head 1.0 -o again.png
same map.png again.png 'two drawings of one map'

# An existing file must not be overwritten without --force.
cp map.svg before.svg
refused 2 "$MHA" draw -m "$tiny" 'Other words.' --head 0.0 -o map.svg
same map.svg before.svg 'an existing file'
expect 0 "$MHA" draw -m "$tiny" 'Other words.' --head 0.0 -o map.svg --force

for wrong in 9.0 0.99 1 1. .1 -1.0 1.0x 99999999999.0; do
    refused 2 "$MHA" draw -m "$tiny" "$text" --head "$wrong" -o no.png
    has err "$wrong"
done
refused 2 "$MHA" draw -m "$tiny" "$text" --head 0.0 -o no.gif
refused 2 "$MHA" draw -m "$tiny" "$text" --head 0.0
refused 2 "$MHA" draw -m "$tiny" "$text" -o no.png
refused 2 "$MHA" draw -m "$tiny" one two --head 0.0 -o no.png
for left in no.png no.gif no.svg; do
    [ ! -e $left ] || fail "a rejected command must not leave $left"
done

# mha report must print to stdout only with --json, and must escape all data in its page.
expect 0 "$MHA" report -m "$tiny" '</script><img src=x onerror=alert(1)>' -o page.html
[ ! -s out ] || fail 'stdout must be empty'
has_not page.html '<img'
has page.html "default-src 'none'"
expect 0 "$MHA" report -m "$tiny" "$text" -o page2.html --json
at output page2.html
at model "$tiny"
at heads.2.3 3
expect 0 "$MHA" report -m "$tiny" "$text" --compare "$tiny" -o two.html --json
at compare.model "$tiny"
at compare.heads.# 3
expect 0 "$MHA" report -m "$tiny" "$text" --by confidence -o by.html --json
at importance.by confidence
at importance.values.#  3
printf 'one text\nand another\n' >data
expect 0 "$MHA" report -m "$tiny" "$text" --by jacobian_probe --data data -o data.html --json
at importance.texts 2
refused 2 "$MHA" report -m "$tiny" "$text" --data data -o no.html
expect 0 "$MHA" report -m "$tiny" "$text" --diversity --data data -o alike.html --json
at diversity.measures.js.blocks.# 1
at diversity.measures.js.blocks.0.# 78
at diversity.measures.js.blocks.0.0 0.0
at diversity.measures.output_cka.blocks.# 3
at diversity.measures.output_cka.blocks.2.# 10
at diversity.unique.2.# 4
at diversity.xy.# 12
at diversity.merges.# 11
# A report of several texts must be one page; importance must be measured on all of its texts.
printf 'One text.\n\nAnd a second one.\nThird.\n' >lines
expect 0 "$MHA" report -m "$tiny" -f lines -o lines.html --json
at output lines.html
at model "$tiny"
at texts.# 3
at texts.1.text 'And a second one.'
at texts.2.heads.2.3 3
at texts.2.attention.2.3.0.# "$("$JSON_AT" texts.2.tokens.# <out)"
expect 0 "$MHA" report -m "$tiny" one two --by confidence -o both.html --json --compare "$tiny"
at texts.#  2
at texts.1.text two
at texts.1.compare.text two
at importance.texts 2
at compare.importance.texts 2
# A report may have at most 67108864 attention weights in total: 607 texts with 12 heads of 96 x 96 weights each.
words=$(awk 'BEGIN { for (n = 0; n < 120; n++) printf "the cat " }')
awk -v words="$words" 'BEGIN { for (n = 0; n < 608; n++) print words }' >long
refused 2 "$MHA" report -m "$tiny" -f long -o no.html -q
has err 'must have at most 67108864 attention weights in total (exceeded at text 607 of 608)'
head -n 3 long >three
expect 0 "$MHA" report -m "$tiny" -f three -o three.html
has err 'three: line 3: '

printf '{"curve": [{"heads": 12, "loss": 1.5, "note": "<b>"}, {"heads": 6, "loss": 2}]}' >curve.json
expect 0 "$MHA" report -m "$tiny" "$text" --curve curve.json -o curve.html
has curve.html '"curve":[{"heads":12,"loss":1.5},{"heads":6,"loss":2}]'
for wrong in '{' '[]' '{"curve": []}' '{"curve": [{"heads": 1}]}' '{"curve": [{"heads": 1, "loss": "2"}]}' '{"curve": {"heads": 1}}'; do
    printf '%s' "$wrong" >wrong.json
    refused 3 "$MHA" report -m "$tiny" "$text" --curve wrong.json -o no.html
    has err 'wrong.json'
done
refused 3 "$MHA" report -m "$tiny" "$text" --compare no-such-folder -o no.html
expect 0 "$MHA" report -m "$tiny" "$text" -o -
has out "</html>"
[ ! -e - ] || fail "- must not be the name of an output file"
refused 2 "$MHA" report -m "$tiny" "$text" -o ""
has err "-o must name a file (got \"\")"
refused 2 "$MHA" report -m "$tiny" "$text"
[ ! -e no.html ] || fail 'a rejected command must not write a file'

finish

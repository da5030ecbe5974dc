#!/bin/sh
# test_cli_tour.sh - tests `mha tour`: published values of the tensors, shapes, parameter counts, JSON, the page, and usage
# errors.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"

# ---- list of tours ----
expect 0 "$MHA" tour
sed -n 's/^\([a-z][a-z-]*\)   *[^ ].*/\1/p' out >names
[ "$(wc -l <names)" = 16 ] || fail "the list must have 16 tours (got $(wc -l <names))"
expect 0 "$MHA" tour --json
at tours.# 16
at tours.0.name self-attention
at tours.8.example standard_mha.c
expect 0 "$MHA" tour --help
while read -r name; do has out "  $name "; done <names
# Each tour must name an equivalent example program, which the tests build and run.
expect 0 "$MHA" tour --json
n=0
while read -r name; do
    example=$("$JSON_AT" "tours.$n.example" <out)
    [ -f "$here/examples/$example" ] || fail "$name: examples/$example must exist"
    [ -f "$here/tests/examples/${example%.c}.expected" ] || fail "$name: a test must run examples/$example"
    n=$((n + 1))
done <names

# ---- published values ----
# This awk program prints "TOUR TENSOR: ELEMENTS" for each tensor in the output of a tour, in which a line with the name and
# shape precedes each tensor.
# shellcheck disable=SC2016 # code of awk
numbers='
/^tensor\(/ { split(before, word, " "); printf "%s %s:", tour, word[1]; on = 1; sub(/^tensor/, "") }
on { end = /\)$/; gsub(/[][(),]|\.\.\./, " "); for (n = 1; n <= split($0, x, " "); n++) printf " %s", x[n] }
on && end { print ""; on = 0 }
{ before = $0 }'
while read -r name; do
    expect 0 "$MHA" tour "$name"
    awk -v tour="$name" "$numbers" out >>printed
done <names
# Published values (marked "page") must be equal, except that the last digit of a value with an exponent may differ by 1. All other values
# were recorded and have a tolerance, because small sums of large values are inexact.
# shellcheck disable=SC2016
compare='
function differs(a, b, page,  x, y) {
    if (a == b) return 0
    if (a !~ /[0-9]/ || b !~ /[0-9]/) return 1
    if (!page) return (a - b) ^ 2 > (1e-5 + 1e-4 * (b < 0 ? -b : b)) ^ 2
    split(a, x, "e"); split(b, y, "e")
    return x[2] == "" || x[2] != y[2] || (x[1] - y[1]) ^ 2 > 1.1e-8
}
/^#/ { next }
NR == FNR { key = $1 " " $2; have[key] = $0; next }
{
    page = $3 == "page:"
    key = $1 " " $2 ":"
    count = split(have[key], got, " ")
    if (count != NF - 1) { print key " has " count - 2 " numbers, not " NF - 3; next }
    for (n = 4; n <= NF; n++) if (differs(got[n - 1], $n, page)) print key " number " n - 4 " is " got[n - 1] ", not " $n
    compared += NF - 3
}
END { print compared > "compared" }'
awk "$compare" printed "$data/tour.txt" >wrong
[ ! -s wrong ] || fail "printed tensors must equal those of tour.txt (got $(cat wrong))"
[ "$(cat compared)" -gt 3000 ] || fail "more than 3000 elements must be compared (got $(cat compared))"
grep -c ' page: ' "$data/tour.txt" >pages
[ "$(cat pages)" = 33 ] || fail "tour.txt must have 33 published tensors (got $(cat pages))"
# The comparison must detect a wrong digit.
sed 's/17\.4476/17.4477/' printed >changed
awk "$compare" changed "$data/tour.txt" | grep -q 'self-attention scores: number 6 is 17.4477' || fail 'a wrong digit must be detected'

# ---- shapes, functions, text, parameter counts ----
expect 0 "$MHA" tour weight-split
has out 'q_heads [2, 2, 6, 2]'
has out 'weights [2, 2, 6, 6]'
has out '   -> mha_linear_create, mha_linear_forward'
has out 'one matrix, split                  56         2400   1.56 and 1.19 times' # 3 x 12 + 16 + 4 parameters
expect 0 "$MHA" tour causal-attention
has out '4 of 5 rows'
expect 0 "$MHA" tour llama-attention
has out 'It is bitwise identical to row 5'
tr -s '\n ' ' ' <out | grep -q 'The context is bitwise identical to the context computed in one call' || fail 'the output must state that paged keys give a bitwise identical result'
expect 0 "$MHA" tour moe-heads
has out 'with slots                        324         4800' # 4 experts of 3 x (16 + 2), router 36, o_proj 72
has out 'tensor([[2, 0],'                                    # integers, as PyTorch prints indices
expect 0 "$MHA" tour variants
has out 'plain                         2362368    654311424' # 4 x (768^2 + 768); 4 x 2 x 128 x 768^2 + 4 x 128^2 x 768
has out 'Equivalent program: examples/variants.c'
has out 'multi-query                   1279616'             # 2 x (768^2 + 768) + 2 x (768 x 64 + 64)
expect 0 "$MHA" tour all
while read -r name; do has out "$name: "; done <names
for columns in 40 80 120; do
    expect 0 env COLUMNS=$columns "$MHA" tour all
    wide=$(awk -v n="$columns" 'length > n' out)
    [ -z "$wide" ] || fail "lines must have at most $columns columns (got $wide)"
done

# ---- JSON ----
expect 0 "$MHA" tour self-attention --json
at tours.# 1
at tours.0.steps.# 9
at tours.0.steps.3.title Scores
at tours.0.steps.3.tensors.0.name scores
at tours.0.steps.3.tensors.0.shape.1 5
at tours.0.steps.3.tensors.0.values.# 25
awk -v x="$("$JSON_AT" tours.0.steps.3.tensors.0.values.6 <out)" 'BEGIN { exit !(x > 17.44755 && x < 17.44765) }' ||
    fail 'the score of row 1, column 1 must be 17.4476'
at tours.0.steps.5.tensors.0.values.# 400
at tours.0.steps.8.counts.0.parameters 48
expect 0 "$MHA" tour causal-attention --json
at tours.0.steps.1.tensors.1.values.0 0.0
at tours.0.steps.1.tensors.1.values.1 null # -inf is printed as null
expect 0 "$MHA" tour all --json
at tours.# 16

# ---- HTML page ----
expect 0 "$MHA" tour all --html page.html
[ ! -s out ] || fail '--html must not write text to stdout'
has err 'page.html'
[ "$(grep -c '<script' page.html)" = 1 ] || fail 'the page must have one script'
grep -q "default-src 'none'; script-src 'sha256-[A-Za-z0-9+/]*='" page.html || fail 'the page must contain the hash of the script'
if grep -oE '(src|href)="[^#][^"]*"|url\([^)]*\)|https?:[^" <]*|@import' page.html >links; then fail "the page must not contain external links (got $(cat links))"; fi
while read -r name; do
    has page.html "<section id=\"$name\">"
    has page.html "href=\"#$name\""
done <names
has page.html '<polyline points="36.0,'
has page.html '17.4476'
[ "$(grep -o '<svg' page.html | wc -l)" -gt 150 ] || fail 'the page must have all figures'
expect 0 "$MHA" tour causal-attention --html one.html --json
at tours.0.name causal-attention
[ "$(grep -o '<rect[^>]*class="none"' one.html | wc -l)" = 24 ] || fail 'the page must mark 10 + 10 + 4 elements as masked'
refused 2 "$MHA" tour reshape --html one.html
has err 'one.html exists; --force replaces it'
expect 0 "$MHA" tour reshape --html one.html --force -q
[ ! -s err ] || fail '-q must suppress stderr'
has one.html '<rect class="head1"'

has one.html 'examples/split_heads.c'
expect 0 "$MHA" tour reshape --html -
has out '<section id="reshape">'
has err 'stdout'
[ ! -e - ] || fail '- must not be the name of an output file'

# ---- maps as text, token labels, and figures ----
expect 0 "$MHA" tour self-attention
has out '    upon |  @@      |' # this token attends only to itself
expect 0 "$MHA" tour self-attention --json
at tours.0.steps.6.tensors.0.words '["Once","upon","a","time","there"]'
expect 0 "$MHA" tour induction --json
for step in 1 2; do at tours.0.steps.$step.tensors.0.words '["drum","cat","kite","red","drum","cat"]'; done
if grep -q '%\|thousandths' out; then fail 'the induction tour must print fractions in one unit'; fi
expect 0 "$MHA" tour self-attention --figure curve.svg --tensor curve
has curve.svg '<svg'
expect 0 "$MHA" tour self-attention --figure first.png
expect 0 "$MHA" tour self-attention --figure curve.png --tensor curve
same first.png curve.png 'the first tensor that can be drawn must be the curve'
expect 0 "$MHA" tour induction --figure map.pdf --tensor behind_the_copy --json
has map.pdf '%PDF-'
at tours.0.name induction
for matrix in '' '[0,0]' '[0,1]'; do expect 0 "$MHA" tour stacked-heads --figure "w$matrix.svg" --tensor "weights$matrix"; done
cmp -s 'w[0,0].svg' 'w[0,1].svg' && fail 'two heads must have different maps'
for wrong in 'weights[0,2]' 'weights[0]' 'weights[0,1' 'weights[0,1]x' 'weights[-1,0]' x none ''; do
    refused 2 "$MHA" tour stacked-heads --figure no.png --tensor "$wrong"
    has err '--tensor must be one of weights'
done
refused 2 "$MHA" tour reshape --figure no.png
has err '--figure requires a tour with a map of weights or a curve (got reshape)'
refused 2 "$MHA" tour all --figure no.png
refused 2 "$MHA" tour reshape --figure no.gif
refused 2 "$MHA" tour self-attention --tensor curve
refused 2 "$MHA" tour self-attention --figure no.png --html no.html
refused 2 "$MHA" tour self-attention --figure curve.png
has err 'curve.png exists; --force replaces it'
[ ! -e no.png ] || fail 'a rejected command must not write a figure'

# ---- tables and files, color scales, slices ----
expect 0 "$MHA" tour self-attention --csv --tensor weights
[ "$(head -1 out)" = row,Once,upon,a,time,there ] || fail "the header must have the words (got $(head -1 out))"
[ "$(sed -n '3s/,.*//p' out)" = upon ] || fail 'rows must have the words'
[ "$(wc -l <out)" = 6 ] || fail "the table must have 6 lines (got $(wc -l <out))"
awk -F, 'NR > 1 { sum = 0; for (n = 2; n <= NF; n++) sum += $n; if ((sum - 1) ^ 2 > 1e-12) exit 1 }' out || fail 'rows of weights must sum to 1'
expect 0 "$MHA" tour self-attention --csv
[ "$(head -1 out)" = row,x,y ] || fail 'the default tensor of --csv must be the curve'
expect 0 "$MHA" tour causal-attention --csv --tensor mask
has out 'Once,0,-inf,-inf,-inf,-inf'
expect 0 "$MHA" tour stacked-heads --csv --tensor 'weights[1,0]'
[ "$(sed -n '2s/Your.*//p' out)" = 1,0, ] || fail "a row must begin with its indices (got $(sed -n 2p out))"
[ "$(wc -l <out)" = 7 ] || fail 'one matrix must have six rows'
expect 0 "$MHA" tour dropout --csv --tensor mean
[ "$(head -1 out)" = value ] || fail 'a scalar must have the header value'
refused 2 "$MHA" tour dropout --csv --tensor nothing
has err '--tensor must be a tensor of the tour dropout'
refused 2 "$MHA" tour all --csv
expect 0 "$MHA" tour self-attention --csv --tensor weights --text '=1+1,2 b'
[ "$(head -1 out)" = "row,\"'=1+1,2\",b" ] || fail "a formula with a comma must be one quoted field (got $(head -1 out))"
expect 0 "$MHA" tour stacked-heads --files stacked
for file in x.csv weights.csv weights-0-0.png weights-0-0.svg weights-1-1.png weights-1-1.svg heads.1.w_v.csv; do [ -s "stacked/$file" ] || fail "--files must write $file"; done
expect 0 "$MHA" tour stacked-heads --figure one.png --tensor 'weights[1, 1]'
same one.png stacked/weights-1-1.png '--files must draw the figures of --figure'
refused 2 "$MHA" tour stacked-heads --files stacked
has err 'exists; --force replaces it'
expect 0 "$MHA" tour stacked-heads --files stacked --force
mkdir some
: >some/weights.csv
refused 2 "$MHA" tour self-attention --files some
[ "$(ls some)" = weights.csv ] || fail 'a file that exists must prevent all files of --files'
refused 2 "$MHA" tour self-attention --files some/weights.csv
has err '--files must be a folder (got the file "some/weights.csv")'
refused 1 "$MHA" tour stacked-heads --files missing/folder
# On a full disk, here a limit on the size of files, no file and no new folder may remain.
mkdir empty
for folder in full empty; do
    (
        ulimit -f 1
        "$MHA" tour stacked-heads --files $folder 2>&1
        echo "status $?"
    ) | cat >message
    has message 'status 1'
    has message 'cannot write: File too large'
done
[ ! -e full ] || fail "a folder must not remain after a failure (got $(ls full))"
[ -z "$(ls empty)" ] || fail "new files must not remain after a failure (got $(ls empty))"
refused 2 "$MHA" tour stacked-heads --files stacked --csv
has err '--files and --csv are mutually exclusive'
expect 0 "$MHA" tour causal-attention
cp out root
expect 0 "$MHA" tour causal-attention --colors root
same root out 'the default color scale must be root'
expect 0 "$MHA" tour causal-attention --colors linear
cmp -s root out && fail '--colors linear must change the maps'
awk '!/[|]/' root >root.rest
awk '!/[|]/' out >linear.rest
same root.rest linear.rest '--colors must change the maps only'
expect 0 "$MHA" tour self-attention --figure linear.svg --tensor weights --colors linear
expect 0 "$MHA" tour self-attention --figure root.svg --tensor weights
cmp -s linear.svg root.svg && fail '--colors linear must change figures'
refused 2 "$MHA" tour reshape --colors cubic
has err '--colors must be one of root, linear (got "cubic")'
expect 0 "$MHA" tour stacked-heads
has out '   weights[1, 1]'

# ---- sources of tours: because they are a tutorial, they must include only public headers and headers of tours ----
cat "$here"/cli/tour/walks/tour_of_*.[ch] "$here"/cli/tour/tour_choice.[ch] "$here"/cli/tour/tour_head.[ch] "$here"/cli/tour/tour_inputs.[ch] "$here"/cli/tour/tour_layer.[ch] "$here"/cli/tour/tour_model.[ch] "$here"/cli/tour/tour.h | sed -n 's/^#include "\(.*\)"/\1/p' | sort -u >seen
printf '%s\n' mha/mha.h tour/tour.h tour/tour_choice.h tour/tour_head.h tour/tour_inputs.h tour/tour_layer.h tour/tour_model.h tour/tours.h tour/walks/tour_of_llama.h | sort >public
same seen public 'headers that the tours include'

# ---- completion of tour names ----
if command -v bash >/dev/null; then
    "$MHA" completion bash >completion.bash
    # shellcheck disable=SC2016
    words=$(bash -c '. ./completion.bash; COMP_WORDS=(mha tour resh) COMP_CWORD=2; _mha; echo "${COMPREPLY[*]}"')
    [ "$words" = reshape ] || fail "bash must complete 'mha tour resh' to 'reshape' (got '$words')"
fi
"$MHA" completion zsh | grep -qF "'*:argument:(self-attention causal-attention" || fail 'the completion of zsh must list the tours'
"$MHA" completion fish | grep -qF "__fish_seen_subcommand_from tour' -f -a 'self-attention" || fail 'the completion of fish must list the tours'

# ---- usage errors ----
refused 2 "$MHA" tour one-head
has err 'or all (got "one-head")'
has err 'self-attention, causal-attention'
refused 2 "$MHA" tour reshape dropout
has err 'unexpected argument "dropout"'
refused 2 "$MHA" tour --html x.html
[ ! -e x.html ] || fail '--html without a tour must not write a page'
refused 2 "$MHA" tour reshape --html ''
has err '--html must name a file (got "")'
refused 2 "$MHA" tour reshape --html - --json
has err 'with --json, the output must be a file'
refused 2 "$MHA" tour reshape --force
refused 1 "$MHA" tour reshape --html missing/x.html
has err 'missing/x.html'
refused 1 "$MHA" tour reshape --html /dev/full --force
has err '/dev/full'
refused 2 "$MHA" tour "$(printf 'a\033[2Jb')"
harmless err
# ---- without the data of the installation ----
# Only a tour that reads the built-in model requires it.
if [ ! -e /usr/local/share/mha ]; then
    mkdir -p alone/bin
    cp "$MHA" alone/bin/mha
    alone=$PWD/alone/bin/mha
    expect 0 "$alone" tour
    expect 0 "$alone" tour self-attention
    expect 0 "$alone" tour variants --json
    expect 0 "$alone" tour weight-split -m "$data/models/gpt2-tiny" --layer 0
    refused 1 "$alone" tour induction
    has err 'share/mha/builtin is missing'
    refused 1 "$alone" tour all
fi
finish

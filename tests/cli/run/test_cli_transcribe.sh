#!/bin/sh
# test_cli_transcribe.sh - tests `mha transcribe`: tokens of transformers, windows, words with their times, and refused
# files and models.
set -u
# shellcheck source=tests/cli/lib.sh
. "$PWD/tests/cli/lib.sh"
model=$data/seq2seq/whisper stories=$here/share/mha/texts/stories.txt
transcribe() { "$MHA" transcribe -m "$model" "$@"; }
if "$MHA" transcribe -m "$model" "$0" 2>&1 | grep -q 'KISS FFT'; then
    echo 'this build has no KISS FFT'
    exit 77
fi

# The tokens must be those of transformers for the prompt <|startoftranscript|><|en|><|transcribe|><|notimestamps|>. The
# second file has two windows.
wav short.wav 12000 "$stories"
wav long.wav 20000 "$stories"
expect 0 transcribe --json -n 12 short.wav
at ids '[163,264,163,163,163,77,254,163,163,163,163,167]'
at language en
at seconds 0.375
cp out alone
expect 0 transcribe --json -n 12 --language en --task transcribe -t 2 short.wav
same alone out 'the detected language must be the only one that the model has'
expect 0 transcribe --json -n 12 long.wav
at ids '[147,147,147,147,147,308,147,163,147,20,147,244,163,264,163,264,163,77,254,163,287,77,264,167]'
cp out both
expect 0 transcribe --json -n 12 --at-once 1 long.wav
same both out 'the text must not depend on --at-once'
expect 0 transcribe --json -n 12 long.wav short.wav
sed -n 2p out >second
same alone second 'the text of a file must not depend on other files'

# Words must be in order, within the audio, and separated by spaces.
expect 0 transcribe --json --times long.wav
has out '"words": [{"word": '
has_not out '"word": ""'
has_not out '"word": " '
expect 0 transcribe --times short.wav
awk '$1 + 0 < last || $2 + 0 < $1 + 0 || $2 + 0 > 0.38 { exit 1 } { last = $1 }' out || fail "words must ascend: $(cat out)"
harmless out
expect 0 transcribe short.wav long.wav
has out 'short.wav'

# Files and models that must be refused.
printf 'RIFF' >cut.wav
refused 3 transcribe cut.wav
has err 'cut.wav: must be a WAV file'
head -c 30 short.wav >cut.wav
refused 3 transcribe cut.wav
has err 'cut.wav: chunk fmt'
LC_ALL=C sed 's/\x80\x3e/\x44\xac/' short.wav >rate.wav
refused 3 transcribe rate.wav
has err 'sampling rate must be 16000'
refused 3 transcribe absent.wav
has err 'absent.wav: cannot open'
refused 3 transcribe .
has err 'a directory'
refused 3 transcribe --language xx short.wav
has err '--language must be the code of a language'
refused 3 transcribe --language "$(printf 'e\033n')" short.wav
harmless err
refused 3 transcribe --task translate short.wav
has err '<|translate|>'
refused 2 transcribe --task sing short.wav
has err '--task must be one of transcribe, translate (got "sing")'
refused 2 transcribe
refused 2 transcribe -n 45 short.wav
has err '-n'
refused 3 "$MHA" transcribe -m "$data/seq2seq/bart" short.wav
has err 'must be a model that reads audio'
refused 3 "$MHA" transcribe short.wav
has err 'must be a model that reads audio'
refused 3 "$MHA" generate -m "$model" text
has err 'use mha transcribe'

# A model with one language has neither a language nor a task in its prompt.
cp -r "$model" one && chmod -R u+w one
sed 's/{/{"is_multilingual": false,/' "$model/generation_config.json" >one/generation_config.json
expect 0 "$MHA" transcribe -m one --json -n 3 short.wav
at language null
refused 3 "$MHA" transcribe -m one --language en short.wav
has err 'must not be given for a model with one language'

# mha info names the features.
expect 0 "$MHA" info -m "$model"
has out '80 log-mel bins, 48 frames of 10 ms per window'
expect 0 "$MHA" info --json -m "$model"
at feature_bins 80
finish

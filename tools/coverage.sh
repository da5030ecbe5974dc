#!/bin/sh
# coverage.sh [BUILD] - measures which lines and branches of the readers (src/io, src/text, src/model/config) are
# covered by the tests and the fuzz corpora together. Builds in BUILD (default: build/coverage) with clang's
# source-based coverage, runs the tests named below, and prints a table with one row per file.
#
# Exits with status 4 if fewer than 95 % of the lines or 90 % of the branches are covered, 1 if a test fails, 77 if a
# tool is missing.
set -eu
cd "$(dirname -- "$0")/.."
build=${1:-build/coverage}
lines=95 branches=90
tests='^(test_io_.*|test_text_.*|test_model_(open|create|choice|save|pruned|layers|shared)|test_safetensors|test_tokenizer|test_trained_tokenizers|test_rope|test_train_(state|files)|test_heads_(data|state)|test_generate|test_builtin|fuzz_.*)$'

for suffix in -16 ''; do
    command -v "llvm-cov$suffix" >/dev/null && command -v "llvm-profdata$suffix" >/dev/null && command -v "clang$suffix" >/dev/null && break
    [ -n "$suffix" ] || {
        echo 'skipped: coverage requires clang, llvm-cov and llvm-profdata'
        exit 77
    }
done

cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_COMPILER="clang$suffix" -DMHA_PROGRAM=OFF \
    -DCMAKE_C_FLAGS='-O1 -fprofile-instr-generate -fcoverage-mapping' -DMHA_TEST_MATCH="$tests" >/dev/null
ninja -C "$build" >"$build/ninja.log" || {
    tail -n 20 "$build/ninja.log"
    exit 1
}
rm -rf "$build/profiles"
LLVM_PROFILE_FILE=$PWD/$build/profiles/%p.profraw ctest --test-dir "$build" -R "$tests" --output-on-failure >"$build/ctest.log" || {
    tail -n 40 "$build/ctest.log"
    exit 1
}
"llvm-profdata$suffix" merge -sparse "$build"/profiles/*.profraw -o "$build/all.profdata"

# Every test program contains the library, so all test programs must be passed as objects.
objects=$(find "$build/tests" -maxdepth 2 -type f \( -name 'test_*' -o -name 'fuzz_*' \) -perm -u+x | sed 's/^/-object /')
# shellcheck disable=SC2086 # a list of words
"llvm-cov$suffix" report ${objects#-object } -instr-profile="$build/all.profdata" src/io src/text src/model/config |
    awk -v lines=$lines -v branches=$branches '
        function percent(missed, all) { return all ? 100 * (all - missed) / all : 100 }
        BEGIN { format = "%-36s %7s %9s %10s %12s\n"
                printf format, "file", "lines", "covered", "branches", "covered" }
        $1 ~ /\.[ch]$/ && NF >= 13 {
            printf format, $1, $8, sprintf("%.1f %%", percent($9, $8)), $11, sprintf("%.1f %%", percent($12, $11))
            l += $8; lm += $9; b += $11; bm += $12 }
        END { printf format, "all", l, sprintf("%.2f %%", percent(lm, l)), b, sprintf("%.2f %%", percent(bm, b))
              if (!l || !b) { print "failed: the report contains no files"; exit 1 }
              if (percent(lm, l) < lines || percent(bm, b) < branches) {
                  printf "failed: at least %d %% of the lines and %d %% of the branches must be covered\n", lines, branches
                  exit 4 } }'

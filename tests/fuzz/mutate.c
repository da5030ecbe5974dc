/* mutate.c - implements mutate.h. The text, which may be malformed, is split into tokens; one value, key or member is
 * then replaced, removed, repeated or exchanged. The mutator does not use the JSON reader of the library, which it
 * tests. */
#include "mutate.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

size_t LLVMFuzzerMutate(uint8_t *bytes, size_t n, size_t max);

enum { TOKENS = 2048 };

typedef struct token {
    size_t begin, end; /* for an object or array, `end` is after the closing bracket */
    bool key;
} token;

/* The tokens of the current text. */
static token tokens[TOKENS];
static int token_count;

static const char *const values[] = {"0",
                                     "1",
                                     "-1",
                                     "2",
                                     "3",
                                     "4",
                                     "8",
                                     "16",
                                     "0.5",
                                     "1e-5",
                                     "1e308",
                                     "1e309",
                                     "-0",
                                     "255",
                                     "256",
                                     "65536",
                                     "4096",
                                     "4097",
                                     "2147483647",
                                     "2147483648",
                                     "4294967296",
                                     "9007199254740993",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "18446744073709551615",
                                     "1e400",
                                     "1.0",
                                     "32.0",
                                     "null",
                                     "true",
                                     "false",
                                     "\"\"",
                                     "\"a\"",
                                     "[]",
                                     "{}",
                                     "[0]",
                                     "[1,2]",
                                     "[[]]",
                                     "{\"a\":1}",
                                     "\"\\u0000\"",
                                     "\"\\ud800\"",
                                     "\"..\"",
                                     "NaN"};
enum { VALUES = sizeof values / sizeof *values };

static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

static size_t string_end(const uint8_t *text, size_t n, size_t at)
{
    for (at++; at < n && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < n ? at + 1 : n;
}

static size_t scalar_end(const uint8_t *text, size_t n, size_t at)
{
    while (at < n && !strchr(",:{}[]\" \t\r\n", text[at]))
        at++;
    return at;
}

/* Returns true if the next character other than white space is a colon. */
static bool before_colon(const uint8_t *text, size_t n, size_t at)
{
    while (at < n && text[at] && strchr(" \t\r\n", text[at]))
        at++;
    return at < n && text[at] == ':';
}

static void close_bracket(int open[64], int *depth, size_t end)
{
    if (*depth > 0) tokens[open[--*depth]].end = end;
}

static void find_tokens(const uint8_t *text, size_t n)
{
    int open[64], depth = 0;
    token_count = 0;
    for (size_t at = 0; at < n && token_count < TOKENS;) {
        const uint8_t c = text[at];
        token *t = &tokens[token_count];
        if (c == '{' || c == '[') {
            *t = (token){at, n, false};
            if (depth < 64) open[depth++] = token_count;
            token_count++;
            at++;
        } else if (c == '}' || c == ']') {
            close_bracket(open, &depth, ++at);
        } else if (c == '\0' || strchr(",: \t\r\n", c)) {
            at++;
        } else {
            *t = (token){at, c == '"' ? string_end(text, n, at) : scalar_end(text, n, at), false};
            t->key = c == '"' && before_colon(text, n, t->end);
            at = t->end;
            token_count++;
        }
    }
}

/* Replaces bytes [begin, end) of the text with `with`, unless the result is longer than `max`. Returns the new length.
 */
static size_t splice(uint8_t *text, size_t n, size_t max, size_t begin, size_t end, const void *with, size_t bytes)
{
    if (n - (end - begin) + bytes > max) return n;
    memmove(text + begin + bytes, text + end, n - end);
    memcpy(text + begin, with, bytes);
    return n - (end - begin) + bytes;
}

/* Returns the end of the member with the key token `key`: the position after its value and a following comma. */
static size_t member_end(const uint8_t *text, size_t n, int key)
{
    size_t end = key + 1 < token_count ? tokens[key + 1].end : tokens[key].end;
    while (end < n && text[end] && strchr(" \t\r\n", text[end]))
        end++;
    return end < n && text[end] == ',' ? end + 1 : end;
}

static size_t copy_over(uint8_t *text, size_t n, size_t max, const token *to, size_t begin, size_t end)
{
    uint8_t *copy = malloc(end - begin + 1);
    if (!copy) return n;
    memcpy(copy, text + begin, end - begin);
    n = splice(text, n, max, to->begin, to->end, copy, end - begin);
    free(copy);
    return n;
}

/* Mutates the text at token `i`, as selected by the random bits `r`, and returns its new length. */
static size_t change(uint8_t *text, size_t n, size_t max, int i, uint64_t r)
{
    const token *t = &tokens[i], *other = &tokens[(r >> 32) % (uint64_t)token_count];
    const char *value = values[(r >> 40) % VALUES];
    switch (r % 5) {
    case 0: /* removes or repeats a member */
        if (t->key && r >> 63) return splice(text, n, max, t->begin, member_end(text, n, i), "", 0);
        return t->key ? copy_over(text, n, max, &(token){t->begin, t->begin, false}, t->begin, member_end(text, n, i))
                      : n;
    case 1: /* replaces a key with another key, or a value with another value */
        return t->key == other->key ? copy_over(text, n, max, t, other->begin, other->end) : n;
    case 2: { /* mutates bytes inside the token */
        const size_t bytes = t->end - t->begin;
        uint8_t part[256];
        if (bytes > sizeof part / 2) return n;
        memcpy(part, text + t->begin, bytes);
        return splice(text, n, max, t->begin, t->end, part, LLVMFuzzerMutate(part, bytes, sizeof part));
    }
    default:
        return t->key ? n : splice(text, n, max, t->begin, t->end, value, strlen(value));
    }
}

size_t fuzz_mutate_json(uint8_t *text, size_t n, size_t max, unsigned seed)
{
    uint64_t state = seed;
    if (next(&state) % 2) return LLVMFuzzerMutate(text, n, max);
    for (uint64_t changes = 1 + next(&state) % 3; changes > 0; changes--) {
        find_tokens(text, n);
        if (token_count == 0) return LLVMFuzzerMutate(text, n, max);
        const int i = (int)(next(&state) % (uint64_t)token_count);
        n = change(text, n, max, i, next(&state));
    }
    return n;
}

size_t fuzz_mutate_header(uint8_t *file, size_t n, size_t max, unsigned seed)
{
    uint64_t length = 0, state = seed;
    if (n > 8) memcpy(&length, file, 8);
    if (n <= 8 || length > n - 8 || next(&state) % 4 == 0) return LLVMFuzzerMutate(file, n, max);
    const size_t data = n - 8 - (size_t)length, room = max - 8 - data;
    uint8_t *header = malloc(room + 1);
    if (!header) return n;
    memcpy(header, file + 8, (size_t)length);
    length = fuzz_mutate_json(header, (size_t)length, room, (unsigned)next(&state));
    memmove(file + 8 + length, file + n - data, data);
    memcpy(file + 8, header, (size_t)length);
    memcpy(file, &length, 8);
    free(header);
    return 8 + (size_t)length + data;
}

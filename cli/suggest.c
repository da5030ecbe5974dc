/* suggest.c - see suggest.h. */
#include "suggest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { LONGEST = 32 }; /* maximum bytes of a word; longer words get no suggestion */

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* Returns the edit distance of two words: the number of bytes inserted, removed, replaced or exchanged with a
 * neighbor. */
static int edits(const char *a, const char *b)
{
    int rows[3][LONGEST + 1], *before = rows[0], *last = rows[1], *row = rows[2];
    const int m = (int)strlen(a), n = (int)strlen(b);
    if (m > LONGEST || n > LONGEST) return LONGEST;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; i <= m; i++) {
        int *oldest = before;
        before = last, last = row, row = oldest;
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            row[j] = min(min(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
            const bool exchanged = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (exchanged) row[j] = min(row[j], before[j - 2] + 1);
        }
    }
    return row[n];
}

suggestion suggest_for(const char *word)
{
    const int length = (int)strlen(word);
    return (suggestion){.word = word, .distance = length < 3 ? 1 : length < 6 ? 2 : 3};
}

void suggest_offer(suggestion *s, const char *candidate)
{
    const int distance = edits(s->word, candidate);
    const size_t n = strlen(s->word);
    const bool begins =
        n >= 3 && strncmp(s->word, candidate, n) == 0; /* an abbreviation, such as --temp for --temperature */
    if (distance >= s->distance && !(begins && !s->best)) return;
    s->best = candidate;
    if (distance < s->distance) s->distance = distance;
}

const char *suggest_text(const suggestion *s, const char *before, char text[SUGGEST_TEXT])
{
    *text = '\0';
    if (s->best) snprintf(text, SUGGEST_TEXT, "; did you mean %s%s?", before, s->best);
    return text;
}

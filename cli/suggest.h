/* suggest.h - "did you mean": the known word most similar to a misspelled one. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

typedef struct suggestion {
    const char *word; /* the word as given */
    const char *best; /* best candidate so far; NULL if none is similar enough */
    int distance;     /* edits between both */
} suggestion;

/* `word` is the misspelled word; then each known word is tried. */
suggestion suggest_for(const char *word);
void suggest_offer(suggestion *suggestion, const char *candidate);

/* "; did you mean WORD?" for the end of a message, or "" without a best word; `before` precedes the word, for example
 * "--". */
enum { SUGGEST_TEXT = 96 };
const char *suggest_text(const suggestion *suggestion, const char *before, char text[SUGGEST_TEXT]);

#endif

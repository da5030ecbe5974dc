/* suggest.h - "did you mean": finds the known word most similar to a misspelled word. */
#ifndef CLI_SUGGEST_H
#define CLI_SUGGEST_H

typedef struct suggestion {
    const char *word; /* the misspelled word */
    const char *best; /* best candidate so far; NULL if none is similar enough */
    int distance;     /* edit distance of `word` and `best` */
} suggestion;

/* suggest_for starts a search for the misspelled `word`; suggest_offer compares one known word with it. */
suggestion suggest_for(const char *word);
void suggest_offer(suggestion *suggestion, const char *candidate);

/* Returns "; did you mean WORD?" for the end of a message, or "" if no known word is similar enough. `before` precedes
 * the word, for example "--". */
enum { SUGGEST_TEXT = 96 };
const char *suggest_text(const suggestion *suggestion, const char *before, char text[SUGGEST_TEXT]);

#endif

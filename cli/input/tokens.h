/* tokens.h - token ids as they are given, and tokens on a terminal, in cells wide enough for the token and its id. */
#ifndef CLI_INPUT_TOKENS_H
#define CLI_INPUT_TOKENS_H

#include "input/input.h"

/* The token of an id as the file spells it; "" for an id that has none. */
const char *cli_token_text(const mha_tokenizer *tokenizer, int32_t id);

/* The same; where the model has no tokenizer the id in digits, which are written to `digits`. */
enum { CLI_ID_DIGITS = 12 };
const char *cli_token_name(const mha_tokenizer *tokenizer, int32_t id, char digits[CLI_ID_DIGITS]);

/* Text n of --ids: whole numbers with commas between them, each a token of the model, which has `vocab`. Appends them
 * to ids, which has room for strlen(text) / 2 + 1 more, and adds to *count. Returns an exit code. */
int cli_ids_read(const cli_session *session, const cli_texts *texts, int64_t n, int64_t vocab, int32_t *ids,
                 int64_t *count);

/* Every id must be below `rows`, the model's embeddings: one that is not is a fault of the folder. `rows` 0 = unknown.
 * Returns an exit code. */
int cli_check_rows(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int64_t rows);

/* Tokens in lines that fit the terminal, each line followed by its ids; every line begins with `indent` spaces. Special
 * tokens are dimmed. */
void cli_put_tokens(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int indent);

/* The text of a token that the tokenizer spells in another way, such as " the" for a word with a mark for the space
 * before it; NULL where the spelling is the text, or where the token is no whole character. To be freed with free. */
char *cli_token_words(const mha_tokenizer *tokenizer, int32_t id);

#endif

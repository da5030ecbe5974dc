/* tokens.h - parses token ids, and prints tokens on a terminal in cells wide enough for the token and its id. */
#ifndef CLI_INPUT_TOKENS_H
#define CLI_INPUT_TOKENS_H

#include "input/input.h"
#include <jansson.h>

/* Returns the token of an id as stored in the file; "" for an unknown id. */
const char *cli_token_text(const mha_tokenizer *tokenizer, int32_t id);

/* Returns the token of an id; without a tokenizer, the id in digits, written to `digits`. In a model of images, the
 * token of position `id`: [class], or row and column of the patch. */
enum { CLI_ID_DIGITS = 12 };
const char *cli_token_name(const mha_model *model, int32_t id, char digits[CLI_ID_DIGITS]);

/* Parses text n of --ids: integers separated by commas, each less than `vocab`. Appends the ids to `ids` and increments
 * *count for each id. `ids` must have space for strlen(text) / 2 + 1 more ids. Returns an exit code. */
int cli_ids_read(const cli_session *session, const cli_texts *texts, int64_t n, int64_t vocab, int32_t *ids,
                 int64_t *count);

/* Checks that every id is less than `rows`, the number of rows in the model's embedding; 0 = unknown, no check. Returns
 * an exit code. */
int cli_check_rows(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int64_t rows);

/* Prints tokens in lines that fit the terminal, each followed by a line of ids and indented by `indent` spaces. Special
 * tokens are printed dim. */
void cli_put_tokens(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int indent);

/* Returns the decoded text of a token if it differs from the stored token, such as " the" for a token with a space
 * mark. Returns NULL if it does not differ or is not valid UTF-8. The caller must free the text. */
char *cli_token_words(const mha_tokenizer *tokenizer, int32_t id);

/* Returns the readable name of a token: its words, its stored token, or without a tokenizer its id. The caller must
 * free the text; NULL if memory is exhausted. */
char *cli_token_readable(const mha_tokenizer *tokenizer, int32_t id);
/* Returns the same as a JSON string. */
json_t *cli_token_json(const mha_tokenizer *tokenizer, int32_t id);

#endif

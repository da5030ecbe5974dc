/* tokens.h - tokens on a terminal, in cells wide enough for the token and its id. */
#ifndef CLI_TOKENS_H
#define CLI_TOKENS_H

#include "command.h"

/* The token of an id as the file spells it; "" for an id that has none. */
const char *cli_token_text(const mha_tokenizer *tokenizer, int32_t id);

/* Every id must be below `rows`, the model's embeddings: one that is not is a fault of the folder. `rows` 0 = unknown.
 * Returns an exit code. */
int cli_check_rows(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int64_t rows);

/* Tokens in lines that fit the terminal, each line followed by its ids; every line begins with `indent` spaces. Special
 * tokens are dimmed. */
void cli_put_tokens(const cli_session *session, const mha_tokenizer *tokenizer, const mha_encoding *e, int indent);

#endif

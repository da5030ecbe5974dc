/* known_expressions.h - the regular expressions of published tokenizers, and equivalent expressions for PCRE2. */
#ifndef MHA_TEXT_PRETOKENIZE_KNOWN_EXPRESSIONS_H
#define MHA_TEXT_PRETOKENIZE_KNOWN_EXPRESSIONS_H

#include <stddef.h>

/* The split patterns of GPT-2, which ByteLevel uses, and of tokenizers in GGUF files. */
extern const char mha__regex_gpt2[], mha__regex_llama3[], mha__regex_qwen2[], mha__regex_gpt_oss[];

/* Returns the index of an expression, as it is written in tokenizer.json; -1 if it is unknown. */
int mha__expression_index(const char *text);
/* Returns the expression with this index, as it is written in tokenizer.json. */
const char *mha__expression_text(int index);
/* Writes the equivalent expression for PCRE2 to `to`, unless `to` is NULL, and returns its length; a NUL is not
 * written. */
size_t mha__expression_write(int index, char *to);

#endif

/* held_out_evaluation.h - a model with fewer heads, or with heads that share, beside the one that it was made of:
 * size, and on texts that were held out, quality and speed. */
#ifndef CLI_EDIT_HELD_OUT_EVALUATION_H
#define CLI_EDIT_HELD_OUT_EVALUATION_H

#include <jansson.h>

#include "edit/held_out_texts.h"

typedef struct judgement {
    mha_edit_evaluation of;
    const char *held_out; /* what it was evaluated on, as held_texts.split says; NULL: there were no texts */
} judgement;

/* Evaluates an edit. Returns an exit code; the message has been printed. */
int judge(cli_session *s, const mha_model_edit *edit, const held_texts *texts, judgement *j);
/* Adds the quality to the record of the edit, and writes it to -o. */
int judge_save(cli_session *s, mha_model_edit *edit, const judgement *j);
/* Logs the broken rule of transformers, if any. */
void judge_log_transformers(const cli_session *s, const judgement *j);

json_t *judge_pair(int64_t before, int64_t after);
/* Adds parameters, bytes, kv_bytes_per_token and, if there were texts, quality and tokens_per_second. */
void judge_add_json(json_t *all, const judgement *j);

/* The table: its title, one row of it, and what all such tables end with. `learned` says what was done on other texts:
 * "fitted on". `unknown` is a sentence on what may have been chosen on these texts before this run, or NULL. */
void judge_print_title(const cli_session *s);
void judge_print_row(const cli_session *s, const char *name, int64_t before, int64_t after);
void judge_print_rest(const cli_session *s, const judgement *j, const char *learned, const char *unknown);

#endif

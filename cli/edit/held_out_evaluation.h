/* held_out_evaluation.h - compares an edited model (pruned or regrouped) with its source: size and, on held-out
 * texts, quality and speed. */
#ifndef CLI_EDIT_HELD_OUT_EVALUATION_H
#define CLI_EDIT_HELD_OUT_EVALUATION_H

#include <jansson.h>

#include "edit/held_out_texts.h"

typedef struct judgement {
    mha_edit_evaluation of;
    const char *held_out; /* description of the evaluation texts (held_texts.split); NULL if there are none */
} judgement;

/* Evaluates an edit. Returns an exit code and prints any error. */
int judge(cli_session *s, const mha_model_edit *edit, const held_texts *texts, judgement *j);
/* Adds the quality to the record of the edit, and writes the model to the folder of -o. */
int judge_save(cli_session *s, mha_model_edit *edit, const judgement *j);
/* If transformers cannot load the edited model, logs why. */
void judge_log_transformers(const cli_session *s, const judgement *j);

/* Returns [before, after]. */
json_t *judge_pair(int64_t before, int64_t after);
/* Adds parameters, bytes, kv_bytes_per_token and, if there were evaluation texts, quality and tokens_per_second. */
void judge_add_json(json_t *all, const judgement *j);

/* Print the table: title, rows, and the sentences after the rows. `learned` is "fitting" or "choosing or fitting";
 * `unknown` is a warning that heads may have been chosen on these texts, or NULL. */
void judge_print_title(const cli_session *s);
void judge_print_row(const cli_session *s, const char *name, int64_t before, int64_t after);
void judge_print_rest(const cli_session *s, const judgement *j, const char *learned, const char *unknown);

#endif

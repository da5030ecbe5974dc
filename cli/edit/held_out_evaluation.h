/* held_out_evaluation.h - compares an edited model (pruned or regrouped) with its source: size and, on held-out
 * texts, quality and speed. */
#ifndef CLI_EDIT_HELD_OUT_EVALUATION_H
#define CLI_EDIT_HELD_OUT_EVALUATION_H

#include "edit/held_out_texts.h"
#include <jansson.h>

typedef struct held_out_evaluation {
    mha_edit_evaluation of;
    const char *held_out; /* description of the evaluation texts (held_texts.split); NULL if there are none */
} held_out_evaluation;

/* Evaluates an edit. Returns an exit code and prints any error. */
int held_out_evaluate(cli_session *s, const mha_model_edit *edit, const held_texts *texts, held_out_evaluation *e);
/* Adds the quality to the record of the edit, and writes the model to the -o folder. */
int held_out_save(cli_session *s, mha_model_edit *edit, const held_out_evaluation *e);
/* Logs the reason if transformers cannot load the edited model. */
void held_out_log_transformers(const cli_session *s, const held_out_evaluation *e);

/* Returns [before, after]. */
json_t *held_out_pair_json(int64_t before, int64_t after);
/* Adds parameters, bytes, kv_bytes_per_token and, if there were evaluation texts, quality and tokens_per_second. */
void held_out_add_json(json_t *all, const held_out_evaluation *e);

/* Print the table: title, rows, and the sentences after the rows. `learned` is "fitting", "choosing or fitting", or
 * NULL if no texts were used for either; `unknown` is a warning that heads may have been chosen on these texts, or
 * NULL. */
void held_out_print_title(const cli_session *s);
void held_out_print_row(const cli_session *s, const char *name, int64_t before, int64_t after);
void held_out_print_rest(const cli_session *s, const held_out_evaluation *e, const char *learned, const char *unknown);

#endif

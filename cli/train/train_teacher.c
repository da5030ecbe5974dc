/* train_teacher.c - checks the settings of --teacher, and opens the teacher model. */
#include "input/input.h"
#include "output.h"
#include "train/train_run.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- settings ---- */

int train_settings_check_teacher(const cli_session *s, const train_settings *t)
{
    const char *other = !isnan(t->teacher_temperature) ? "--teacher-temperature"
                        : !isnan(t->label_weight)      ? "--label-weight"
                        : !isnan(t->logit_weight)      ? "--logit-weight"
                        : !isnan(t->state_weight)      ? "--state-weight"
                        : !isnan(t->text_weight)       ? "--text-weight"
                                                       : NULL;
    if (t->teacher || !other) return CLI_DONE;
    return cli_usage(s, "%s requires --teacher", other);
}

/* If any weight is given, the default of the other weights is 0. */
void train_settings_fit_teacher(train_settings *t, bool logits)
{
    double *const weight[] = {&t->label_weight, &t->logit_weight, &t->state_weight, &t->text_weight};
    const double usual[] = {logits ? 0.5 : 0, logits ? 0.5 : 0, logits ? 0 : 1, 0};
    bool given = false;
    for (int n = 0; n < 4; n++)
        given |= !isnan(*weight[n]);
    for (int n = 0; n < 4; n++)
        if (isnan(*weight[n])) *weight[n] = given ? 0 : usual[n];
    if (isnan(t->teacher_temperature)) t->teacher_temperature = 2;
}

bool train_settings_labels(const train_settings *t)
{
    return !t->teacher || t->label_weight > 0;
}

mha_model_distill train_settings_distill_of(const train_settings *t)
{
    if (!t->teacher) return (mha_model_distill){0};
    return (mha_model_distill){.labels = t->label_weight,
                               .logits = t->logit_weight,
                               .hidden = t->state_weight,
                               .text = t->text_weight,
                               .temperature = t->teacher_temperature};
}

/* ---- teacher model ---- */

/* Returns the first id whose tokens in the two tokenizers differ; -1 if the tokens of all common ids are equal. */
static int32_t first_difference(const mha_tokenizer *a, const mha_tokenizer *b)
{
    for (int32_t id = 0; id < mha_tokenizer_size(a) && id < mha_tokenizer_size(b); id++) {
        const char *one = mha_tokenizer_token(a, id), *other = mha_tokenizer_token(b, id);
        if (one && other && strcmp(one, other) != 0) return id;
    }
    return -1;
}

int train_run_check_teacher(const train_run *run, const mha_model *model)
{
    char path[PATH_MAX];
    const cli_session *s = run->s;
    const mha_tokenizer *own = mha_model_tokenizer(model);
    mha_tokenizer *its = NULL;
    mha_error error = {0};
    if (!run->teacher || !own) return CLI_DONE;
    if (mha_model_describe(run->teacher)->vocab != mha_model_describe(model)->vocab)
        return CLI_DONE; /* the trainer reports the error */
    snprintf(path, sizeof path, "%s/tokenizer.json", run->t.teacher);
    if (access(path, F_OK) != 0) return CLI_DONE; /* the teacher has no tokenizer */
    if (mha_tokenizer_open(s->ctx, run->t.teacher, &its, &error) != MHA_OK) return cli_refuse(s, &error);
    const int32_t id = first_difference(own, its);
    const int code =
        id < 0 ? CLI_DONE
               : cli_error(s, CLI_REFUSED,
                           "--teacher %s must have the tokens of the model (got token %d \"%s\" instead of \"%s\")",
                           cli_shown(run->t.teacher), id, cli_shown(mha_tokenizer_token(its, id)),
                           cli_shown(mha_tokenizer_token(own, id)));
    mha_tokenizer_free(its);
    return code;
}

int train_run_find_teacher(train_run *run)
{
    cli_session *s = run->s;
    train_settings *t = &run->t;
    if (!t->teacher) return CLI_DONE;
    const int code = cli_model_find(s, t->teacher);
    char *folder = code == CLI_DONE ? realpath(s->model, NULL)
                                    : NULL; /* an absolute path, so the run can be resumed from any folder */
    if (!folder) return code;               /* a missing folder is reported when it is opened */
    free(t->teacher);
    s->model = t->teacher = folder;
    return train_settings_check_texts(s, t);
}

/* Computes the digest of the teacher, which shows whether the teacher has changed when the run is resumed. */
static int take_digest(train_run *run)
{
    mha_file *file;
    mha_error error = {0};
    mha_train_digest digest = {0};
    const char *config = mha_model_config_json(run->teacher);
    const mha_file_options how = {.size = sizeof how, .no_map = run->s->options.no_map};
    if (mha_checkpoint_open(run->s->ctx, run->t.teacher, &how, &file, &error) != MHA_OK)
        return cli_refuse(run->s, &error);
    mha_train_digest_add(&digest, config, strlen(config));
    for (int64_t n = 0; n < mha_file_count(file); n++) {
        const mha_tensor *t = mha_file_tensor(file, n);
        mha_train_digest_add(&digest, t->name, strlen(t->name));
        mha_train_digest_add(&digest, t->data, t->bytes);
        mha_train_digest_add_number(&digest, t->bytes);
    }
    mha_train_digest_text(&digest, run->teacher_digest);
    mha_file_free(file);
    return CLI_DONE;
}

int train_run_open_teacher(train_run *run)
{
    const mha_model_options how = {.size = sizeof how, .no_tokenizer = 1};
    if (!run->t.teacher) return CLI_DONE;
    const int code = cli_model_open_named(run->s, run->t.teacher, &how, &run->teacher);
    return code == CLI_DONE ? take_digest(run) : code;
}

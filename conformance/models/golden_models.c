/* golden_models.c - checks golden folders that require models: tiny checkpoints of each family (golden/models), and one
 * checkpoint that is run on sentences (golden/minilm). The README of the golden data states the tolerances. */
#include "conformance/models/golden_model.h"
#include "input/input.h"
#include "output.h"
#include "session.h"
#include <string.h>

/* ---- tiny models of each family ---- */

static const verify_names prompt_names = {.ids = "prompt/input_ids",
                                          .hidden = "prompt/hidden",
                                          .pooled = "prompt/pooler",
                                          .maps = "prompt/attn",
                                          .logits = "prompt/logits",
                                          .exact_logits = "prompt/logits_f64",
                                          .hidden_limit = 1e-4,
                                          .map_limit = 2e-5};
static const verify_names pad_names = {.ids = "pad/input_ids",
                                       .mask = "pad/attention_mask",
                                       .types = "pad/token_type_ids",
                                       .positions = "pad/position_ids",
                                       .last = "pad/last_hidden_state",
                                       .logits = "pad/logits",
                                       .hidden_limit = 1e-4};

static void check_part(const verify_entry *e, const mha_file *file, const verify_names *names, const char *part,
                       const mha_model *model, verify_log *log)
{
    char name[200];
    verify_case outcome;
    snprintf(name, sizeof name, "%s %s", e->name, part);
    verify_begin(&outcome, e->name, name);
    verify_forward(e, file, names, model, NULL, &outcome);
    if (e->error->status == MHA_OK) verify_end(log, &outcome);
}

/* Runs one check of a model as a case. */
static void check_whole(const verify_entry *e, const mha_file *file, const char *part,
                        void (*check)(const verify_entry *, const mha_file *, const mha_model *, verify_case *),
                        const mha_model *model, verify_log *log)
{
    char name[200];
    verify_case outcome;
    if (e->error->status != MHA_OK) return;
    snprintf(name, sizeof name, "%s %s", e->name, part);
    verify_begin(&outcome, e->name, name);
    check(e, file, model, &outcome);
    if (e->error->status == MHA_OK) verify_end(log, &outcome);
}

/* Returns the entry that has the recorded data of `e`: the entry that "same_golden_as" names, or `e` itself. */
static const json_t *data_of(const verify_entry *e, const json_t *models)
{
    size_t n;
    json_t *other;
    if (!verify_has(e, "same_golden_as")) return e->object;
    const char *name = verify_text(e, "same_golden_as");
    json_array_foreach(models, n, other)
    {
        const char *its = json_string_value(json_object_get(other, "name"));
        if (its && strcmp(its, name) == 0) return other;
    }
    verify_fault(e, "\"same_golden_as\" must name a model (got \"%s\")", cli_shown(name));
    return e->object;
}

static void check_opened(cli_session *session, const char *folder, const verify_entry *e, const json_t *data,
                         const mha_model *model, verify_log *log)
{
    mha_file *file = NULL;
    const verify_entry recorded = {data, e->name, e->error}; /* cases are grouped under this model's name */
    const json_t *tokenizer = json_object_get(data, "tokenizer");
    if (verify_file_open(session->ctx, folder, e, verify_text(&recorded, "file"), &file) != MHA_OK) return;
    if (tokenizer) verify_tokens(e, tokenizer, mha_model_tokenizer(model), log);
    if (verify_has(&recorded, "seq2seq")) {
        check_whole(&recorded, file, "seq2seq", verify_seq2seq, model, log);
        check_whole(&recorded, file, "pad", verify_seq2seq_padded, model, log);
    } else if (verify_has(&recorded, "pixels")) {
        check_whole(&recorded, file, "pixels", verify_vision, model, log);
    } else {
        if (e->error->status == MHA_OK) check_part(e, file, &prompt_names, "prompt", model, log);
        if (e->error->status == MHA_OK && mha_file_find(file, pad_names.ids))
            check_part(e, file, &pad_names, "pad", model, log);
    }
    if (mha_file_find(file, "gen/new_ids")) check_whole(e, file, "text", verify_generate, model, log);
    if (mha_file_find(file, "gen_long/new_ids")) check_whole(e, file, "long", verify_generate_long, model, log);
    if (mha_file_find(file, "train/loss")) check_whole(&recorded, file, "train", verify_train, model, log);
    mha_file_free(file);
}

static mha_status check_model(cli_session *session, const char *folder, const json_t *models, const json_t *object,
                              verify_log *log, mha_error *error)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    verify_entry e = {object, name ? name : "model without a name", error};
    char path[4096];
    mha_model *model = NULL;
    mha_error refusal = {0};
    const json_t *data = data_of(&e, models);
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = !json_object_get(data, "tokenizer")};
    if (verify_path(session->options.model, &e, verify_text(&e, "folder"), path, sizeof path) != MHA_OK)
        return error->status;
    if (mha_model_open(session->ctx, path, &o, &model, &refusal) == MHA_OK) {
        check_opened(session, folder, &e, data, model, log);
    } else if (refusal.status == MHA_ERR_IO) {
        *error = refusal; /* a missing folder is not a failure of this build */
    } else {
        verify_case outcome;
        verify_begin(&outcome, e.name, e.name);
        verify_stopped(&outcome, &refusal);
        verify_end(log, &outcome);
    }
    mha_model_free(model);
    return error->status;
}

int verify_models(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    size_t n;
    json_t *object;
    mha_error error = {0};
    const json_t *models = json_object_get(index, "models");
    if (!session->options.model) return cli_usage(session, "these results require -m FOLDER_OF_MODELS");
    json_array_foreach(models, n, object)
    {
        if (cli_signal()) return 128 + cli_signal();
        if (check_model(session, folder, models, object, log, &error) != MHA_OK) return cli_refuse(session, &error);
    }
    return CLI_DONE;
}

/* ---- sentences and one model ---- */

static const verify_names sentence_names = {.ids = "input_ids",
                                            .mask = "attention_mask",
                                            .types = "token_type_ids",
                                            .last = "last_hidden_state",
                                            .pooled = "pooler_output",
                                            .maps = "attentions",
                                            .embedding = "embedding_f64",
                                            .embedding_alt = "embedding",
                                            .hidden_limit = 2e-5,
                                            .map_limit = 1e-5,
                                            .embedding_limit = 2e-6};

/* Returns the text or pair of texts of a case; NULL for a batch. */
static const json_t *text_of(const verify_entry *e)
{
    const json_t *text = json_object_get(e->object, "text");
    bool pair = json_array_size(text) == 2 && json_is_string(json_array_get(text, 0)) &&
                json_is_string(json_array_get(text, 1));
    if (text && !json_is_string(text) && !pair) verify_fault(e, "\"text\" must be one or two strings");
    return text;
}

static mha_status check_sentence(cli_session *session, const char *folder, const json_t *object, const mha_model *model,
                                 verify_log *log, mha_error *error)
{
    const char *name = json_string_value(json_object_get(object, "name"));
    verify_entry e = {object, name ? name : "case without a name", error};
    mha_file *file = NULL;
    verify_case outcome;
    const json_t *text = text_of(&e);
    if (verify_file_open(session->ctx, folder, &e, verify_text(&e, "file"), &file) != MHA_OK) return error->status;
    verify_begin(&outcome, text ? "sentences" : "batches", e.name);
    verify_forward(&e, file, &sentence_names, model, text, &outcome);
    mha_file_free(file);
    if (error->status == MHA_OK) verify_end(log, &outcome);
    return error->status;
}

int verify_sentences(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    size_t n;
    json_t *object;
    mha_model *model;
    mha_error error = {0};
    int code = cli_model_open(session, NULL, &model);
    json_array_foreach(json_object_get(index, "cases"), n, object)
    {
        if (code != CLI_DONE) break;
        if (cli_signal())
            code = 128 + cli_signal();
        else if (check_sentence(session, folder, object, model, log, &error) != MHA_OK)
            code = cli_refuse(session, &error);
    }
    mha_model_free(model);
    return code;
}

/* golden_heads.c - checks head analysis: loads texts and models, then runs the parts one after the other. */
#include "conformance/heads/golden_heads.h"

#include "input/input.h"
#include "output.h"
#include "session.h"
#include <math.h>
#include <string.h>

/* ---- sentences ---- */

static void read_texts(heads_run *run)
{
    static const char *const sides[] = {"a", "b"};
    const json_t *sentences = json_object_get(run->index, "sentences");
    const verify_entry e = {sentences, "sentences", run->error};
    const size_t half = json_array_size(json_object_get(sentences, "a"));
    if (half == 0 || json_array_size(json_object_get(sentences, "b")) != half)
        verify_fault(&e, "\"a\" and \"b\" must be arrays of the same length");
    run->texts = verify_alloc(&run->memory, 2 * (int64_t)half, sizeof *run->texts, &e);
    for (size_t n = 0; run->texts && n < 2 * half; n++) {
        const json_t *text = json_array_get(json_object_get(sentences, sides[n / half]), n % half);
        run->texts[n] = json_string_value(text);
        if (!run->texts[n] || strlen(run->texts[n]) != json_string_length(text))
            verify_fault(&e, "\"%s\"[%zu] must be a string without NUL", sides[n / half], n % half);
    }
    run->count = 2 * (int64_t)half;
}

static mha_status encode(const heads_run *run, int64_t text, mha_encoding **e)
{
    return mha_tokenizer_encode(mha_model_tokenizer(run->model), run->texts[text], strlen(run->texts[text]), NULL, 0,
                                NULL, e, run->error);
}

/* Encodes all texts, padded to the length of the longest text. */
static void read_tokens(heads_run *run)
{
    mha_encoding *one = NULL;
    const verify_entry e = {NULL, "tokens", run->error};
    for (int64_t b = 0; b < run->count && run->error->status == MHA_OK; b++) {
        if (encode(run, b, &one) == MHA_OK && one->count > run->length) run->length = one->count;
        mha_encoding_free(one);
    }
    run->ids = verify_alloc(&run->memory, run->count * run->length, sizeof *run->ids, &e);
    run->mask = verify_alloc(&run->memory, run->count * run->length, 1, &e);
    for (int64_t b = 0; b < run->count && run->error->status == MHA_OK; b++) {
        if (encode(run, b, &one) != MHA_OK) break;
        memcpy(run->ids + b * run->length, one->ids, (size_t)one->count * sizeof *one->ids);
        memset(run->mask + b * run->length, 1, (size_t)one->count);
        mha_encoding_free(one);
    }
}

/* ---- functions shared by several parts ---- */

/* Computes the L2-normalized mean over a sentence's tokens without padding. */
static void unit_mean(const heads_run *run, int64_t b, const float *hidden, double *out)
{
    const int64_t E = run->info->hidden;
    double square = 0;
    memset(out, 0, (size_t)E * sizeof *out);
    for (int64_t i = b * run->length; i < (b + 1) * run->length; i++)
        for (int64_t d = 0; run->mask[i] && d < E; d++)
            out[d] += (double)hidden[i * E + d];
    for (int64_t d = 0; d < E; d++)
        square += out[d] * out[d];
    for (int64_t d = 0; d < E && square > 0; d++)
        out[d] /= sqrt(square);
}

mha_status heads_embed(const heads_run *run, const mha_model *model, const float *gates, double *out, mha_error *err)
{
    const int64_t E = run->info->hidden;
    verify_memory memory = {0};
    const verify_entry e = {NULL, "last hidden states", err};
    float *hidden = verify_alloc(&memory, run->count * run->length * E, sizeof *hidden, &e);
    const mha_model_input input = {.size = sizeof input,
                                   .batch = run->count,
                                   .length = run->length,
                                   .ids = run->ids,
                                   .mask = run->mask,
                                   .gates = gates};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    if (hidden && mha_model_forward(model, &input, &output, err) == MHA_OK)
        for (int64_t b = 0; b < run->count; b++)
            unit_mean(run, b, hidden, out + b * E);
    verify_release(&memory);
    return err->status;
}

void heads_cosines(const heads_run *run, const double *embedding, double *out)
{
    const int64_t E = run->info->hidden;
    for (int64_t b = 0; b < run->count; b++) {
        out[b] = 0;
        for (int64_t d = 0; d < E; d++)
            out[b] += embedding[b * E + d] * run->embedding[b * E + d];
    }
}

/* ---- run of all parts ---- */

/* Loads the models and the sentences that all parts share. */
static int open_all(heads_run *run, mha_model **model)
{
    int code = cli_model_open(run->session, NULL, model);
    if (code != CLI_DONE) return code;
    run->model = *model;
    run->info = mha_model_describe(*model);
    read_texts(run);
    if (run->error->status == MHA_OK) read_tokens(run);
    const verify_entry e = {NULL, "embeddings", run->error};
    run->embedding = verify_alloc(&run->memory, run->count * run->info->hidden, sizeof *run->embedding, &e);
    if (run->error->status == MHA_OK) heads_embed(run, run->model, NULL, run->embedding, run->error);
    if (run->error->status == MHA_OK)
        mha_head_data_of_texts(run->model, run->texts, run->count, NULL, &run->data, run->error);
    return run->error->status == MHA_OK ? CLI_DONE : cli_refuse(run->session, run->error);
}

static int check_parts(heads_run *run)
{
    for (const heads_known *file = heads_files; file->name && run->error->status == MHA_OK; file++) {
        if (cli_signal()) return 128 + cli_signal();
        file->part(run);
    }
    return run->error->status == MHA_OK ? CLI_DONE : cli_refuse(run->session, run->error);
}

int verify_heads(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    mha_error error = {0};
    mha_model *model = NULL;
    heads_run run = {.session = session, .folder = folder, .index = index, .log = log, .error = &error, .lm = log->lm};
    const json_t *files = json_object_get(index, "files");
    if (!log->lm &&
        (json_object_get(files, "tinylm-golden.safetensors") || json_object_get(files, "tinylm-model.safetensors")))
        return cli_usage(session, "these results require --lm FOLDER with the recorded language model");
    heads_check_names(&run);
    int code = error.status == MHA_OK ? open_all(&run, &model) : cli_refuse(session, &error);
    if (code == CLI_DONE) code = check_parts(&run);
    mha_head_data_free(run.data);
    verify_release(&run.memory);
    mha_model_free(model);
    return code;
}

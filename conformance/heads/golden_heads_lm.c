/* golden_heads_lm.c - compares a small language model: logits, loss, maps, gradients, and losses with ablated heads. */
#include "conformance/heads/golden_heads.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct language {
    heads_file *f;
    const mha_model *model;
    const mha_model_info *info;
    int64_t B, T;
    mha_model_input input;
    double *maps; /* [B, layers, H, T, T] attention maps */
} language;

static bool read_input(language *lm)
{
    int64_t shape[2] = {-1, -1};
    const int64_t *wide = heads_integers(lm->f, "input_ids", 2, shape);
    int32_t *ids = wide ? heads_room(lm->f, shape[0] * shape[1], sizeof *ids) : NULL;
    for (int64_t n = 0; ids && n < shape[0] * shape[1]; n++) {
        ids[n] = (int32_t)wide[n];
        if (wide[n] != ids[n])
            verify_fault(&lm->f->entry, "token id must be a 32-bit integer (got %lld)", (long long)wide[n]);
    }
    lm->B = shape[0], lm->T = shape[1];
    lm->input = (mha_model_input){.size = sizeof lm->input, .batch = lm->B, .length = lm->T, .ids = ids};
    return ids && heads_ok(lm->f);
}

static int on_attention(void *user, int64_t layer, int64_t heads, const float *probs)
{
    language *lm = user;
    const int64_t each = lm->T * lm->T;
    if (heads != lm->info->heads) return 1;
    for (int64_t b = 0; b < lm->B; b++)
        for (int64_t n = 0; n < heads * each; n++)
            lm->maps[(b * lm->info->layers + layer) * heads * each + n] = (double)probs[b * heads * each + n];
    return 0;
}

static void check_forward(language *lm)
{
    const mha_model_info *m = lm->info;
    const int64_t size = lm->B * lm->T * m->vocab, maps = lm->B * m->layers * m->heads * lm->T * lm->T;
    float *logits = heads_room(lm->f, size, sizeof *logits);
    double *got = heads_room(lm->f, size, sizeof *got);
    lm->maps = heads_room(lm->f, maps, sizeof *lm->maps);
    const mha_model_output output = {.size = sizeof output, .logits = logits, .on_attention = on_attention, .user = lm};
    mha_error failed = {0};
    if (!heads_ok(lm->f)) return;
    if (mha_model_forward(lm->model, &lm->input, &output, &failed) == MHA_OK)
        for (int64_t n = 0; n < size; n++)
            got[n] = (double)logits[n];
    const double *want = heads_want(lm->f, "logits", 3, (int64_t[]){lm->B, lm->T, m->vocab});
    heads_case(lm->f, "tinylm", "logits", want, got, size, HEADS_NEAR, &failed);
    want = heads_want(lm->f, "attention", 5, (int64_t[]){lm->B, m->layers, m->heads, lm->T, lm->T});
    heads_case(lm->f, "tinylm", "attention", want, lm->maps, maps, HEADS_NEAR, &failed);
}

static void check_backward(language *lm)
{
    double loss = NAN;
    mha_error failed = {0};
    mha_model_grads *grads = NULL;
    const mha_model_info *m = lm->info;
    float *gates = heads_room(lm->f, m->layers * lm->B * m->heads, sizeof *gates);
    const mha_model_loss_args args = {.size = sizeof args, .dgates = gates};
    if (!gates) return;
    if (mha_model_grads_create(lm->model, NULL, &grads, &failed) == MHA_OK)
        mha_model_grads_loss(grads, &lm->input, &args, &loss, NULL, &failed);
    heads_case(lm->f, "tinylm", "loss", heads_want(lm->f, "loss", 1, (int64_t[]){1}), &loss, 1, HEADS_NEAR, &failed);
    heads_gate_gradients(lm->f, "tinylm", m, lm->B, gates, &failed);
    heads_gradmags(lm->f, "tinylm", m, grads, &failed);
    mha_model_grads_free(grads);
}

/* Returns the loss with all heads of one layer ablated. */
static double loss_without(language *lm, int64_t layer, mha_error *failed)
{
    double loss = NAN;
    mha_model_grads *grads = NULL;
    const int64_t each = lm->B * lm->info->heads;
    float *gates = heads_room(lm->f, lm->info->layers * each, sizeof *gates);
    for (int64_t n = 0; gates && n < lm->info->layers * each; n++)
        gates[n] = n / each == layer ? 0 : 1;
    mha_model_input input = lm->input;
    input.gates = gates;
    const mha_model_grads_options o = {.size = sizeof o, .no_parameters = 1};
    const mha_model_loss_args args = {.size = sizeof args};
    if (gates && mha_model_grads_create(lm->model, &o, &grads, failed) == MHA_OK)
        mha_model_grads_loss(grads, &input, &args, &loss, NULL, failed);
    mha_model_grads_free(grads);
    return loss;
}

static void check_without_layers(language *lm)
{
    static const char prefix[] = "loss_without_layer";
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)lm->f->entry.object, name, value)
    {
        char *end;
        mha_error failed = {0};
        if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
        const long long layer = strtoll(name + sizeof prefix - 1, &end, 10);
        if (strcmp(end, "_heads") != 0 || layer < 0 || layer >= lm->info->layers)
            verify_fault(&lm->f->entry, "\"%s\": unknown layer", cli_shown(name));
        const double *want = heads_want(lm->f, name, 1, (int64_t[]){1});
        const double loss = want ? loss_without(lm, layer, &failed) : NAN;
        heads_case(lm->f, "tinylm", name, want, &loss, 1, HEADS_NEAR, &failed);
    }
}

/* Returns the texts as data in which the first token of each text is special, as in the recording. */
static mha_head_data *data_of(const language *lm, mha_error *failed)
{
    mha_head_data *data = NULL;
    int64_t *starts = heads_room(lm->f, lm->B + 1, sizeof *starts);
    const mha_head_data_options o = {.size = sizeof o, .special = lm->input.ids, .special_count = 1};
    for (int64_t b = 0; starts && b <= lm->B; b++)
        starts[b] = b * lm->T;
    if (starts) mha_head_data_of_ids(lm->model, lm->input.ids, starts, lm->B, &o, &data, failed);
    return data;
}

/* Compares the head statistics. Each recorded text is a first token and a random sequence, repeated once, so it is also
 * a probe text. */
static void check_statistics(language *lm, const mha_head_data *data)
{
    mha_heads *heads = NULL;
    mha_error failed = {0};
    const int64_t period = (lm->T - 1) / 2;
    int32_t *r = heads_room(lm->f, lm->B * period, sizeof *r);
    for (int64_t n = 0; r && n < lm->B * period; n++)
        r[n] = lm->input.ids[n / period * lm->T + 1 + n % period];
    const mha_heads_options o = {
        .size = sizeof o,
        .probe = {.ids = r, .texts = lm->B, .period = period, .first = lm->input.ids, .first_count = 1},
        .thresholds = heads_thresholds(lm->f->run)};
    if (r) mha_heads_measure_data(lm->model, data, &o, &heads, &failed);
    heads_metrics(lm->f, "tinylm", lm->info, heads, &failed);
    heads_patterns(lm->f, "tinylm", lm->info, heads, &failed);
    heads_labels(lm->f, "tinylm", lm->info, heads, &failed);
    mha_heads_free(heads);
}

/* Compares the loss change after ablating each pair of heads. */
static void check_pairs(language *lm, const mha_head_data *data)
{
    const int64_t all = lm->info->layers * lm->info->heads;
    const double *want = heads_want(lm->f, "loo_pair_loss", 2, (int64_t[]){all, all});
    double *got = want ? heads_room(lm->f, all * all, sizeof *got) : NULL;
    const mha_importance_options o = {.size = sizeof o, .loss = MHA_LOSS_LM};
    mha_error failed = {0};
    if (got) mha_importance_pairs(lm->model, data, &o, got, &failed);
    heads_case(lm->f, "tinylm", "loo_pair_loss", want, got, all * all, HEADS_NEAR, &failed);
}

static void check_data(language *lm)
{
    mha_head_data *data = data_of(lm, lm->f->run->error);
    if (heads_ok(lm->f)) heads_scores(lm->f, "tinylm", lm->model, data, MHA_LOSS_LM);
    if (heads_ok(lm->f)) check_statistics(lm, data);
    if (heads_ok(lm->f)) check_pairs(lm, data);
    mha_head_data_free(data);
}

/* ---- weights ---- */

static bool same(const mha_tensor *a, const mha_tensor *b)
{
    return b && a->dtype == b->dtype && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0;
}

static void compare_weights(const heads_run *run, const mha_file *file, verify_case *outcome)
{
    mha_file *given;
    if (mha_checkpoint_open(run->session->ctx, run->lm, NULL, &given, run->error) != MHA_OK) return;
    double differ = mha_file_count(file) != mha_file_count(given);
    const double none = 0;
    for (int64_t n = 0; n < mha_file_count(file); n++)
        differ += !same(mha_file_tensor(file, n), mha_file_find(given, mha_file_tensor(file, n)->name));
    verify_compare_reals(outcome, "tensors that differ", &differ, &none, 1, 0);
    mha_file_free(given);
}

/* Compares the weights of --lm with this file, which contains the weights of the recorded model. Reduced folders may
 * omit the file. */
void heads_weights(heads_run *run)
{
    static const char name[] = "tinylm-model.safetensors";
    heads_file f = {.run = run};
    verify_case outcome;
    char path[4096];
    const verify_entry e = {json_object_get(json_object_get(run->index, "files"), name), name, run->error};
    if (!e.object || verify_path(run->folder, &e, name, path, sizeof path) != MHA_OK) return;
    verify_begin(&outcome, "weights", name);
    if (access(path, F_OK) != 0) {
        outcome.refused = true;
        snprintf(outcome.reason, sizeof outcome.reason, "not in the folder; using the weights of --lm");
    } else if (heads_open(&f, run, name)) {
        compare_weights(run, f.file, &outcome);
    }
    if (heads_ok(&f)) verify_end(run->log, &outcome);
    heads_close(&f);
}

void heads_language(heads_run *run)
{
    heads_file f;
    mha_model *model = NULL;
    const mha_model_options o = {.size = sizeof o, .no_tokenizer = 1, .no_map = run->session->options.no_map};
    if (heads_open(&f, run, "tinylm-golden.safetensors") &&
        mha_model_open(run->session->ctx, run->lm, &o, &model, run->error) == MHA_OK) {
        language lm = {.f = &f, .model = model, .info = mha_model_describe(model)};
        if (read_input(&lm)) {
            check_forward(&lm);
            check_backward(&lm);
            check_without_layers(&lm);
            check_data(&lm);
        }
    }
    mha_model_free(model);
    heads_close(&f);
}

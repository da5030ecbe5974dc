/* golden_heads_gates.c - compares embeddings, gradients of the contrastive loss with respect to gates and weights, and
 * mean contexts. */
#include "conformance/heads/golden_heads.h"
#include "mha/model_grads.h"
#include <math.h>
#include <string.h>

/* ---- loss of pairs ---- */

static const double SCALE = 5; /* scale of the similarities in the recorded loss */

/* Writes dL/dE [count, width] for unit-norm embeddings E, whose rows i and count / 2 + i are paraphrases. With
 * S = SCALE Ea Eb^T, where Ea and Eb are the two halves of E, L = (CE(S, diagonal) + CE(S^T, diagonal)) / 2. */
static void pairs_gradient(int64_t count, int64_t width, const double *E, double *dE)
{
    const int64_t half = count / 2;
    memset(dE, 0, (size_t)(count * width) * sizeof *dE);
    for (int64_t i = 0; i < count; i++) { /* row i of S or, if i >= half, column i - half */
        const int64_t other = i < half ? half : 0, target = other + i % half;
        double total = 0;
        for (int pass = 0; pass < 2; pass++)
            for (int64_t j = other; j < other + half; j++) {
                double s = 0;
                for (int64_t d = 0; d < width; d++)
                    s += E[i * width + d] * E[j * width + d];
                const double p = exp(SCALE * (s - 1)); /* at most 1, because the vectors are unit-norm */
                if (pass == 0) total += p;
                const double ds = SCALE * (p / total - (j == target)) / (double)(2 * half);
                for (int64_t d = 0; pass == 1 && d < width; d++) {
                    dE[i * width + d] += ds * E[j * width + d];
                    dE[j * width + d] += ds * E[i * width + d];
                }
            }
    }
}

/* Converts the gradient of a unit-norm vector e = m / |m| to the gradient of every token's hidden state; m is the mean
 * over tokens without padding. */
static void back_to_tokens(const heads_run *run, int64_t b, const float *hidden, const double *e, const double *de,
                           float *out)
{
    const int64_t E = run->info->hidden, T = run->length;
    int64_t tokens = 0;
    double along = 0, norm = 0;
    for (int64_t d = 0; d < E; d++) {
        double sum = 0;
        tokens = 0;
        for (int64_t i = 0; i < T; i++)
            if (run->mask[b * T + i]) sum += (double)hidden[(b * T + i) * E + d], tokens++;
        norm += sum * sum;
        along += e[d] * de[d];
    }
    /* dm = (de - e <e, de>) / |m| with |m| = norm / tokens, so `tokens` cancels */
    for (int64_t i = 0; i < T; i++)
        for (int64_t d = 0; d < E; d++)
            out[(b * T + i) * E + d] = run->mask[b * T + i] ? (float)((de[d] - e[d] * along) / sqrt(norm)) : 0;
}

/* ---- gradients of the loss ---- */

typedef struct backward {
    mha_model_grads *grads;
    float *gates; /* [layers, count, H] gradients dL/dgate */
    mha_error failed;
} backward;

static void run_back(heads_file *f, backward *back, const double *e)
{
    const heads_run *run = f->run;
    const int64_t E = run->info->hidden, rows = run->count * run->length;
    float *hidden = heads_room(f, rows * E, sizeof *hidden), *dhidden = heads_room(f, rows * E, sizeof *dhidden);
    double *de = heads_room(f, run->count * E, sizeof *de);
    back->gates = heads_room(f, run->info->layers * run->count * run->info->heads, sizeof *back->gates);
    if (!heads_ok(f)) return;
    const mha_model_input input = {
        .size = sizeof input, .batch = run->count, .length = run->length, .ids = run->ids, .mask = run->mask};
    const mha_model_output output = {.size = sizeof output, .last_hidden = hidden};
    if (mha_model_grads_create(run->model, NULL, &back->grads, &back->failed) != MHA_OK ||
        mha_model_grads_forward(back->grads, &input, &output, &back->failed) != MHA_OK)
        return;
    pairs_gradient(run->count, E, e, de);
    for (int64_t b = 0; b < run->count; b++)
        back_to_tokens(run, b, hidden, e + b * E, de + b * E, dhidden);
    const mha_model_gradient gradient = {.size = sizeof gradient, .last_hidden = dhidden, .gates = back->gates};
    mha_model_grads_backward(back->grads, &gradient, &back->failed);
}

void heads_gate_gradients(heads_file *f, const char *group, const mha_model_info *m, int64_t count, const float *gates,
                          const mha_error *failed)
{
    const int64_t L = m->layers, H = m->heads;
    const double *want = heads_want(f, "gate_grad", 3, (int64_t[]){count, L, H});
    double *got = want ? heads_room(f, count * L * H, sizeof *got) : NULL;
    for (int64_t n = 0; got && n < count * L * H; n++)
        got[n] = (double)gates[(n / H % L * count + n / (L * H)) * H + n % H];
    heads_case(f, group, "gate_grad", want, got, count * L * H, HEADS_NEAR, failed);
}

void heads_gradmags(heads_file *f, const char *group, const mha_model_info *m, const mha_model_grads *grads,
                    const mha_error *failed)
{
    int64_t list_count;
    const int64_t each = m->layers * m->heads;
    const double *want = heads_want(f, "gradmag_qkv", 3, (int64_t[]){3, m->layers, m->heads});
    double *got = want ? heads_room(f, 3 * each, sizeof *got) : NULL;
    const mha_named_tensor *list = grads ? mha_model_grads_list(grads, &list_count) : NULL;
    for (int64_t n = 0; list && got && n < 3 * each; n++)
        got[n] = heads_gradmag(list, list_count, m, n % each / m->heads, (int)(n / each), n % m->heads);
    heads_case(f, group, "gradmag_qkv", want, got, 3 * each, HEADS_NEAR, failed);
}

/* ---- rows of a head in the gradients of a checkpoint ---- */

double heads_gradmag(const mha_named_tensor *list, int64_t count, const mha_model_info *info, int64_t layer, int role,
                     int64_t head)
{
    static const char *const names[][3] = {
        {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"},
        {"self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"}};
    char end[80];
    const int64_t kv = role == 0 ? head : head * info->kv_heads / info->heads;
    for (int64_t n = 0; n < 2 * count; n++) {
        const mha_named_tensor *t = &list[n / 2];
        const int length = snprintf(end, sizeof end, ".%lld.%s", (long long)layer, names[n % 2][role]);
        const size_t name = strlen(t->name);
        if (name < (size_t)length || strcmp(t->name + name - length, end) != 0) continue;
        const int64_t each = info->head_dim * t->shape[1];
        double sum = 0;
        for (int64_t i = 0; i < each; i++)
            sum += fabs((double)((const float *)t->data)[kv * each + i]);
        return sum / (double)each;
    }
    return NAN;
}

/* ---- checks of importance ---- */

static void check_ids(heads_file *f)
{
    const heads_run *run = f->run;
    const int64_t size = run->count * run->length;
    const double *ids = heads_want(f, "input_ids", 2, (int64_t[]){run->count, run->length});
    const double *mask = heads_want(f, "attention_mask", 2, (int64_t[]){run->count, run->length});
    double *got = heads_room(f, 2 * size, sizeof *got);
    for (int64_t n = 0; got && n < size; n++)
        got[n] = run->mask[n] ? run->ids[n] : 0, got[size + n] = run->mask[n];
    heads_case(f, "tokens", "input_ids", ids, got, size, HEADS_EXACT, NULL);
    heads_case(f, "tokens", "attention_mask", mask, got + size, size, HEADS_EXACT, NULL);
}

static void check_losses(heads_file *f)
{
    const mha_importance_options o = {.size = sizeof o, .by = MHA_IMPORTANCE_GATE, .loss = MHA_LOSS_PAIRS};
    mha_importance_options saturated = o;
    saturated.loss_scale = 20;
    heads_loss(f, "importance", "loss", f->run->model, f->run->data, &o);
    heads_loss(f, "importance", "loss_scale20", f->run->model, f->run->data, &saturated);
}

/* ---- mean contexts ---- */

typedef struct contexts {
    const heads_run *run;
    double *sum; /* [layers, H, D] sums of contexts over tokens */
} contexts;

static int on_activations(void *user, const mha_model_activations *a)
{
    const contexts *c = user;
    const int64_t width = a->heads * a->head_dim;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t n = 0; c->run->mask[i] && n < width; n++)
            c->sum[a->layer * width + n] += (double)a->context[i * width + n];
    return 0;
}

/* Computes each head's mean context over all tokens except padding. This mean replaces the context of a removed
 * head. */
static void check_mean_contexts(heads_file *f)
{
    const heads_run *run = f->run;
    const mha_model_info *m = run->info;
    const int64_t size = m->layers * m->heads * m->head_dim;
    const double *want = heads_want(f, "mean_ctx", 3, (int64_t[]){m->layers, m->heads, m->head_dim});
    contexts c = {run, want ? heads_room(f, size, sizeof *c.sum) : NULL};
    const mha_model_input input = {
        .size = sizeof input, .batch = run->count, .length = run->length, .ids = run->ids, .mask = run->mask};
    const mha_model_output output = {.size = sizeof output, .on_activations = on_activations, .user = &c};
    mha_error failed = {0};
    int64_t tokens = 0;
    if (!c.sum) return;
    mha_model_forward(run->model, &input, &output, &failed);
    for (int64_t i = 0; i < run->count * run->length; i++)
        tokens += run->mask[i];
    for (int64_t n = 0; n < size; n++)
        c.sum[n] /= (double)tokens;
    heads_case(f, "importance", "mean_ctx", want, c.sum, size, HEADS_NEAR, &failed);
}

void heads_importance(heads_run *run)
{
    heads_file f;
    backward back = {0};
    if (heads_open(&f, run, "minilm-importance.safetensors")) {
        const int64_t size = run->count * run->info->hidden;
        check_ids(&f);
        const double *want = heads_want(&f, "embedding", 2, (int64_t[]){run->count, run->info->hidden});
        heads_case(&f, "importance", "embedding", want, run->embedding, size, HEADS_NEAR, NULL);
        if (heads_ok(&f)) run_back(&f, &back, run->embedding);
        heads_gate_gradients(&f, "importance", run->info, run->count, back.gates, &back.failed);
        heads_gradmags(&f, "importance", run->info, back.grads, &back.failed);
        check_losses(&f);
        check_mean_contexts(&f);
        heads_scores(&f, "importance", run->model, run->data, MHA_LOSS_PAIRS);
    }
    mha_model_grads_free(back.grads);
    heads_close(&f);
}

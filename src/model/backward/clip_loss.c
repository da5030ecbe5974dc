/* clip_loss.c - similarity of images and texts in CLIP, and its contrastive loss. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "layer/loss/contrastive_loss.h"
#include "mha/vision.h"
#include "model/backward/model_grads.h"
#include <math.h>

const mha_model *mha_model_vision(const mha_model *model)
{
    return model && model->config.channels ? model : model ? model->vision : NULL;
}

static mha_status check_model(const mha_model *m, const char *where, mha_error *err)
{
    if (!m->packed)
        return mha__fail(err, MHA_ERR_ARG, "%s: model must have weights (got a model opened with no_weights)", where);
    if (m->vision && m->projection && m->vision->projection && m->logit_scale.weight) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "%s: model must be a CLIP model with both towers and their projections (got %s)", where,
                     m->info.family);
}

mha_status mha_clip_logits(const mha_model *model, const float *images, int64_t image_count, const float *texts,
                           int64_t text_count, float *logits, mha_error *err)
{
    if (!model || !images || !texts || !logits)
        return mha__fail(err, MHA_ERR_ARG, "mha_clip_logits: model, images, texts and logits must not be NULL");
    if (image_count < 0 || text_count < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_clip_logits: %s must be at least 0 (got %lld)",
                         image_count < 0 ? "image_count" : "text_count",
                         (long long)(image_count < 0 ? image_count : text_count));
    MHA__TRY(check_model(model, "mha_clip_logits", err));
    const int64_t width = model->config.projection;
    const double scale = exp((double)*model->logit_scale.weight);
    for (int64_t i = 0; i < image_count; i++)
        for (int64_t t = 0; t < text_count; t++) {
            double sum = 0;
            for (int64_t e = 0; e < width; e++)
                sum += (double)images[i * width + e] * (double)texts[t * width + e];
            logits[i * text_count + t] = (float)(scale * sum);
        }
    return MHA_OK;
}

/* ---- loss ---- */

/* Vectors and their gradients: rows 0 .. B-1 are those of the texts, rows B .. 2B-1 those of the images. */
typedef struct pairs {
    int64_t count, width; /* B, P */
    double *e, *de;       /* [2 B, P]; e is L2-normalized */
    float *narrow;        /* [2 B, P] e, later de, as f32 */
} pairs;

static void lay_out(mha__arena *arena, pairs *p)
{
    const size_t rows = 2 * (size_t)p->count, width = (size_t)p->width;
    p->e = mha__take(arena, rows, width * sizeof *p->e);
    p->de = mha__take(arena, rows, width * sizeof *p->de);
    p->narrow = mha__take(arena, rows, width * sizeof *p->narrow);
}

static mha_status run_towers(mha_model_grads *g, const mha_clip_loss_args *args, const pairs *p, mha_error *err)
{
    mha_model_output output = {.size = sizeof output, .embedding = p->narrow};
    MHA__TRY(mha_model_grads_forward(g, args->texts, &output, err));
    output.embedding = p->narrow + p->count * p->width;
    MHA__TRY(mha_model_grads_forward(g->vision, args->images, &output, err));
    for (int64_t i = 0; i < 2 * p->count * p->width; i++)
        p->e[i] = (double)p->narrow[i];
    return MHA_OK;
}

static mha_status go_back(mha_model_grads *g, const mha_clip_loss_args *args, const pairs *p, mha_error *err)
{
    const int64_t half = p->count * p->width;
    float *scale = mha__grads_slot(g, MHA__LOGIT_SCALE, -1).dweight;
    double sum = 0; /* de of the texts times e is the sum of dS S, where S depends on the exponent linearly */
    for (int64_t i = 0; i < half; i++)
        sum += p->e[i] * p->de[i];
    if (scale) *scale += (float)sum;
    for (int64_t i = 0; i < 2 * half; i++)
        p->narrow[i] = (float)p->de[i];
    mha_model_gradient wanted = {.size = sizeof wanted, .embedding = p->narrow, .gates = args->text_gates};
    MHA__TRY(mha_model_grads_backward(g, &wanted, err));
    wanted.embedding = p->narrow + half;
    wanted.gates = args->image_gates;
    return mha_model_grads_backward(g->vision, &wanted, err);
}

static mha_status run(mha_model_grads *g, const mha_clip_loss_args *args, const pairs *p, double *loss, mha_error *err)
{
    const double scale = exp((double)*g->model->logit_scale.weight);
    double *de = args->loss_only ? NULL : p->de;
    MHA__TRY(run_towers(g, args, p, err));
    MHA__TRY(mha__pairs_loss(g->ctx, p->e, p->count, p->width, scale, loss, de, err));
    return de ? go_back(g, args, p, err) : MHA_OK;
}

/* Reads the arguments, and sets *pairs to the number of pairs. */
static mha_status read_args(const mha_model_grads *g, const mha_clip_loss_args *given, mha_clip_loss_args *args,
                            int64_t *pairs, mha_error *err)
{
    mha_model_input texts, images;
    if (!g) return mha__fail(err, MHA_ERR_ARG, "mha_clip_loss: grads must not be NULL");
    MHA__TRY(check_model(g->model, "mha_clip_loss", err));
    MHA__TRY(mha__options_read(args, sizeof *args, given, "mha_clip_loss_args", err));
    if (!args->texts || !args->images)
        return mha__fail(err, MHA_ERR_ARG, "mha_clip_loss_args: %s must not be NULL", args->texts ? "images" : "texts");
    MHA__TRY(mha__options_need(&texts, sizeof texts, args->texts, "mha_model_input", err));
    MHA__TRY(mha__options_need(&images, sizeof images, args->images, "mha_model_input", err));
    *pairs = texts.batch;
    if (texts.batch == images.batch && texts.batch > 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG,
                     "mha_clip_loss_args: texts and images must have the same batch of at least 1 (got %lld and %lld)",
                     (long long)texts.batch, (long long)images.batch);
}

mha_status mha_clip_loss(mha_model_grads *g, const mha_clip_loss_args *given, double *loss, mha_error *err)
{
    mha_clip_loss_args args;
    mha__arena arena = {0};
    double sum = 0;
    int64_t count = 0;
    MHA__TRY(read_args(g, given, &args, &count, err));
    pairs p = {.count = count, .width = g->model->config.projection};
    lay_out(&arena, &p);
    arena.base = arena.overflow ? NULL : mha__alloc(g->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "the embeddings of pairs");
    arena.used = 0;
    lay_out(&arena, &p);
    const mha_status status = run(g, &args, &p, &sum, err);
    if (loss) *loss = sum;
    mha__free(g->ctx, arena.base);
    return status;
}

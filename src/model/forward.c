/* forward.c - a batch of token ids through the whole model.
 *
 * One arena holds everything that the pass needs; blocks change x in place. Padding at the end of a sequence becomes a
 * length; any other mask becomes the operator's keep mask, which says the same with the same bits.
 */
#include "base/ctx.h"
#include "base/error.h"
#include "base/options.h"
#include "layer/activation.h"
#include "layer/arena.h"
#include "layer/attn_layer.h"
#include "model/kv.h"
#include <math.h>
#include <string.h>

/* One forward call: checked structs and the arrays of the arena. */
typedef struct pass {
    mha_model_input in;
    mha_model_output out;
    mha_layer_input layer; /* what every block is given */
    bool right_padded;     /* each row of the mask is ones, then zeros */
    float *x;              /* [B L, E]; the caller's last_hidden, or from the arena */
    int32_t *positions;    /* [B L] */
    int64_t *turns;        /* [L] those of one sequence, for rotation */
    int32_t *zeros;        /* [B L] token types when there are none */
    int64_t *lengths;      /* [B] */
    float *first;          /* [B, E] one row of each sequence: the pooler's first, or the last for logits */
    float *probs;          /* [B, H, L, L] */
    float *cos, *sin;      /* [B L, rotary_dim / 2] */
    float *final;          /* [rows, E] what the head of logits reads, where x is not that */
    void *block;           /* the blocks' workspace */
    mha_attn_plan *plan;   /* of the layer `planned` and all that are alike */
    const mha_attn_layer *planned;
} pass;

/* ---- input ---- */

static int64_t leading_ones(const uint8_t *mask, int64_t n)
{
    int64_t length = 0;
    while (length < n && mask[length])
        length++;
    return length;
}

/* No one follows a zero in any row. */
static bool is_right_padded(const mha_model_input *in)
{
    for (int64_t b = 0; in->mask && b < in->batch; b++) {
        const uint8_t *row = in->mask + b * in->length;
        for (int64_t i = leading_ones(row, in->length); i < in->length; i++)
            if (row[i]) return false;
    }
    return true;
}

/* Tokens that the cache holds of sequence b of the call. */
static int64_t past_of(const pass *p, int64_t b)
{
    if (!p->in.cache) return 0;
    return mha_model_cache_length(p->in.cache, p->in.batch == 1 ? p->in.sequence : b);
}

/* Every sequence must have room for its new tokens, so that no layer is the first to notice. */
static mha_status check_cache(const mha_model *m, const pass *p, int64_t most, mha_error *err)
{
    const mha_model_cache *c = p->in.cache;
    if (!c) return MHA_OK;
    if (c->model != m) return mha__fail(err, MHA_ERR_ARG, "mha_model_input: the cache is that of another model");
    if (p->in.batch == 1 && (p->in.sequence < 0 || p->in.sequence >= c->batch))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: sequence is %lld, the cache has %lld",
                         (long long)p->in.sequence, (long long)c->batch);
    if (c->batch != p->in.batch && p->in.batch != 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch is %lld, but the cache has %lld sequences",
                         (long long)p->in.batch, (long long)c->batch);
    if (!p->right_padded || p->out.on_attention)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: %s with a cache",
                         p->right_padded ? "on_attention" : "a mask with holes");
    for (int64_t b = 0; b < p->in.batch; b++) {
        const int64_t L = p->in.length, past = past_of(p, b);
        const int64_t fresh = p->in.mask ? leading_ones(p->in.mask + b * L, L) : L;
        if (past + fresh > c->tokens || past + fresh > most)
            return mha__fail(
                err, MHA_ERR_ARG, "sequence %lld: %lld tokens behind the %lld in the cache, which has room for %lld",
                (long long)b, (long long)fresh, (long long)past, (long long)(c->tokens < most ? c->tokens : most));
    }
    return MHA_OK;
}

static mha_status check_input(const mha_model *m, pass *p, mha_error *err)
{
    size_t bytes = 0;
    if (!m->packed) return mha__fail(err, MHA_ERR_ARG, "the model was opened without weights (no_weights)");
    if (p->in.batch < 1)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch is %lld, must be > 0", (long long)p->in.batch);
    const int64_t most = m->positions.weight ? m->config.max_positions : INT32_MAX;
    if (p->in.length < 1 || p->in.length > most)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: length is %lld, the model takes 1..%lld",
                         (long long)p->in.length, (long long)most);
    if (!p->in.ids) return mha__fail(err, MHA_ERR_ARG, "mha_model_input: ids is NULL");
    if (!mha__bytes((int64_t[]){p->in.batch, p->in.length, m->config.hidden}, 3, 2 * sizeof(float), &bytes))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_input: batch is %lld, too many for memory",
                         (long long)p->in.batch);
    p->right_padded = is_right_padded(&p->in);
    MHA__TRY(check_cache(m, p, most, err));
    if (p->out.pooled && !m->pooler)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "the checkpoint has no pooler (pooler.dense.weight)");
    if ((p->out.logits || p->out.last_logits) && !m->lm_head)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "the checkpoint has no logits (cls.predictions.transform)");
    return MHA_OK;
}

/* ---- memory ---- */

static void lay_out(mha__arena *arena, const mha_model *m, pass *p, size_t block_bytes)
{
    const size_t batch = (size_t)p->in.batch, rows = batch * (size_t)p->in.length, width = (size_t)m->config.hidden;
    p->x = p->out.last_hidden ? p->out.last_hidden : mha__take(arena, rows, width * sizeof(float));
    p->positions = mha__take(arena, rows, sizeof *p->positions);
    p->zeros = p->in.type_ids ? NULL : mha__take(arena, rows, sizeof *p->zeros);
    if (m->config.rope.head_dim) {
        const size_t pairs = (size_t)m->config.rope.rotary_dim / 2;
        p->turns = mha__take(arena, rows / batch, sizeof *p->turns);
        p->cos = mha__take(arena, rows, pairs * sizeof *p->cos);
        p->sin = mha__take(arena, rows, pairs * sizeof *p->sin);
    }
    if (m->lm_dense && (p->out.logits || p->out.last_logits)) p->final = mha__take(arena, rows, width * sizeof(float));
    p->lengths = mha__take(arena, batch, sizeof *p->lengths);
    if (p->out.pooled || p->out.last_logits) p->first = mha__take(arena, batch, width * sizeof(float));
    if (p->out.on_attention) {
        size_t maps = 0;
        if (!mha__bytes((int64_t[]){m->config.heads, p->in.length, p->in.length}, 3, sizeof(float), &maps))
            arena->overflow = true;
        p->probs = mha__take(arena, batch, maps);
    }
    p->block = mha__take(arena, 1, block_bytes);
}

/* Makes p->plan the operator's plan for this layer: the last one as long as layers are alike, so one for most
 * models. */
static mha_status plan_layer(const mha_model *m, pass *p, int64_t layer, mha_error *err)
{
    const mha_attn_layer *attn = mha__block_attn(m->block[layer]);
    if (p->plan && mha__attn_layer_alike(p->planned, attn)) return MHA_OK;
    mha_attn_plan_free(p->plan);
    p->plan = NULL;
    p->planned = attn;
    return mha__attn_layer_plan(attn, &p->layer, &p->plan, err);
}

static mha_status block_bytes(const mha_model *m, pass *p, size_t *bytes, mha_error *err)
{
    *bytes = 0;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        size_t one = 0;
        if (p->in.cache) p->layer.cache = p->in.cache->layer[layer];
        MHA__TRY(plan_layer(m, p, layer, err));
        MHA__TRY(mha__block_bytes(m->block[layer], p->plan, &p->layer, &one, err));
        if (one > *bytes) *bytes = one;
    }
    return MHA_OK;
}

/* What the blocks are told about the batch. Before there is memory, pointers only say which inputs there will be. */
static void describe(pass *p, const int64_t *lengths, float *probs)
{
    p->layer = (mha_layer_input){.size = sizeof p->layer,
                                 .cache = p->in.cache ? p->in.cache->layer[0] : NULL,
                                 .sequence = p->in.sequence,
                                 .batch = p->in.batch,
                                 .length = p->in.length,
                                 .cos = p->cos,
                                 .sin = p->sin,
                                 .probs = probs};
    if (p->in.mask && p->right_padded) p->layer.lengths = lengths;
    if (p->in.mask && !p->right_padded) p->layer.keep = (mha_cview){p->in.mask, {p->in.length, 0, 0, 1}};
}

/* ---- the pass ---- */

static void fill_arrays(pass *p)
{
    const int64_t L = p->in.length;
    if (p->zeros) memset(p->zeros, 0, (size_t)(p->in.batch * L) * sizeof *p->zeros);
    for (int64_t b = 0; b < p->in.batch; b++) {
        const int64_t past = past_of(p, b);
        p->lengths[b] = p->in.mask ? leading_ones(p->in.mask + b * L, L) : L;
        for (int64_t i = 0; i < L; i++) {
            const int64_t next = p->in.cache && i >= p->lengths[b] ? 0 : past + i; /* padding may lie beyond the last */
            p->positions[b * L + i] = p->in.positions ? p->in.positions[b * L + i] : (int32_t)next;
        }
    }
}

/* Each sequence for itself: what stretches with the length stretches with its own. */
static mha_status fill_angles(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t L = p->in.length, pairs = m->config.rope.rotary_dim / 2;
    for (int64_t b = 0; p->cos && b < p->in.batch; b++) {
        const int64_t at = b * L * pairs, rows = p->right_padded ? p->lengths[b] : L;
        for (int64_t i = 0; i < rows; i++)
            p->turns[i] = p->positions[b * L + i];
        MHA__TRY(mha_rope_angles(&m->config.rope, p->turns, rows, p->cos + at, p->sin + at, err));
        memset(p->cos + at + rows * pairs, 0, (size_t)((L - rows) * pairs) * sizeof *p->cos);
        memset(p->sin + at + rows * pairs, 0, (size_t)((L - rows) * pairs) * sizeof *p->sin);
    }
    return MHA_OK;
}

/* Words, types and positions are added in the order of transformers. */
static mha_status embed(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t rows = p->in.batch * p->in.length, width = m->config.hidden;
    const int32_t *types = p->in.type_ids ? p->in.type_ids : p->zeros;
    const float scale = sqrtf((float)width);
    MHA__TRY(mha_embedding_forward("token id", m->words.weight, m->config.vocab, width, p->in.ids, rows, 0, p->x, err));
    if (m->types.weight)
        MHA__TRY(mha_embedding_forward("token type", m->types.weight, m->config.type_vocab, width, types, rows, 1, p->x,
                                       err));
    if (m->positions.weight)
        MHA__TRY(mha_embedding_forward("position", m->positions.weight, m->config.max_positions, width, p->positions,
                                       rows, 1, p->x, err));
    for (int64_t i = 0; m->config.family->embed_scaled && i < rows * width; i++)
        p->x[i] *= scale;
    if (!m->embed_norm.weight) return MHA_OK;
    return mha_norm_forward(m->ctx, &m->embed_norm, rows, width, p->x, NULL, p->x, err);
}

static mha_status stopped(mha_error *err, const char *callback, int64_t entry)
{
    return mha__fail(err, MHA_ERR_CANCELLED, "stopped by %s at %lld", callback, (long long)entry);
}

static mha_status pool(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t width = m->config.hidden;
    for (int64_t b = 0; b < p->in.batch; b++)
        memcpy(p->first + b * width, p->x + b * p->in.length * width, (size_t)width * sizeof *p->x);
    return mha_linear_forward(m->pooler, p->first, p->in.batch, p->out.pooled, err);
}

/* The last real token of a sequence; 0 if there is none. */
static int64_t last_token(const pass *p, int64_t b)
{
    int64_t last = p->in.length - 1;
    while (p->in.mask && last > 0 && !p->in.mask[b * p->in.length + last])
        last--;
    return last;
}

static mha_status head(const mha_model *m, int64_t rows, const float *x, float *logits, mha_error *err)
{
    MHA__TRY(mha_linear_forward(m->lm_head, x, rows, logits, err));
    if (m->config.logit_cap != 0) mha__softcap(m->ctx, m->config.logit_cap, rows * m->config.vocab, logits);
    return MHA_OK;
}

static mha_status logits(const mha_model *m, const pass *p, mha_error *err)
{
    const int64_t rows = p->in.batch * p->in.length, width = m->config.hidden;
    const float *x = p->x;
    if (m->lm_dense) {
        MHA__TRY(mha_linear_forward(m->lm_dense, x, rows, p->final, err));
        MHA__TRY(mha_norm_forward(m->ctx, &m->lm_norm, rows, width, p->final, NULL, p->final, err));
        x = p->final;
    }
    if (p->out.logits) MHA__TRY(head(m, rows, x, p->out.logits, err));
    for (int64_t b = 0; p->out.last_logits && b < p->in.batch; b++)
        memcpy(p->first + b * width, x + (b * p->in.length + last_token(p, b)) * width, (size_t)width * sizeof *x);
    return p->out.last_logits ? head(m, p->in.batch, p->first, p->out.last_logits, err) : MHA_OK;
}

static mha_status run(const mha_model *m, pass *p, mha_error *err)
{
    const mha_model_output *out = &p->out;
    const int64_t rows = p->in.batch * p->in.length, layers = m->config.layers;
    MHA__TRY(fill_angles(m, p, err));
    MHA__TRY(embed(m, p, err));
    if (out->on_hidden && out->on_hidden(out->user, 0, p->x)) return stopped(err, "on_hidden", 0);
    for (int64_t layer = 0; layer < layers; layer++) {
        if (p->in.cache) p->layer.cache = p->in.cache->layer[layer];
        MHA__TRY(plan_layer(m, p, layer, err));
        MHA__TRY(mha__block_run(m->block[layer], p->plan, &p->layer, p->x, err));
        if (out->on_attention && out->on_attention(out->user, layer, m->info.heads_per_layer[layer], p->probs))
            return stopped(err, "on_attention", layer);
        if (layer == layers - 1 && m->final_norm.weight)
            MHA__TRY(mha_norm_forward(m->ctx, &m->final_norm, rows, m->config.hidden, p->x, NULL, p->x, err));
        if (out->on_hidden && out->on_hidden(out->user, layer + 1, p->x)) return stopped(err, "on_hidden", layer + 1);
    }
    if (out->pooled) MHA__TRY(pool(m, p, err));
    return out->logits || out->last_logits ? logits(m, p, err) : MHA_OK;
}

/* Lays out the arena of the pass, in one allocation. */
static mha_status allocate(const mha_model *m, pass *p, void **memory, mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(block_bytes(m, p, &bytes, err));
    mha__arena arena = {0};
    lay_out(&arena, m, p, bytes);
    arena.base = *memory = arena.overflow ? NULL : mha__alloc(m->ctx, arena.used);
    if (!arena.base) return mha__no_memory(err, arena.overflow ? SIZE_MAX : arena.used, "a forward pass");
    arena.used = 0;
    lay_out(&arena, m, p, bytes);
    fill_arrays(p);
    describe(p, p->lengths, p->probs);
    p->layer.workspace = p->block;
    p->layer.workspace_bytes = bytes;
    return MHA_OK;
}

mha_status mha_model_forward(const mha_model *model, const mha_model_input *input, const mha_model_output *output,
                             mha_error *err)
{
    const int64_t some_lengths = 0; /* these stand for arrays that do not exist yet; they are not read */
    float some_probs = 0;
    pass p = {0};
    void *memory = NULL;
    if (!model) return mha__fail(err, MHA_ERR_ARG, "mha_model_forward: model is NULL");
    MHA__TRY(mha__options_read(&p.in, sizeof p.in, input, "mha_model_input", err));
    MHA__TRY(mha__options_read(&p.out, sizeof p.out, output, "mha_model_output", err));
    MHA__TRY(check_input(model, &p, err));
    describe(&p, &some_lengths, p.out.on_attention ? &some_probs : NULL);
    mha_status status = allocate(model, &p, &memory, err);
    if (status == MHA_OK) status = run(model, &p, err);
    if (status != MHA_OK && p.in.cache) mha_model_cache_clear(p.in.cache, MHA_CACHE_ALL, NULL);
    mha_attn_plan_free(p.plan);
    mha__free(model->ctx, memory);
    return status;
}

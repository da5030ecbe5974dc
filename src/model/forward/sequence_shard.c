/* sequence_shard.c - checks a shard, and reduces a batch to the tokens of the shard. The ids of the whole sequence are
 * checked, so that all processes reject an invalid sequence before any process waits for another process. */
#include "model/forward/sequence_shard.h"

#include "base/error.h"
#include "base/struct_size.h"

static mha_status check_ranges(const mha_model_shard *s, int64_t length, mha_error *err)
{
    int64_t end = 0;
    for (int64_t n = 0; n < s->count; n++) {
        if (s->length[n] == 0) continue;
        if (s->length[n] < 0 || s->start[n] < end || s->length[n] > length - s->start[n])
            return mha__fail(err, MHA_ERR_ARG,
                             "mha_model_shard: range %lld must be within tokens %lld to %lld (got %lld tokens from "
                             "%lld)",
                             (long long)n, (long long)end, (long long)length - 1, (long long)s->length[n],
                             (long long)s->start[n]);
        end = s->start[n] + s->length[n];
    }
    return MHA_OK;
}

mha_status mha__ids_check(const mha_model *m, const mha_model_input *in, mha_error *err)
{
    for (int64_t i = 0; i < in->batch * in->length; i++) {
        if (in->ids[i] < 0 || in->ids[i] >= m->config.vocab)
            return mha__fail(err, MHA_ERR_ARG, "ids[%lld] must be from 0 to %lld (got %d)", (long long)i,
                             (long long)m->config.vocab - 1, in->ids[i]);
        if (in->type_ids && m->types.weight && (in->type_ids[i] < 0 || in->type_ids[i] >= m->config.type_vocab))
            return mha__fail(err, MHA_ERR_ARG, "type_ids[%lld] must be from 0 to %lld (got %d)", (long long)i,
                             (long long)m->config.type_vocab - 1, in->type_ids[i]);
    }
    return MHA_OK;
}

static mha_status check_model(const mha_model *m, mha_error *err)
{
    if (m->relative.weight)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "shard must be NULL for a model with relative positions (got %s)",
                         m->info.family);
    const int64_t choosing = mha__config_choosing(&m->config);
    if (m->config.convolved)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "shard must be NULL for a model with a convolution (got %s)",
                         m->info.family);
    if (choosing < 0) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED,
                     "shard must be NULL for a model that selects heads per text (got layer %lld)",
                     (long long)choosing);
}

static mha_status check(const mha_model *m, const mha__batch *p, const mha_model_output *out, mha_error *err)
{
    const mha_model_input *in = &p->in;
    const mha_model_shard *s = in->shard;
    if (s->count < 0)
        return mha__fail(err, MHA_ERR_ARG, "mha_model_shard: count must be at least 0 (got %lld)", (long long)s->count);
    if (!s->attend || (s->count > 0 && (!s->start || !s->length)))
        return mha__fail(err, MHA_ERR_ARG, "mha_model_shard: attend, start and length must not be NULL");
    if (in->batch != 1 || in->mask || in->cache || in->starts || in->hidden)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_model_input: shard must be NULL unless batch is 1, and mask, cache, starts and hidden "
                         "are NULL (got batch %lld)",
                         (long long)in->batch);
    if (out->on_attention || out->on_stats || out->on_activations || out->on_rows)
        return mha__fail(err, MHA_ERR_UNSUPPORTED, "mha_model_output: %s must be NULL with a shard",
                         out->on_attention     ? "on_attention"
                         : out->on_stats       ? "on_stats"
                         : out->on_activations ? "on_activations"
                                               : "on_rows");
    MHA__TRY(check_model(m, err));
    MHA__TRY(check_ranges(s, in->length, err));
    return mha__ids_check(m, in, err);
}

mha_status mha__shard_read(const mha_model *m, mha__batch *batch, mha_model_shard *s, mha_model_output *out,
                           mha_error *err)
{
    bool first = false, last = false;
    if (!batch->in.shard) return MHA_OK;
    MHA__TRY(mha__options_need(s, sizeof *s, batch->in.shard, "mha_model_shard", err));
    batch->in.shard = s;
    MHA__TRY(check(m, batch, out, err));
    const int64_t length = batch->in.length;
    batch->in.length = 0;
    for (int64_t n = 0; n < s->count; n++) {
        first |= s->length[n] > 0 && s->start[n] == 0;
        last |= s->length[n] > 0 && s->start[n] + s->length[n] == length;
        batch->in.length += s->length[n];
    }
    if (!first) out->pooled = NULL;
    if (!last) out->last_logits = NULL;
    batch->shard = (mha_layer_shard){.length = length, .attend = s->attend, .user = s->user};
    return MHA_OK;
}

void mha__shard_lay_out(mha__arena *arena, mha__batch *batch)
{
    const size_t rows = (size_t)batch->in.length;
    if (!batch->in.shard) return;
    batch->shard_ids = mha__take(arena, rows, sizeof *batch->shard_ids);
    batch->shard_types = batch->in.type_ids ? mha__take(arena, rows, sizeof *batch->shard_types) : NULL;
}

/* Returns the position, by MHA__POSITIONS_AFTER_PAD, of the last token before `end` that is not padding. */
static int64_t count_before(const mha_model *m, const int32_t *ids, int64_t end)
{
    int64_t position = m->config.padding;
    for (int64_t i = 0; i < end; i++)
        position += ids[i] != m->config.padding;
    return position;
}

static void fill_range(const mha_model *m, mha__batch *p, int64_t from, int64_t count, int64_t to)
{
    const bool counted = m->config.family->position_rule == MHA__POSITIONS_AFTER_PAD && !p->in.positions;
    int64_t last = counted ? count_before(m, p->in.ids, from) : 0;
    for (int64_t n = 0; n < count; n++) {
        const int64_t i = from + n;
        const bool padding = counted && p->in.ids[i] == m->config.padding;
        int64_t position = p->in.positions ? p->in.positions[i] : i;
        if (counted) position = padding ? m->config.padding : ++last;
        p->positions[to + n] = (int32_t)(position + mha__first_position(m->config.family));
        p->shard_ids[to + n] = p->in.ids[i];
        if (p->shard_types) p->shard_types[to + n] = p->in.type_ids[i];
    }
}

void mha__shard_fill(const mha_model *m, mha__batch *batch)
{
    const mha_model_shard *s = batch->in.shard;
    int64_t rows = 0;
    batch->shard_end = batch->in.positions ? 0 : batch->shard.length - 1;
    for (int64_t i = 0; batch->in.positions && i < batch->shard.length; i++)
        batch->shard_end = mha__max64(batch->shard_end, batch->in.positions[i]);
    for (int64_t n = 0; n < s->count; n++) {
        fill_range(m, batch, s->start[n], s->length[n], rows);
        rows += s->length[n];
    }
    batch->in.ids = batch->shard_ids;
    batch->in.type_ids = batch->shard_types;
}

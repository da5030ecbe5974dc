/* layer_input.c - checks the input of one call of an attention layer or a block. */
#include "base/error.h"
#include "base/size.h"
#include "base/struct_size.h"
#include "layer/attention/attention_layer.h"

/* ---- lengths and packed sequences ---- */

static mha_status check_lengths(const char *name, const int64_t *lengths, int64_t count, int64_t max, mha_error *err)
{
    for (int64_t b = 0; lengths && b < count; b++)
        if (lengths[b] < 0 || lengths[b] > max)
            return mha__fail(err, MHA_ERR_ARG, "%s[%lld] must be from 0 to %lld (got %lld)", name, (long long)b,
                             (long long)max, (long long)lengths[b]);
    return MHA_OK;
}

/* Checks that the starts ascend from 0 to the number of packed rows. */
static mha_status check_starts(const char *name, const int64_t *starts, int64_t sequences, int64_t total,
                               mha_error *err)
{
    if (starts[0] != 0) return mha__fail(err, MHA_ERR_ARG, "%s[0] must be 0 (got %lld)", name, (long long)starts[0]);
    for (int64_t n = 1; n <= sequences; n++)
        if (starts[n] < starts[n - 1] || starts[n] > total)
            return mha__fail(err, MHA_ERR_ARG, "%s[%lld] must be from %lld to %lld (got %lld)", name, (long long)n,
                             (long long)starts[n - 1], (long long)total, (long long)starts[n]);
    if (starts[sequences] == total) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "%s[%lld] must be the number of rows, %lld (got %lld)", name,
                     (long long)sequences, (long long)total, (long long)starts[sequences]);
}

static mha_status check_starts_of(const mha_layer_input *in, mha_error *err)
{
    const mha_layer_source *source = in->source;
    if (!in->starts) return MHA_OK;
    MHA__TRY(check_starts("mha_layer_input: starts", in->starts, in->sequences, in->length, err));
    if (!source || !source->starts) return MHA_OK;
    return check_starts("mha_layer_source: starts", source->starts, in->sequences, source->tokens, err);
}

/* ---- the input ---- */

static bool may_be_shard(const mha_layer_input *in)
{
    return in->batch == 1 && in->shard->attend && !in->lengths && !in->keep.data && !in->bias.data && !in->cache &&
           !in->starts && !in->probs && !in->stats && !in->on_rows;
}

/* Rejects a count, or an index, without the array or the cache that it belongs to. */
static mha_status check_alone(const mha_layer_input *in, mha_error *err)
{
    const struct {
        const char *name, *of;
        int64_t value;
        const void *owner;
    } fields[] = {{"sequence", "cache", in->sequence, in->cache},
                  {"sequences", "starts", in->sequences, in->starts},
                  {"map_count", "map_heads", in->map_count, in->map_heads},
                  {"map_row_count", "map_rows", in->map_row_count, in->map_rows}};
    for (size_t n = 0; n < sizeof fields / sizeof *fields; n++)
        if (fields[n].value != 0 && !fields[n].owner)
            return mha__fail(err, MHA_ERR_ARG, "mha_layer_input: %s must be 0 if %s is NULL (got %lld)", fields[n].name,
                             fields[n].of, (long long)fields[n].value);
    return MHA_OK;
}

mha_status mha__layer_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err)
{
    size_t bytes = 0;
    MHA__TRY(mha__options_read(local, sizeof *local, given, "mha_layer_input", err));
    if (local->batch < 1 || local->length < 1 ||
        !mha__bytes((int64_t[]){local->batch, local->length, local->length}, 3, 1, &bytes) ||
        (uint64_t)bytes > INT64_MAX / 4096)
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_layer_input: batch and length must be at least 1 and fit in memory (got %lld, %lld)",
                         (long long)local->batch, (long long)local->length);
    if (local->starts && (local->batch != 1 || local->sequences < 1 || local->lengths || local->keep.data ||
                          local->cache || local->rows))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_layer_input: starts must be NULL unless sequences >= 1, batch = 1, and lengths, keep, "
                         "rows and cache are NULL (got sequences %lld, batch %lld)",
                         (long long)local->sequences, (long long)local->batch);
    if (local->shard && !may_be_shard(local))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_layer_input: shard must be NULL unless batch is 1, and lengths, keep, bias, cache, "
                         "starts, probs, stats and on_rows are NULL (got batch %lld)",
                         (long long)local->batch);
    if (local->context && (local->cache || local->probs || local->stats || local->on_rows || local->activations))
        return mha__fail(err, MHA_ERR_ARG,
                         "mha_layer_input: context must be NULL with cache, probs, stats, on_rows or activations");
    MHA__TRY(check_alone(local, err));
    return check_starts_of(local, err);
}

mha_status mha__layer_call_input(mha_layer_input *local, const mha_layer_input *given, mha_error *err)
{
    MHA__TRY(mha__layer_input(local, given, err));
    const mha_layer_source *source = local->source;
    MHA__TRY(check_lengths("mha_layer_input: lengths", local->lengths, local->batch, local->length, err));
    if (!source || source->tokens < 1) return MHA_OK;
    return check_lengths("mha_layer_source: lengths", source->lengths, local->batch, source->tokens, err);
}

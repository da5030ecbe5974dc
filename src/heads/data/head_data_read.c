/* head_data_read.c - reads the data of a measure: single texts, whole batches, and the kind of the data (texts, images
 * or source/target pairs), which each measure checks before it reads a batch. */
#include "base/error.h"
#include "heads/data/head_data_fields.h"
#include "math/hash.h"
#include "mha/seq2seq.h"
#include <stdio.h>
#include <string.h>

/* ---- texts ---- */

static int64_t length_at(const mha_head_data *d, int64_t place)
{
    return d->starts[place + 1] - d->starts[place];
}

int64_t mha_head_data_count(const mha_head_data *data)
{
    return data ? data->count : 0;
}

int64_t mha_head_data_tokens(const mha_head_data *data)
{
    return data ? data->tokens : 0;
}

const int32_t *mha_head_data_ids(const mha_head_data *data, int64_t text, int64_t *length)
{
    const bool there = data && text >= 0 && text < data->count;
    if (length) *length = there ? length_at(data, data->place[text]) : 0;
    return there ? data->ids + data->starts[data->place[text]] : NULL;
}

const uint8_t *mha__head_data_kinds(const mha_head_data *data, int64_t text)
{
    return data->kinds + data->starts[data->place[text]];
}

const int32_t *mha__head_data_types(const mha_head_data *data, int64_t text)
{
    return data->types + data->starts[data->place[text]];
}

const int32_t *mha__head_data_segments(const mha_head_data *data, int64_t text)
{
    return data->segments ? data->segments + data->starts[data->place[text]] : NULL;
}

const mha__frame *mha__head_data_frame(const mha_head_data *data)
{
    return &data->frame;
}

const mha_work *mha__head_data_work(const mha_head_data *data)
{
    return data->work.size ? &data->work : NULL;
}

int64_t mha__tokens_before(const mha_head_data *data, int64_t batch)
{
    return data->starts[data->first[batch]];
}

int64_t mha__head_data_batches(const mha_head_data *data)
{
    return data->batches;
}

int64_t mha__head_data_batch_tokens(const mha_head_data *data)
{
    return data->max_tokens;
}

int64_t mha__head_data_batch_texts(const mha_head_data *data)
{
    return data->max_texts;
}

int64_t mha__head_data_longest(const mha_head_data *data)
{
    return length_at(data, 0);
}

const float *mha__head_data_pixels(const mha_head_data *data, int64_t text)
{
    return data->pixels ? data->pixels + data->place[text] * data->image : NULL;
}

const int32_t *mha__head_data_source(const mha_head_data *data, int64_t text, int64_t *length)
{
    const int64_t *starts = data->sources.starts, place = data->place[text];
    *length = starts ? starts[place + 1] - starts[place] : 0;
    return starts ? data->sources.ids + starts[place] : NULL;
}

int64_t mha__head_data_max_source(const mha_head_data *data)
{
    return data->sources.max;
}

size_t mha__head_data_image_bytes(const mha_head_data *data)
{
    return (size_t)data->image * sizeof *data->pixels;
}

/* ---- kinds of data ---- */

mha_status mha__head_data_texts(const mha_head_data *data, mha_error *err)
{
    MHA__TRY(mha__head_data_alone(data, err));
    return mha__head_data_no_images(data, err);
}

mha_status mha__head_data_no_images(const mha_head_data *data, mha_error *err)
{
    if (!data->pixels) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "data must consist of texts for this measure (got images)");
}

mha_status mha__head_data_alone(const mha_head_data *data, mha_error *err)
{
    if (!data->sources.starts) return MHA_OK;
    return mha__fail(err, MHA_ERR_UNSUPPORTED, "data must consist of texts for this measure (got source/target pairs)");
}

static uint64_t hash_tokens(uint64_t h, const mha_tokenizer *tokenizer, const int32_t *ids, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        const char *text = mha_tokenizer_token(tokenizer, ids[i]);
        h = text ? mha__hash(h, text, strlen(text) + 1) : mha__hash(h, &ids[i], sizeof ids[i]);
    }
    return h;
}

uint64_t mha__head_data_texts_hash(const mha_head_data *data, const mha_tokenizer *tokenizer)
{
    const mha__pair_sources *sources = &data->sources;
    if (!tokenizer) return 0;
    const uint64_t h = hash_tokens(0, tokenizer, data->ids, data->tokens);
    return sources->starts ? hash_tokens(h, tokenizer, sources->ids, sources->starts[data->count]) : h;
}

static mha_status check_kind(const mha_model *model, const mha_head_data *data, mha_error *err)
{
    const mha_model_info *info = mha_model_describe(model);
    const int64_t image = info->image_channels * info->image_height * info->image_width;
    char want[64] = "texts", got[64] = "texts";
    const bool pairs = mha_model_encoder(model) != NULL;
    if (data->image == image && pairs == (data->sources.starts != NULL)) return MHA_OK;
    if (pairs) snprintf(want, sizeof want, "source/target pairs");
    if (data->sources.starts) snprintf(got, sizeof got, "source/target pairs");
    if (image) snprintf(want, sizeof want, "images of %lld elements", (long long)image);
    if (data->image) snprintf(got, sizeof got, "images of %lld elements", (long long)data->image);
    return mha__fail(err, MHA_ERR_ARG, "data must be %s for %s (got %s)", want, info->family, got);
}

mha_status mha__head_data_matches(const mha_model *model, const mha_head_data *data, mha_error *err)
{
    const mha_tokenizer *tokenizer = mha_model_tokenizer(model);
    MHA__TRY(check_kind(model, data, err));
    if (data->image || !tokenizer || !data->texts_hash) return MHA_OK;
    if (mha__head_data_texts_hash(data, tokenizer) == data->texts_hash) return MHA_OK;
    return mha__fail(
        err, MHA_ERR_ARG,
        "data must hold tokens of the model's tokenizer (got ids that have other texts in its vocabulary)");
}

/* ---- batches ---- */

mha_status mha__head_data_any(const mha_head_data *data, int64_t batch, mha_model_input *input, const int64_t **texts,
                              mha_error *err)
{
    if (batch < 0 || batch >= data->batches)
        return mha__fail(err, MHA_ERR_ARG, "batch must be from 0 to %lld (got %lld)", (long long)data->batches - 1,
                         (long long)batch);
    const int64_t first = data->first[batch], from = data->starts[first];
    *texts = data->order + first;
    *input = (mha_model_input){.size = sizeof *input,
                               .batch = data->first[batch + 1] - first,
                               .ids = data->ids + from,
                               .type_ids = data->types + from,
                               .starts = data->batch_starts + first + batch};
    if (data->sources.starts) input->source = &data->sources.batch[batch];
    if (data->pixels) {
        input->pixels = data->pixels + first * data->image;
        input->ids = input->type_ids = NULL;
    }
    return MHA_OK;
}

mha_status mha__head_data_batch(const mha_head_data *data, int64_t batch, mha_model_input *input, const int64_t **texts,
                                mha_error *err)
{
    MHA__TRY(mha__head_data_texts(data, err));
    return mha__head_data_any(data, batch, input, texts, err);
}

/* ---- fingerprint ---- */

static uint64_t hash_batch(uint64_t h, const mha_head_data *data, const mha_model_input *in, const int64_t *texts)
{
    const size_t tokens = (size_t)in->starts[in->batch];
    h = mha__hash(h, in->starts, (size_t)(in->batch + 1) * sizeof *in->starts);
    h = mha__hash(h, texts, (size_t)in->batch * sizeof *texts);
    if (in->ids) h = mha__hash(h, in->ids, tokens * sizeof *in->ids);
    if (in->type_ids) h = mha__hash(h, in->type_ids, tokens * sizeof *in->type_ids);
    if (in->source) {
        const int64_t *starts = in->source->starts;
        h = mha__hash(h, starts, (size_t)(in->batch + 1) * sizeof *starts);
        h = mha__hash(h, in->source->ids, (size_t)starts[in->batch] * sizeof *in->source->ids);
    }
    if (in->pixels) h = mha__hash(h, in->pixels, (size_t)in->batch * mha__head_data_image_bytes(data));
    for (int64_t b = 0; b < in->batch; b++)
        h = mha__hash(h, mha__head_data_kinds(data, texts[b]), (size_t)(in->starts[b + 1] - in->starts[b]));
    return h;
}

mha_status mha__head_data_mark(const mha_head_data *data, char mark[17], mha_error *err)
{
    uint64_t h = 0;
    for (int64_t n = 0; n < data->batches; n++) {
        mha_model_input in;
        const int64_t *texts;
        MHA__TRY(mha__head_data_any(data, n, &in, &texts, err));
        h = hash_batch(h, data, &in, texts);
    }
    mha__hash_print(mark, h);
    return MHA_OK;
}

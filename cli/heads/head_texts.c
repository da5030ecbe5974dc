/* head_texts.c - see head_texts.h. */
#include "heads/head_texts.h"

#include "input/images.h"
#include "input/source_target.h"
#include "input/tokens.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

static int refuse_blank(const cli_session *s, const cli_texts *texts)
{
    for (int64_t i = 0; i < texts->count; i++)
        if (texts->text[i][strspn(texts->text[i], " \t\v\f\r\n")]) return CLI_DONE;
    return cli_error(s, CLI_REFUSED,
                     texts->count == 1 ? "the text must not be blank" : "the texts must not all be blank");
}

/* Concatenates the ids of all texts: text i is ids[starts[i]] to ids[starts[i + 1] - 1]. */
static int list_ids(const cli_session *s, const mha_model *model, const cli_texts *texts, int32_t *ids, int64_t *starts)
{
    const int64_t vocab = mha_model_describe(model)->vocab;
    int64_t total = 0;
    for (int64_t i = 0; i < texts->count; i++) {
        const int code = cli_ids_read(s, texts, i, vocab, ids, &total);
        if (code != CLI_DONE) return code;
        starts[i + 1] = total;
    }
    return CLI_DONE;
}

/* Allocates and reads the ids of all texts. The caller frees both arrays, also after an error. */
static int read_ids(const cli_session *s, const mha_model *model, const cli_texts *texts, int32_t **ids,
                    int64_t **starts)
{
    size_t room = 1;
    for (int64_t i = 0; i < texts->count; i++)
        room += strlen(texts->text[i]) / 2 + 1;
    *ids = calloc(room, sizeof **ids);
    *starts = calloc((size_t)texts->count + 1, sizeof **starts);
    if (!*ids || !*starts) return cli_error(s, CLI_FAILED, "out of memory for the ids");
    return list_ids(s, model, texts, *ids, *starts);
}

static int data_of_ids(const cli_session *s, const mha_model *model, const cli_texts *texts,
                       const mha_head_data_options *options, mha_head_data **data)
{
    int32_t *ids = NULL;
    int64_t *starts = NULL;
    mha_error error = {0};
    int code = read_ids(s, model, texts, &ids, &starts);
    if (code == CLI_DONE && mha_head_data_of_ids(model, ids, starts, texts->count, options, data, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    free(ids);
    free(starts);
    return code;
}

static int data_of_id_pairs(const cli_session *s, const mha_model *model, const cli_pairs *pairs,
                            const mha_head_data_options *options, mha_head_data **data)
{
    int32_t *source = NULL, *target = NULL;
    int64_t *source_starts = NULL, *starts = NULL;
    mha_error error = {0};
    int code = read_ids(s, mha_model_encoder(model), &pairs->source, &source, &source_starts);
    if (code == CLI_DONE) code = read_ids(s, model, &pairs->target, &target, &starts);
    if (code == CLI_DONE && mha_head_data_of_id_pairs(model, source, source_starts, target, starts, pairs->source.count,
                                                      options, data, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    free(source);
    free(source_starts);
    free(target);
    free(starts);
    return code;
}

static int data_of_pairs(const cli_session *s, const mha_model *model, const cli_texts *texts,
                         const mha_head_data_options *options, mha_head_data **data)
{
    cli_pairs pairs;
    mha_error error = {0};
    int code = cli_pairs_split(s, texts, &pairs);
    if (code == CLI_DONE && s->options.ids)
        code = data_of_id_pairs(s, model, &pairs, options, data);
    else if (code == CLI_DONE && mha_head_data_of_pairs(model, pairs.source.text, pairs.target.text, texts->count,
                                                        options, data, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    cli_pairs_free(&pairs);
    return code;
}

static int data_of_images(const cli_session *s, const mha_model *vision, const cli_texts *texts,
                          const mha_head_data_options *options, mha_head_data **data)
{
    float *pixels = NULL;
    mha_error error = {0};
    int code = cli_images_read(s, vision, texts->text, texts->count, &pixels);
    if (code == CLI_DONE && mha_head_data_of_images(vision, pixels, texts->count, options, data, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    free(pixels);
    return code;
}

static bool reads_images(const mha_model *model)
{
    return mha_model_describe(model)->image_channels > 0;
}

/* Checks that no text is blank, and that the model reads texts and has a tokenizer if they are not token ids. */
static int check_texts(const cli_session *s, const mha_model *model, const cli_texts *texts)
{
    const int code = refuse_blank(s, texts);
    if (code != CLI_DONE) return code;
    if (!s->options.ids && !reads_images(model) && !mha_model_tokenizer(model))
        return cli_error(s, CLI_REFUSED, CLI_NO_TOKENIZER, cli_shown(s->model));
    return cli_model_check_text(s, model);
}

int head_texts_data(const cli_session *s, const mha_model *model, const cli_texts *texts, const mha_work *work,
                    mha_head_data **data)
{
    const mha_head_data_options how = {.size = sizeof how, .work = work};
    mha_error error = {0};
    int code = check_texts(s, model, texts);
    if (code != CLI_DONE) return code;
    if (reads_images(model)) return data_of_images(s, model, texts, &how, data);
    cli_texts_number(texts);
    if (mha_model_encoder(model))
        code = data_of_pairs(s, model, texts, &how, data);
    else if (s->options.ids)
        code = data_of_ids(s, model, texts, &how, data);
    else if (mha_head_data_of_texts(model, texts->text, texts->count, &how, data, &error) != MHA_OK)
        code = cli_refuse(s, &error);
    cli_texts_number(NULL);
    return code;
}

int head_texts_maps(const cli_session *s, const mha_model *model, const char *text, const mha_heads_options *options,
                    mha_heads **heads)
{
    mha_error error = {0};
    mha_head_data *data = NULL;
    const cli_texts one = {.count = 1, .text = &text};
    const bool listed = s->options.ids || reads_images(model);
    const int code = listed ? head_texts_data(s, model, &one, NULL, &data) : check_texts(s, model, &one);
    if (code != CLI_DONE) return code;
    const mha_status status = data ? mha_heads_measure_data(model, data, options, heads, &error)
                                   : mha_heads_measure(model, &text, 1, options, heads, &error);
    mha_head_data_free(data);
    return status == MHA_OK ? CLI_DONE : cli_fail(s, &error);
}

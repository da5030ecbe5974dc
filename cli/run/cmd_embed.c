/* cmd_embed.c - `mha embed`: computes one vector per text, independently of the other texts. */
#include "commands.h"
#include "input/images.h"
#include "input/input.h"
#include "input/source_target.h"
#include "memory.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *pool;
    int no_normalize;
} given;

static const struct poptOption options[] = {
    {"pool", 0, POPT_ARG_STRING, &given.pool, 0,
     "pooling: mean of all tokens, or cls, the first token (default: that of the folder, or mean)", "HOW"},
    {"no-normalize", 0, POPT_ARG_NONE, &given.no_normalize, 0, "do not L2-normalize the vectors", NULL},
    POPT_TABLEEND};

/* ---- output ---- */

typedef struct vectors {
    const cli_texts *texts;
    float *data; /* [texts, width] elements of the vectors */
    int64_t width;
} vectors;

static json_t *vector_json(const vectors *v, int64_t i)
{
    json_t *numbers = json_array();
    for (int64_t d = 0; d < v->width; d++)
        json_array_append_new(numbers, cli_real((double)v->data[i * v->width + d]));
    return json_pack("{s:s, s:o}", "text", v->texts->text[i], "embedding", numbers);
}

static int put_json_lines(cli_session *s, const vectors *v)
{
    for (int64_t i = 0; i < v->texts->count; i++) {
        int code = cli_put_json(s, vector_json(v, i), false);
        if (code != CLI_DONE) return code;
    }
    return CLI_DONE;
}

static double cosine(const vectors *v, int64_t a, int64_t b)
{
    const float *x = v->data + a * v->width, *y = v->data + b * v->width;
    double xy = 0, xx = 0, yy = 0;
    for (int64_t d = 0; d < v->width; d++) {
        xy += (double)x[d] * (double)y[d];
        xx += (double)x[d] * (double)x[d];
        yy += (double)y[d] * (double)y[d];
    }
    return xy / sqrt(xx * yy);
}

/* Prints the first elements of each vector and, for a few texts, the matrix of cosine similarities. */
static void print_vectors(const cli_session *s, const vectors *v)
{
    enum {
        MAX = 6,
        CELL = 9,
        MARGIN = 10,
        TEXT = 30,
        MATRIX = 12
    }; /* CELL, MARGIN, TEXT: widths in columns; MAX, MATRIX: maximum numbers of elements and of texts shown */
    int64_t shown = (s->columns - MARGIN - TEXT) / CELL, alike = (s->columns - 3) / 6;
    shown = shown < 1 ? 1 : shown > MAX ? MAX : shown;
    if (shown > v->width) shown = v->width;
    for (int64_t i = 0; i < v->texts->count; i++) {
        fprintf(s->out, "%s%3lld%s ", cli_bold(s), (long long)i + 1, cli_plain(s));
        for (int64_t d = 0; d < shown; d++)
            fprintf(s->out, " %8.5f", (double)v->data[i * v->width + d]);
        fprintf(s->out, "%s  %s%s%s\n", v->width > shown ? " ..." : "", cli_dim(s),
                cli_shown_start(v->texts->text[i], s->columns - MARGIN - (int)shown * CELL), cli_plain(s));
    }
    cli_put_prose(s, 0, 0, "The first %lld of %lld elements per vector; --json or -o FILE.npy writes all elements.",
                  (long long)shown, (long long)v->width);
    if (v->texts->count < 2 || v->texts->count > MATRIX || v->texts->count > alike) return;
    fputs("\ncosine similarity\n   ", s->out);
    for (int64_t i = 0; i < v->texts->count; i++)
        fprintf(s->out, " %5lld", (long long)i + 1);
    for (int64_t i = 0; i < v->texts->count; i++) {
        fprintf(s->out, "\n%3lld", (long long)i + 1);
        for (int64_t j = 0; j < v->texts->count; j++)
            fprintf(s->out, " %5.2f", cosine(v, i, j));
    }
    fputc('\n', s->out);
}

static int write_npy(const cli_session *s, const vectors *v)
{
    mha_error error = {0};
    if (!cli_writes(s)) return CLI_DONE;
    const mha_tensor matrix = {
        .dtype = MHA_F32, .rank = 2, .shape = (int64_t[]){v->texts->count, v->width}, .data = v->data};
    if (mha_npy_write(s->options.out, &matrix, s->options.force, &error) != MHA_OK) return cli_fail(s, &error);
    return CLI_DONE;
}

/* Writes the JSON lines to the file of -o. A separate stream collects them, because stdout stays empty with -o. */
static int write_json(cli_session *s, const vectors *v)
{
    char *text;
    size_t bytes;
    FILE *out = s->out;
    s->out = cli_memory_open(&text, &bytes);
    int code = put_json_lines(s, v);
    fclose(s->out);
    s->out = out;
    if (code == CLI_DONE) code = cli_write_file(s, text, bytes);
    free(text);
    return code;
}

static int put_result(cli_session *s, const vectors *v)
{
    if (!s->options.out) {
        if (s->options.json) return put_json_lines(s, v);
        print_vectors(s, v);
        return CLI_DONE;
    }
    int code = cli_out_ends(s, ".npy") ? write_npy(s, v) : write_json(s, v);
    if (code == CLI_DONE)
        cli_say(s, "%s: %lld vectors of %lld elements", cli_shown(s->options.out), (long long)v->texts->count,
                (long long)v->width);
    return code;
}

/* ---- embedding ---- */

static int check_finite(const cli_session *s, const vectors *v)
{
    int code = CLI_DONE;
    char where[CLI_WHERE];
    for (int64_t n = 0; n < v->texts->count * v->width && code == CLI_DONE; n++)
        if (!isfinite(v->data[n]))
            code = cli_finite(s, cli_texts_where(v->texts, n / v->width, where), "the embedding", (double)v->data[n]);
    return code;
}

static int embed(cli_session *s, const mha_model *model, const cli_texts *texts, mha_pool pool)
{
    const mha_embed_options how = {.size = sizeof how, .pool = pool, .no_normalize = given.no_normalize};
    vectors v = {.texts = texts, .width = mha_model_describe(model)->embedding_width};
    v.data = calloc((size_t)texts->count, (size_t)v.width * sizeof *v.data);
    if (!v.data) return cli_error(s, CLI_FAILED, "out of memory for %lld vectors", (long long)texts->count);
    int code = cli_vectors_of(s, model, texts, &how, v.data);
    if (code == CLI_DONE) code = check_finite(s, &v);
    if (code == CLI_DONE) code = put_result(s, &v);
    free(v.data);
    return code;
}

static int check_options(const cli_session *s, mha_pool *pool)
{
    *pool = given.pool && strcmp(given.pool, "cls") == 0 ? MHA_POOL_CLS : MHA_POOL_MEAN;
    if (given.pool && *pool == MHA_POOL_MEAN && strcmp(given.pool, "mean") != 0)
        return cli_usage(s, "--pool must be one of mean, cls (got \"%s\")", cli_shown(given.pool));
    const char *out = s->options.out;
    if (out && !cli_out_ends(s, ".npy") && !cli_out_ends(s, ".json"))
        return cli_usage(s, "-o must end in .npy or .json (got \"%s\")", cli_shown(out));
    return CLI_DONE;
}

static int run(cli_session *s)
{
    mha_pool pool;
    cli_texts texts;
    mha_model *model = NULL;
    int code = check_options(s, &pool);
    if (code == CLI_DONE) code = cli_check_out(s);
    if (code != CLI_DONE) return code;
    code = cli_texts_read(s, false, &texts);
    if (code != CLI_DONE) return code;
    code = cli_model_open(s, NULL, &model);
    if (code == CLI_DONE) code = cli_model_check_text(s, model);
    if (code == CLI_DONE && !given.pool) pool = (mha_pool)mha_model_describe(model)->pool;
    if (code == CLI_DONE) code = embed(s, cli_encoder_of(model), &texts, pool);
    mha_model_free(model);
    cli_texts_free(&texts);
    return code;
}

const cli_command cli_embed = {
    .name = "embed",
    .summary = "embed texts: similar vectors for texts of similar meaning",
    .usage = "TEXT... | -f FILE",
    .details =
        "For a model that reads images (ViT, CLIP), arguments that end in .png, .jpg or .jpeg are image files; the "
        "vectors of images and texts of a CLIP model are comparable. --json prints one line per text: {text, "
        "embedding}. -o "
        "FILE.npy writes a float32 matrix [texts, width] "
        "for NumPy; -o FILE.json writes the lines of --json. Texts must not contain NUL. The pooling and the dense "
        "layers of a sentence-transformers folder (modules.json) are applied; other modules are rejected by name.",
    .shared = CLI_MODEL | CLI_FILE | CLI_OUT | CLI_JSON | CLI_DTYPE,
    .options = options,
    .examples = "mha embed -m minilm \"a cat\" \"a kitten\" \"an engine\"\n"
                "mha embed -m minilm -f texts.txt -o vectors.npy\n",
    .unshared = cli_unshared_stdin,
    .run = run,
};

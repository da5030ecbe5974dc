/* cmd_diff.c - `mha diff`: compares the tensors and heads of two models, and their embeddings and loss on texts. */
#include "commands.h"
#include "heads/head_texts.h"
#include "input/input.h"
#include "input/text_reader.h"
#include "output.h"
#include "word_wrap.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct diff {
    cli_session *session;
    char name[2][256];
    mha_model *model[2];
    const mha_model_info *info[2];
    bool compared;
    mha_comparison apart;
    double *cosines;
    json_t *tensors; /* list of the tensors that differ: {name, differs, ...} */
    int64_t same;    /* number of tensors that are bitwise identical */
} diff;

/* ---- tensors ---- */

static json_t *shape_json(const mha_tensor *t)
{
    json_t *shape = json_array();
    for (int i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer(t->shape[i]));
    return shape;
}

/* Returns the largest absolute difference between two tensors of the same shape; NAN if a tensor cannot be converted to
 * f64 or memory is exhausted. */
static double furthest(const mha_tensor *a, const mha_tensor *b)
{
    double max = NAN;
    double *x = calloc((size_t)a->elements + 1, sizeof *x), *y = calloc((size_t)a->elements + 1, sizeof *y);
    if (x && y && mha_tensor_read(a, MHA_F64, x, NULL) == MHA_OK && mha_tensor_read(b, MHA_F64, y, NULL) == MHA_OK) {
        max = 0;
        for (int64_t i = 0; i < a->elements; i++)
            if (!(fabs(x[i] - y[i]) <= max)) max = fabs(x[i] - y[i]);
    }
    free(x);
    free(y);
    return max;
}

static bool same_shape(const mha_tensor *a, const mha_tensor *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) == 0;
}

/* Returns how two tensors of the same name differ; NULL if they are bitwise identical. */
static json_t *tensor_json(const mha_tensor *a, const mha_tensor *b)
{
    if (!same_shape(a, b))
        return json_pack("{s:s, s:s, s:o, s:o}", "name", a->name, "differs", "shape", "a", shape_json(a), "b",
                         shape_json(b));
    if (a->dtype == b->dtype && a->bytes == b->bytes && memcmp(a->data, b->data, a->bytes) == 0) return NULL;
    return json_pack("{s:s, s:s, s:s, s:s, s:o}", "name", a->name, "differs", a->dtype == b->dtype ? "values" : "type",
                     "a", a->dtype_name, "b", b->dtype_name, "furthest", cli_real(furthest(a, b)));
}

static void add(diff *d, json_t *found)
{
    if (found)
        json_array_append_new(d->tensors, found);
    else
        d->same++;
}

static void compare_files(diff *d, const mha_file *a, const mha_file *b)
{
    for (int64_t n = 0; n < mha_file_count(a); n++) {
        const mha_tensor *t = mha_file_tensor(a, n), *other = mha_file_find(b, t->name);
        add(d, other ? tensor_json(t, other)
                     : json_pack("{s:s, s:s, s:o}", "name", t->name, "differs", "only in a", "a", shape_json(t)));
    }
    for (int64_t n = 0; n < mha_file_count(b); n++) {
        const mha_tensor *t = mha_file_tensor(b, n);
        if (mha_file_find(a, t->name)) continue;
        add(d, json_pack("{s:s, s:s, s:o}", "name", t->name, "differs", "only in b", "b", shape_json(t)));
    }
}

/* ---- output ---- */

static json_t *heads_json(const diff *d, int which)
{
    json_t *lists = json_array();
    for (int64_t l = 0; l < d->info[which]->layers; l++) {
        json_t *list = json_array();
        for (int64_t h = 0; h < d->info[which]->heads_per_layer[l]; h++)
            json_array_append_new(list, json_integer(mha_head_number(d->model[which], l, h)));
        json_array_append_new(lists, list);
    }
    return lists;
}

static json_t *texts_json(const diff *d)
{
    const mha_comparison *c = &d->apart;
    json_t *cosines = json_array();
    for (int64_t i = 0; i < c->texts; i++)
        json_array_append_new(cosines, cli_real(d->cosines[i]));
    return json_pack("{s:I, s:I, s:o, s:o, s:I, s:o, s:[o, o]}", "texts", (json_int_t)c->texts, "tokens",
                     (json_int_t)c->tokens, "mean_cosine", cli_real(c->mean_cosine), "min_cosine",
                     cli_real(c->min_cosine), "worst", (json_int_t)c->worst, "cosines", cosines, "loss",
                     cli_real(c->loss[0]), cli_real(c->loss[1]));
}

static json_t *model_json(const diff *d, int which)
{
    const mha_model_info *i = d->info[which];
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:o}", "model", d->name[which], "family", i->family, "parameters",
                     (json_int_t)i->parameters, "bytes", (json_int_t)i->bytes, "kv_bytes_per_token",
                     (json_int_t)i->kv_bytes_per_token, "heads", heads_json(d, which));
}

static int put_json(const diff *d)
{
    json_t *all = json_pack("{s:o, s:o, s:I, s:O}", "a", model_json(d, 0), "b", model_json(d, 1), "tensors_equal",
                            (json_int_t)d->same, "tensors", d->tensors);
    if (all && d->compared) json_object_set_new(all, "texts", texts_json(d));
    return cli_put_json(d->session, all, false);
}

static void print_heads(const diff *d)
{
    FILE *out = d->session->out;
    for (int64_t l = 0; l < d->info[0]->layers && l < d->info[1]->layers; l++) {
        const int64_t a = d->info[0]->heads_per_layer[l], b = d->info[1]->heads_per_layer[l];
        fprintf(out, "layer %-4lld %4lld heads %4lld", (long long)l, (long long)a, (long long)b);
        const char *before = "  only in a: ";
        for (int which = 0; which < 2; which++, before = "  only in b: ")
            for (int64_t h = 0; h < d->info[which]->heads_per_layer[l]; h++) {
                const int64_t number = mha_head_number(d->model[which], l, h);
                if (mha_head_place(d->model[!which], l, number) >= 0) continue;
                fprintf(out, "%s%lld", before, (long long)number);
                before = " ";
            }
        fputc('\n', out);
    }
}

static void print_tensors(const diff *d)
{
    enum { MAX = 24 };
    size_t n;
    json_t *t;
    fprintf(d->session->out, "\n%lld tensors are bitwise identical, %zu differ%s\n", (long long)d->same,
            json_array_size(d->tensors), json_array_size(d->tensors) ? ":" : "");
    json_array_foreach(d->tensors, n, t)
    {
        if (n == MAX) {
            fprintf(d->session->out, "  and %zu more; --json lists all tensors\n", json_array_size(d->tensors) - MAX);
            break;
        }
        fprintf(d->session->out, "  %s: %s", cli_shown(json_string_value(json_object_get(t, "name"))),
                json_string_value(json_object_get(t, "differs")));
        const json_t *far = json_object_get(t, "furthest");
        if (json_is_real(far)) fprintf(d->session->out, ", by up to %.3g", json_real_value(far));
        fputc('\n', d->session->out);
    }
}

static int put_text(const diff *d)
{
    FILE *out = d->session->out;
    const mha_comparison *c = &d->apart;
    fprintf(out, "a  %s: %lld parameters\nb  %s: %lld parameters\n\n", d->name[0], (long long)d->info[0]->parameters,
            d->name[1], (long long)d->info[1]->parameters);
    print_heads(d);
    print_tensors(d);
    if (!d->compared) return CLI_DONE;
    fprintf(out, "\n%lld texts, %lld tokens\n", (long long)c->texts, (long long)c->tokens);
    if (!isnan(c->mean_cosine))
        fprintf(out, "cosine of embeddings: mean %.6f, smallest %.6f (text %lld)\n", c->mean_cosine, c->min_cosine,
                (long long)c->worst + 1);
    if (c->predicted) fprintf(out, "loss: %.6f and %.6f, %+.6f\n", c->loss[0], c->loss[1], c->loss[1] - c->loss[0]);
    return CLI_DONE;
}

/* ---- comparison of two models ---- */

static int open_models(diff *d, bool reads)
{
    const mha_model_options how = {.size = sizeof how, .no_tokenizer = !reads};
    const char *names[2] = {d->session->options.model, d->session->options.other_model};
    mha_file *file[2] = {NULL, NULL};
    mha_error error = {0};
    int code = CLI_DONE;
    d->tensors = json_array();
    for (int n = 0; n < 2 && code == CLI_DONE; n++) {
        code = cli_model_open_named(d->session, names[n], &how, &d->model[n]);
        if (code != CLI_DONE) break;
        snprintf(d->name[n], sizeof d->name[n], "%.250s", cli_shown(d->session->model_name));
        d->info[n] = mha_model_describe(d->model[n]);
        if (mha_checkpoint_open(d->session->ctx, d->session->model, NULL, &file[n], &error) != MHA_OK)
            code = cli_refuse(d->session, &error);
    }
    if (code == CLI_DONE) compare_files(d, file[0], file[1]);
    mha_file_free(file[0]);
    mha_file_free(file[1]);
    return code;
}

static int compare_texts(diff *d, const cli_texts *texts)
{
    mha_head_data *data = NULL;
    mha_error error = {0};
    d->cosines = calloc((size_t)texts->count, sizeof *d->cosines);
    if (!d->cosines) return cli_error(d->session, CLI_FAILED, "out of memory for %lld texts", (long long)texts->count);
    mha_status status = MHA_OK;
    if (mha_model_encoder(d->model[0])) {
        const int code = head_texts_data(d->session, d->model[0], texts, NULL, &data);
        if (code != CLI_DONE) return code;
    } else {
        status = mha_head_data_of_texts(d->model[0], texts->text, texts->count, NULL, &data, &error);
    }
    if (status == MHA_OK)
        status = mha_models_compare(d->model[0], d->model[1], data, d->cosines, NULL, &d->apart, &error);
    mha_head_data_free(data);
    d->compared = status == MHA_OK;
    return status == MHA_OK ? CLI_DONE : cli_refuse(d->session, &error);
}

static int run(cli_session *s)
{
    diff d = {.session = s};
    cli_texts texts = {0};
    int code = s->options.file || s->arg_count ? cli_texts_read(s, false, &texts) : cli_documents_unused(s);
    if (code != CLI_DONE) return code;
    code = open_models(&d, texts.count > 0);
    if (code == CLI_DONE && texts.count) code = compare_texts(&d, &texts);
    if (code == CLI_DONE) code = s->options.json ? put_json(&d) : put_text(&d);
    json_decref(d.tensors);
    free(d.cosines);
    mha_model_free(d.model[0]);
    mha_model_free(d.model[1]);
    cli_texts_free(&texts);
    return code;
}

const cli_command cli_diff = {
    .name = "diff",
    .summary = "compare two models: heads, tensors, embeddings, loss",
    .usage = "-m MODEL -m MODEL [TEXT... | -f FILE]",
    .details = "Both models run on the texts, tokenized by the first model. The command compares embeddings (cosine of "
               "the mean of the last hidden states) and, for decoders, the loss (mean -log p per token). For "
               "encoder-decoders, "
               "each text is a source and a target, separated by a tab. Heads are "
               "numbered as in the unpruned model.\n"
               "--json prints {a, b: {model, family, parameters, bytes, kv_bytes_per_token, heads}, tensors_equal, "
               "tensors: [{name, differs, a, b, furthest}], texts: {texts, tokens, mean_cosine, min_cosine, worst, "
               "cosines, loss: [a, b]}}.",
    .shared = CLI_MODEL | CLI_MODELS | CLI_FILE | CLI_JSON | CLI_DTYPE,
    .examples = "mha diff -m builtin -m pruned\n"
                "mha diff -m builtin -m pruned -f texts.txt --json\n",
    .run = run,
};

/* golden_heads_stats.c - compares statistics, pattern scores, labels and maps of the encoder's heads. */
#include "conformance/heads/golden_heads.h"
#include "output.h"
#include <stdlib.h>
#include <string.h>

mha_head_metric heads_metric_of(const char *key)
{
    int metric = 0;
    while (metric < MHA_HEAD_METRICS && strcmp(mha_head_metric_key(metric), key) != 0)
        metric++;
    return metric;
}

/* ---- values per head ---- */

static void values_of(const mha_heads *heads, int64_t layers, int64_t count, mha_head_metric metric, double *out)
{
    for (int64_t n = 0; n < layers * count; n++)
        out[n] = mha_heads_value(heads, n / count, n % count, metric);
}

void heads_metrics(heads_file *f, const char *group, const mha_model_info *m, const mha_heads *heads,
                   const mha_error *failed)
{
    const char *name;
    json_t *value;
    const int64_t layers = m->layers, count = m->heads;
    double *got = heads_room(f, layers * count, sizeof *got);
    json_object_foreach((json_t *)f->entry.object, name, value)
    {
        const mha_head_metric metric = heads_metric_of(name);
        if (metric == MHA_HEAD_METRICS || !got) continue;
        const double *want = heads_want(f, name, 2, (int64_t[]){layers, count});
        if (heads) values_of(heads, layers, count, metric, got);
        heads_case(f, group, name, want, got, layers * count, HEADS_NEAR, failed);
    }
}

void heads_patterns(heads_file *f, const char *group, const mha_model_info *m, const mha_heads *heads,
                    const mha_error *failed)
{
    const int64_t layers = m->layers, count = m->heads;
    const json_t *names = json_object_get(f->run->index, "pattern_names");
    const int64_t patterns = (int64_t)json_array_size(names), each = layers * count;
    const double *want = heads_want(f, "pattern_scores", 3, (int64_t[]){patterns, layers, count});
    double *got = want ? heads_room(f, patterns * each, sizeof *got) : NULL;
    for (int64_t p = 0; got && p < patterns; p++) {
        const char *name = json_string_value(json_array_get(names, (size_t)p));
        const mha_head_metric metric = heads_metric_of(name ? name : "");
        if (metric == MHA_HEAD_METRICS) verify_fault(&f->entry, "unknown pattern \"%s\"", cli_shown(name ? name : ""));
        if (heads) values_of(heads, layers, count, metric, got + p * each);
    }
    heads_case(f, group, "pattern_scores", want, got, patterns * each, HEADS_NEAR, failed);
}

/* ---- labels ---- */

double heads_place_of(const heads_run *run, mha_head_label label)
{
    size_t n;
    json_t *name;
    json_array_foreach(json_object_get(run->index, "label_names"), n, name)
    {
        if (json_is_string(name) && strcmp(json_string_value(name), mha_head_label_key(label)) == 0) return (double)n;
    }
    return -1;
}

mha_head_thresholds heads_thresholds(const heads_run *run)
{
    const verify_entry e = {json_object_get(run->index, "thresholds"), "thresholds", run->error};
    return (mha_head_thresholds){.probe = verify_real(&e, "probe"),
                                 .single = verify_real(&e, "single"),
                                 .local = verify_real(&e, "local"),
                                 .broad = verify_real(&e, "broad"),
                                 .vertical = verify_real(&e, "vertical")};
}

void heads_labels(heads_file *f, const char *group, const mha_model_info *m, const mha_heads *heads,
                  const mha_error *failed)
{
    const int64_t layers = m->layers, count = m->heads;
    const double *want = heads_want(f, "labels", 2, (int64_t[]){layers, count});
    double *got = want ? heads_room(f, layers * count, sizeof *got) : NULL;
    for (int64_t n = 0; heads && got && n < layers * count; n++)
        got[n] = heads_place_of(f->run, mha_heads_label(heads, n / count, n % count));
    heads_case(f, group, "labels", want, got, layers * count, HEADS_EXACT, failed);
}

/* ---- probe texts ---- */

/* Reads the probe texts: a first token, a random sequence, repeated once, and a last token. */
static mha_head_probe read_probe(heads_file *f)
{
    int64_t shape[2] = {-1, -1};
    const int64_t *ids = heads_integers(f, "probe_ids", 2, shape), period = shape[1] / 2 - 1;
    int32_t *r = ids && period > 0 ? heads_room(f, shape[0] * period + 2, sizeof *r) : NULL;
    if (!r) return (mha_head_probe){0};
    int32_t *ends = r + shape[0] * period;
    for (int64_t n = 0; n < shape[0] * period; n++)
        r[n] = (int32_t)ids[n / period * shape[1] + 1 + n % period];
    ends[0] = (int32_t)ids[0], ends[1] = (int32_t)ids[shape[1] - 1];
    return (mha_head_probe){r, shape[0], period, &ends[0], &ends[1], 1, 1};
}

/* ---- maps of single sentences ---- */

/* Compares attention_N, the maps of sentence N: [layers, H, n, n]. */
static void check_maps(heads_file *f, const char *name, int64_t text)
{
    const mha_model_info *m = f->run->info;
    int64_t shape[4] = {m->layers, m->heads, -1, -1};
    const double *want = heads_want(f, name, 4, shape);
    const int64_t each = shape[2] * shape[3];
    const mha_heads_options options = {.size = sizeof options, .no_probe = 1, .keep_maps = 1};
    mha_error failed = {0};
    mha_heads *heads = NULL;
    double *got = want ? heads_room(f, m->layers * m->heads * each, sizeof *got) : NULL;
    if (!got) return;
    if (mha_heads_measure(f->run->model, &f->run->texts[text], 1, &options, &heads, &failed) == MHA_OK) {
        if (mha_heads_tokens(heads)->count != shape[2] || shape[2] != shape[3])
            verify_fault(&f->entry, "\"%s\" must have the shape of the maps of sentence %lld", cli_shown(name),
                         (long long)text);
        for (int64_t n = 0; heads_ok(f) && n < m->layers * m->heads; n++)
            for (int64_t i = 0; i < each; i++)
                got[n * each + i] = (double)mha_heads_map(heads, n / m->heads, n % m->heads)[i];
    }
    heads_case(f, "maps", name, want, got, m->layers * m->heads * each, HEADS_NEAR, &failed);
    mha_heads_free(heads);
}

/* Returns the sentence number in a name such as "attention_14". */
static int64_t sentence_of(const heads_file *f, const char *name, const char *prefix)
{
    char *end;
    if (strncmp(name, prefix, strlen(prefix)) != 0) return -1;
    const long long n = strtoll(name + strlen(prefix), &end, 10);
    if (*end || n < 0 || n >= f->run->count) {
        verify_fault(&f->entry, "\"%s\": unknown sentence", cli_shown(name));
        return -1;
    }
    return n;
}

void heads_statistics(heads_run *run)
{
    heads_file f;
    const char *name;
    json_t *value;
    mha_error failed = {0};
    mha_heads *heads = NULL;
    if (heads_open(&f, run, "minilm-attention.safetensors")) {
        const mha_heads_options options = {
            .size = sizeof options, .probe = read_probe(&f), .thresholds = heads_thresholds(run)};
        if (heads_ok(&f)) mha_heads_measure_data(run->model, run->data, &options, &heads, &failed);
        heads_metrics(&f, "statistics", run->info, heads, &failed);
        heads_patterns(&f, "patterns", run->info, heads, &failed);
        heads_labels(&f, "labels", run->info, heads, &failed);
        json_object_foreach((json_t *)f.entry.object, name, value)
        {
            const int64_t text = sentence_of(&f, name, "attention_"), other = sentence_of(&f, name, "rollout_");
            if (text >= 0) check_maps(&f, name, text);
            if (other >= 0) heads_rollout(&f, name, other);
        }
    }
    mha_heads_free(heads);
    heads_close(&f);
}

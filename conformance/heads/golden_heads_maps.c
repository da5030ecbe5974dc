/* golden_heads_maps.c - compares scores and labels of synthetic maps, which are ideal patterns with noise. */
#include "conformance/heads/golden_heads.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In the recording, the first token is [CLS], the last token is [SEP], and token 11 is a full stop. */
enum { FULL_STOP = 11 };

static mha_heads *measure(heads_file *f, const double *maps, int64_t count, int64_t tokens, mha_error *failed)
{
    mha_heads *heads = NULL;
    float *p = heads_room(f, count * tokens * tokens, sizeof *p);
    uint8_t *kinds = heads_room(f, tokens, sizeof *kinds);
    if (!p || !kinds) return NULL;
    for (int64_t n = 0; n < count * tokens * tokens; n++)
        p[n] = (float)maps[n];
    kinds[0] = MHA_TOKEN_SPECIAL, kinds[tokens - 1] = MHA_TOKEN_SPECIAL | MHA_TOKEN_SEP;
    kinds[FULL_STOP] = MHA_TOKEN_PUNCT;
    const mha_head_map text = {.tokens = tokens, .p = p, .kinds = kinds};
    const mha_head_maps given = {.size = sizeof given,
                                 .layers = 1,
                                 .heads = count,
                                 .count = 1,
                                 .text = &text,
                                 .thresholds = heads_thresholds(f->run)};
    mha_heads_of_maps(f->run->session->ctx, &given, &heads, failed);
    return heads;
}

/* Writes the pattern scores to `got`. The scores on probe texts are recorded as 0, because the maps have no probe
 * texts. */
static void fill_scores(heads_file *f, const mha_heads *heads, int64_t patterns, int64_t count, double *got)
{
    for (int64_t n = 0; n < patterns * count; n++) {
        const char *name =
            json_string_value(json_array_get(json_object_get(f->run->index, "pattern_names"), (size_t)(n / count)));
        const mha_head_metric metric = heads_metric_of(name ? name : "");
        if (metric == MHA_HEAD_METRICS) verify_fault(&f->entry, "unknown pattern \"%s\"", cli_shown(name ? name : ""));
        const bool probe = metric == MHA_HEAD_DUP_PROBE || metric == MHA_HEAD_INDUCTION_PROBE;
        const double value = heads ? mha_heads_value(heads, 0, n % count, metric) : NAN;
        got[n] = probe && isnan(value) ? 0 : value;
    }
}

static void check_maps(heads_file *f)
{
    int64_t shape[3] = {-1, -1, -1};
    const double *maps = heads_want(f, "maps", 3, shape);
    const int64_t count = shape[0], tokens = shape[1];
    const int64_t patterns = (int64_t)json_array_size(json_object_get(f->run->index, "pattern_names"));
    if (maps && (tokens != shape[2] || tokens <= FULL_STOP + 1))
        verify_fault(&f->entry, "\"maps\" must be square, with one row per token");
    if (!maps || !heads_ok(f)) return;
    mha_error failed = {0};
    mha_heads *heads = measure(f, maps, count, tokens, &failed);
    const double *want = heads_want(f, "pattern_scores", 2, (int64_t[]){patterns, count});
    double *got = heads_room(f, (patterns + 1) * count, sizeof *got);
    if (got) fill_scores(f, heads, patterns, count, got);
    heads_case(f, "synthetic", "pattern_scores", want, got, patterns * count, HEADS_ROUNDED, &failed);
    want = heads_want(f, "labels", 1, (int64_t[]){count});
    for (int64_t n = 0; got && n < count; n++)
        got[n] = heads_place_of(f->run, heads ? mha_heads_label(heads, 0, n) : MHA_LABEL_MIXED);
    heads_case(f, "synthetic", "labels", want, got, count, HEADS_EXACT, &failed);
    mha_heads_free(heads);
}

void heads_synthetic(heads_run *run)
{
    heads_file f;
    if (heads_open(&f, run, "synthetic-patterns.safetensors")) check_maps(&f);
    heads_close(&f);
}

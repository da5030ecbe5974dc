/* test_circuits_patch.c - laws of activation patching, path patching and knockout in many families: grouped heads,
 * experts, parallel blocks, post-norm blocks, sinks, softcaps and relative positions.
 *
 * Patching all of a layer's input gives the other run to the bit; a part that is equal in both runs, or that cannot
 * reach the measured token, gives the base run to the bit; several batches give the bits of one; and removing all keys
 * is removing the head's output. */
#include "support/check.h"
#include "support/model/model_case.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mha/circuits.h"

enum { T = 7, M = MHA_CIRCUIT_METRICS };

static mha_error err;

static const char *const decoders[] = {"families/gpt2",         "families/llama",     "families/qwen3",
                                       "models/gemma2-tiny",    "families2/gpt-neox", "families2/gpt-neox-parallel",
                                       "families2/mixtral",     "families2/gpt-oss",  "families2/bloom",
                                       "families2/deepseek-v3", "families2/granite",  "families2/cohere",
                                       "families2/olmo2",       "families2/opt",      "heads/tinylm"};
static const char *const encoders[] = {"models/bert-mlm-tiny"};
enum { DECODERS = sizeof decoders / sizeof *decoders, ENCODERS = sizeof encoders / sizeof *encoders };

static mha_prompt_pair *pair_of(const mha_model *model, const int32_t *clean, const int32_t *corrupted, int64_t at)
{
    mha_prompt_pair *pair;
    const mha_prompt_pair_options o = {.size = sizeof o,
                                       .clean = clean,
                                       .corrupted = corrupted,
                                       .length = T,
                                       .answer = 11,
                                       .wrong = 12,
                                       .position = &at};
    if (mha_prompt_pair_create(model, &o, &pair, &err) != MHA_OK) fail_msg("%s", err.message);
    return pair;
}

static const int32_t clean_ids[T] = {9, 14, 21, 17, 30, 25, 19}, corrupted_ids[T] = {9, 14, 33, 17, 30, 25, 19};

static double *room(int64_t count)
{
    return calloc((size_t)count, sizeof(double));
}

static int64_t count_of(const mha_prompt_pair *pair, mha_site site, mha_patch_by by)
{
    int64_t shape[3], count = M;
    const int rank = mha_patch_shape(pair, site, by, shape);
    for (int n = 0; n < rank; n++)
        count *= shape[n];
    return rank ? count : 0;
}

static void metrics_of(const mha_prompt_pair *pair, mha_prompt_run run, double *metrics)
{
    assert_int_equal(mha_prompt_pair_metrics(pair, run, metrics, &err), MHA_OK);
}

static void same(const char *what, const double *got, const double *want)
{
    if (memcmp(got, want, M * sizeof *got) != 0)
        fail_msg("%s: metrics must be %.17g %.17g %.17g (got %.17g %.17g %.17g)", what, want[0], want[1], want[2],
                 got[0], got[1], got[2]);
}

/* ---- patching everything ---- */

static void together(const char *what, const mha_prompt_pair *pair, const mha_patch_part *parts, int64_t count,
                     const double *want)
{
    double got[M];
    if (mha_patch_together(pair, MHA_DENOISE, parts, count, got, &err) != MHA_OK) fail_msg("%s", err.message);
    same(what, got, want);
}

/* Every set of parts that cuts the model in two gives the clean run. */
static void whole_cuts(const char *folder, const mha_prompt_pair *pair, const mha_model_info *info)
{
    double clean[M], corrupted[M];
    metrics_of(pair, MHA_RUN_CLEAN, clean);
    metrics_of(pair, MHA_RUN_CORRUPTED, corrupted);
    assert_true(clean[0] != corrupted[0]);
    together(folder, pair, NULL, 0, corrupted);
    for (int64_t layer = 0; layer < info->layers; layer++) {
        together(folder, pair, &(mha_patch_part){MHA_SITE_RESID_PRE, layer, -1, -1}, 1, clean);
        together(folder, pair, &(mha_patch_part){MHA_SITE_RESID_POST, layer, -1, -1}, 1, clean);
        const mha_patch_part inner[] = {
            {MHA_SITE_RESID_PRE, layer, -1, 2}, {MHA_SITE_RESID_PRE, layer, -1, -1}, {MHA_SITE_Q, layer, -1, -1},
            {MHA_SITE_K, layer, -1, -1},        {MHA_SITE_V, layer, -1, -1},         {MHA_SITE_PATTERN, layer, 0, -1},
            {MHA_SITE_Z, layer, -1, -1},        {MHA_SITE_ATTN_OUT, layer, -1, -1},  {MHA_SITE_MLP_OUT, layer, -1, -1}};
        together(folder, pair, inner, sizeof inner / sizeof *inner, clean);
    }
}

static void patching_everything_gives_the_other_run(void **state)
{
    (void)state;
    for (int n = 0; n < DECODERS + ENCODERS; n++) {
        const char *folder = n < DECODERS ? decoders[n] : encoders[n - DECODERS];
        mha_model *model = case_open(NULL, folder);
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, n < DECODERS ? T - 1 : 4);
        whole_cuts(folder, pair, mha_model_describe(model));
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- parts without an effect ---- */

/* Checks the parts before the token that differs, and in a decoder after the measured one. */
static void check_idle(const char *folder, const mha_prompt_pair *pair, mha_site site, const double *base)
{
    int64_t shape[3];
    const bool heads = mha_patch_shape(pair, site, MHA_BY_HEAD_POSITION, shape) == 3;
    const mha_patch_by by = heads ? MHA_BY_HEAD_POSITION : MHA_BY_POSITION;
    const int64_t all = count_of(pair, site, by);
    double *got = room(all);
    const mha_status status = mha_patch(pair, site, by, MHA_DENOISE, got, &err);
    if (status != MHA_ERR_UNSUPPORTED && status != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; status == MHA_OK && n < all / M; n++) {
        const double one[M] = {got[n], got[all / M + n], got[2 * (all / M) + n]};
        if (n % T < 2 || n % T > mha_prompt_pair_position(pair)) same(folder, one, base);
    }
    free(got);
}

static void equal_parts_change_nothing(void **state)
{
    (void)state;
    for (int n = 0; n < DECODERS; n++) {
        double base[M];
        mha_model *model = case_open(NULL, decoders[n]);
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 2);
        metrics_of(pair, MHA_RUN_CORRUPTED, base);
        for (int site = 0; site < MHA_SITES; site++)
            check_idle(decoders[n], pair, (mha_site)site, base);
        mha_prompt_pair_free(pair);
        pair = pair_of(model, clean_ids, clean_ids, T - 1);
        assert_int_equal(mha_patch_passes(pair, MHA_SITE_Z, MHA_BY_HEAD, MHA_NOISE), 0);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- sweeps and single parts ---- */

/* A sweep runs in batches and skips queries, keys and values where it can; one part at a time must have its bits. */
static void check_sweep(const mha_prompt_pair *pair, mha_site site, mha_patch_direction direction)
{
    int64_t shape[3];
    const int64_t all = count_of(pair, site, MHA_BY_HEAD_POSITION);
    double *got = room(all);
    mha_patch_shape(pair, site, MHA_BY_HEAD_POSITION, shape);
    if (mha_patch(pair, site, MHA_BY_HEAD_POSITION, direction, got, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < all / M; n++) {
        double one[M];
        const mha_patch_part part = {site, n / T / shape[1], n / T % shape[1], n % T};
        const double swept[M] = {got[n], got[all / M + n], got[2 * (all / M) + n]};
        if (mha_patch_together(pair, direction, &part, 1, one, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int m = 0; m < M; m++)
            if (!(fabs(swept[m] - one[m]) <= 1e-5))
                fail_msg("%s: got %g, alone %g", mha_site_name(site), swept[m], one[m]);
        if (site != MHA_SITE_PATTERN) same(mha_site_name(site), swept, one);
    }
    free(got);
}

static void sweeps_equal_single_parts(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny"};
    for (int n = 0; n < 3; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
        for (int site = MHA_SITE_Q; site <= MHA_SITE_PATTERN; site++)
            check_sweep(pair, (mha_site)site, n % 2 ? MHA_NOISE : MHA_DENOISE);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- attribution ---- */

/* The sum over heads of attr(z) is attr(attn_out), and the sum over tokens at resid_pre of IG tends to the difference
 * of both runs. */
static void attributions_add_up(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny",
                                          "families2/mixtral", "families2/gpt-oss"};
    for (int n = 0; n < 5; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const mha_model_info *info = mha_model_describe(model);
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
        double *z = room(count_of(pair, MHA_SITE_Z, MHA_BY_HEAD_POSITION));
        double *out = room(count_of(pair, MHA_SITE_ATTN_OUT, MHA_BY_POSITION));
        if (mha_attribution(pair, MHA_ESTIMATE_ATTR, MHA_SITE_Z, MHA_BY_HEAD_POSITION, MHA_DENOISE, z, &err) ||
            mha_attribution(pair, MHA_ESTIMATE_ATTR, MHA_SITE_ATTN_OUT, MHA_BY_POSITION, MHA_DENOISE, out, &err))
            fail_msg("%s: %s", folders[n], err.message);
        for (int64_t r = 0; r < M * info->layers; r++)
            for (int64_t t = 0; t < T; t++) {
                double sum = 0;
                for (int64_t h = 0; h < info->heads; h++)
                    sum += z[(r * info->heads + h) * T + t];
                if (!(fabs(sum - out[r * T + t]) <= 2e-5 * (1 + fabs(sum))))
                    fail_msg("%s: attr of attn_out must be %g (got %g)", folders[n], sum, out[r * T + t]);
            }
        free(z);
        free(out);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- knockout ---- */

static void removing_all_keys_removes_the_head(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "models/gemma2-tiny",
                                          "families2/gpt-oss", "families2/bloom"};
    for (int n = 0; n < 5; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const mha_model_info *info = mha_model_describe(model);
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
        const mha_attention_edge head = {info->layers - 1, 1, -1, -1};
        float *gates = malloc((size_t)(info->layers * info->heads) * sizeof *gates);
        float *logits = malloc((size_t)(T * info->vocab) * sizeof *logits);
        for (int64_t h = 0; h < info->layers * info->heads; h++)
            gates[h] = h != head.layer * info->heads + head.head;
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = clean_ids, .gates = gates};
        const mha_model_output out = {.size = sizeof out, .logits = logits};
        assert_int_equal(mha_model_forward(model, &in, &out, &err), MHA_OK);
        const float *last = logits + (T - 1) * info->vocab;
        for (int mode = 0; mode < 2; mode++) {
            double got[M];
            if (mha_knockout(pair, MHA_RUN_CLEAN, (mha_knockout_mode)mode, &head, 1, got, &err) != MHA_OK)
                fail_msg("%s", err.message);
            if (!(fabs(got[0] - ((double)last[11] - (double)last[12])) <= 1e-5))
                fail_msg("%s: mode %d: got %g", folders[n], mode, got[0]);
        }
        free(gates);
        free(logits);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* Keys that the causal mask excludes have no weight, so that removing them gives the metrics of the run to the bit. */
static void removing_masked_keys_changes_nothing(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "heads/tinylm");
    mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
    const mha_attention_edge edge = {-1, -1, 1, 3};
    double clean[M];
    assert_int_equal(mha_prompt_pair_metrics(pair, MHA_RUN_CLEAN, clean, &err), MHA_OK);
    for (int mode = 0; mode < 2; mode++) {
        double got[M];
        assert_int_equal(mha_knockout(pair, MHA_RUN_CLEAN, (mha_knockout_mode)mode, &edge, 1, got, &err), MHA_OK);
        assert_memory_equal(got, clean, sizeof got);
    }
    mha_prompt_pair_free(pair);
    mha_model_free(model);
}

/* The difference of two logits of mha_knockout_forward is bitwise identical to the metric of mha_knockout in mode
 * renorm. Without edges, all logits are bitwise identical to those of mha_model_forward. */
static void a_pass_without_edges_equals_the_knockout(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "families2/gpt-oss"};
    static const mha_attention_edge edges[] = {{-1, -1, T - 1, 2}, {0, 1, -1, 1}, {1, 0, T - 1, -1}};
    for (int n = 0; n < 3; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const int64_t vocab = mha_model_describe(model)->vocab;
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
        float *logits = malloc((size_t)(2 * T * vocab) * sizeof *logits), *last = logits + (T - 1) * vocab;
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = clean_ids};
        const mha_model_output out = {.size = sizeof out, .logits = logits},
                               plain = {.size = sizeof plain, .logits = logits + T * vocab};
        double got[M];
        assert_int_equal(mha_knockout_forward(model, &in, &out, edges, 3, &err), MHA_OK);
        assert_int_equal(mha_knockout(pair, MHA_RUN_CLEAN, MHA_KNOCKOUT_RENORM, edges, 3, got, &err), MHA_OK);
        assert_true(got[0] == (double)last[11] - (double)last[12]);
        assert_int_equal(mha_knockout_forward(model, &in, &out, edges, 0, &err), MHA_OK);
        assert_int_equal(mha_model_forward(model, &in, &plain, &err), MHA_OK);
        assert_memory_equal(logits, logits + T * vocab, (size_t)(T * vocab) * sizeof *logits);
        free(logits);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* Masked tokens stay masked: a batch with padding at the start or the end gives the logits of each sequence alone, with
 * the same edges removed. */
static void removed_edges_keep_the_mask_of_the_batch(void **state)
{
    (void)state;
    enum { PAD = 2, L = T + PAD };
    static const char *const folders[] = {"heads/tinylm", "models/bert-mlm-tiny", "families/llama"};
    for (int n = 0; n < 6; n++) {
        const int first = n < 3 ? PAD : 0; /* of the second sequence */
        mha_model *model = case_open(NULL, folders[n % 3]);
        const int64_t vocab = mha_model_describe(model)->vocab;
        int32_t ids[2 * L], positions[2 * L];
        uint8_t mask[2 * L];
        for (int i = 0; i < 2 * L; i++) {
            const int at = i % L - (i < L ? 0 : first);
            mask[i] = i < L || (at >= 0 && at < T);
            ids[i] = i < L ? corrupted_ids[i % T] : mask[i] ? clean_ids[at] : 7;
            positions[i] = mask[i] ? at : 0;
        }
        float *logits = malloc((size_t)((2 * L + T) * vocab) * sizeof *logits), *alone = logits + 2 * L * vocab;
        const mha_attention_edge edges[] = {{0, -1, first + 4, first + 1}, {0, 0, first + 5, -1}},
                                 same[] = {{0, -1, 4, 1}, {0, 0, 5, -1}};
        const mha_model_input in = {.size = sizeof in,
                                    .batch = 2,
                                    .length = L,
                                    .ids = ids,
                                    .mask = mask,
                                    .positions = positions},
                              one = {.size = sizeof one, .batch = 1, .length = T, .ids = clean_ids};
        const mha_model_output out = {.size = sizeof out, .logits = logits},
                               of_one = {.size = sizeof of_one, .logits = alone};
        if (mha_knockout_forward(model, &in, &out, edges, 2, &err) != MHA_OK) fail_msg("%s", err.message);
        if (mha_knockout_forward(model, &one, &of_one, same, 2, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t i = 0; i < T * vocab; i++)
            if (!(fabsf(logits[(L + first) * vocab + i] - alone[i]) < 1e-4F))
                fail_msg("%s, padding before token %d: logit %d must be %g (got %g)", folders[n % 3], first, (int)i,
                         (double)alone[i], (double)logits[(L + first) * vocab + i]);
        free(logits);
        mha_model_free(model);
    }
}

/* A model without logits of tokens has knockouts: without any key, a head writes nothing, as with a gate of 0. */
static void knockouts_do_not_require_logits(void **state)
{
    (void)state;
    static const char *const folders[] = {"models/bert-tiny", "families2/electra-discriminator"};
    static const mha_attention_edge edge = {0, 1, -1, -1};
    for (int n = 0; n < 2; n++) {
        mha_model *model = case_open(NULL, folders[n]);
        const mha_model_info *info = mha_model_describe(model);
        const int64_t count = T * info->hidden, heads = info->layers * info->heads;
        float *got = malloc((size_t)(2 * count + heads) * sizeof *got), *want = got + count, *gates = want + count;
        for (int64_t h = 0; h < heads; h++)
            gates[h] = h != 1;
        const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = clean_ids},
                              gated = {.size = sizeof in, .batch = 1, .length = T, .ids = clean_ids, .gates = gates};
        const mha_model_output out = {.size = sizeof out, .last_hidden = got},
                               plain = {.size = sizeof plain, .last_hidden = want};
        if (mha_knockout_forward(model, &in, &out, &edge, 1, &err) != MHA_OK) fail_msg("%s", err.message);
        assert_int_equal(mha_model_forward(model, &gated, &plain, &err), MHA_OK);
        for (int64_t i = 0; i < count; i++)
            assert_true(fabsf(got[i] - want[i]) < 1e-5F);
        free(got);
        mha_model_free(model);
    }
}

/* ---- path patching ---- */

/* A layer without a norm before its attention (OLMo 2) has direct paths: only the sender's write passes a norm. */
static void paths_do_not_require_a_norm_before_attention(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "families2/olmo2");
    const mha_model_info *info = mha_model_describe(model);
    const int64_t senders = info->layers * info->heads;
    mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
    double *out = calloc((size_t)(M * senders * senders), sizeof *out), base[M], most = 0;
    assert_int_equal(mha_prompt_pair_metrics(pair, MHA_RUN_CORRUPTED, base, &err), MHA_OK);
    if (mha_path_patch(pair, MHA_PATH_Q, MHA_DENOISE, out, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < senders * senders; n++) {
        const bool later = n % senders / info->heads > n / senders / info->heads;
        most = fmax(most, fabs(out[n] - base[0]));
        if (!later) assert_true(out[n] == base[0]);
    }
    assert_true(most > 0);
    free(out);
    mha_prompt_pair_free(pair);
    mha_model_free(model);
}

/* Returns the index of an edge. */
static int64_t edge_at(const mha_path_edge *edges, int64_t count, mha_path_edge want)
{
    for (int64_t n = 0; n < count; n++)
        if (memcmp(&edges[n], &want, sizeof want) == 0) return n;
    fail_msg("no edge from %d %d.%d to %d %d.%d", (int)want.from, (int)want.from_layer, (int)want.from_head,
             (int)want.to, (int)want.to_layer, (int)want.to_head);
    return -1;
}

/* Edges between heads, and from heads to the logits, are bitwise identical to those of mha_path_patch. */
static void check_head_edges(const char *folder, const mha_prompt_pair *pair, const mha_model_info *info,
                             const mha_path_edge *edges, const double *got, int64_t count)
{
    for (int to = MHA_PATH_Q; to <= MHA_PATH_LOGITS; to++) {
        const int64_t senders = info->layers * info->heads;
        const int64_t heads = to == MHA_PATH_Q ? info->heads : info->kv_heads;
        const int64_t columns = to == MHA_PATH_LOGITS ? 1 : info->layers * heads;
        double *want = room(M * senders * columns);
        if (mha_path_patch(pair, (mha_path_receiver)to, MHA_DENOISE, want, &err) != MHA_OK) fail_msg("%s", err.message);
        for (int64_t n = 0; n < count; n++) {
            const mha_path_edge *e = &edges[n];
            if (e->from != MHA_PATH_FROM_HEAD || (int)e->to != to) continue;
            const int64_t row = e->from_layer * info->heads + e->from_head;
            const int64_t column = to == MHA_PATH_LOGITS ? 0 : e->to_layer * heads + e->to_head;
            for (int m = 0; m < M; m++)
                if (got[m * count + n] != want[(m * senders + row) * columns + column])
                    fail_msg("%s: edge %d must be that of mha_path_patch", folder, (int)n);
        }
        free(want);
    }
}

/* Compares an edge with the patch of a part. */
static void check_edge(const char *folder, const mha_prompt_pair *pair, const mha_path_edge *edges, const double *got,
                       int64_t count, mha_path_edge edge, mha_patch_part part)
{
    double want[M];
    const int64_t n = edge_at(edges, count, edge);
    if (mha_patch_together(pair, MHA_DENOISE, &part, 1, want, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int m = 0; m < M; m++)
        if (!(fabs(got[m * count + n] - want[m]) <= 2e-5))
            fail_msg("%s: edge %d must be %g (got %g)", folder, (int)n, want[m], got[m * count + n]);
}

/* All of a receiver's input from one sender is patching the receiver, and all of a sender's output to the logits is
 * patching the sender: the q of layer 0, the feed-forward output of layer 0 in a parallel block, and the feed-forward
 * output of the last layer. */
static void edges_extend_paths_and_patches(void **state)
{
    (void)state;
    static const char *const folders[] = {"heads/tinylm", "families/gpt2", "families2/gpt-neox-parallel",
                                          "families2/mixtral", "models/gemma2-tiny"};
    for (int f = 0; f < 5; f++) {
        mha_model *model = case_open(NULL, folders[f]);
        const mha_model_info *info = mha_model_describe(model);
        mha_prompt_pair *pair = pair_of(model, clean_ids, corrupted_ids, T - 1);
        const int64_t count = mha_path_edge_count(pair), last = info->layers - 1;
        mha_path_edge *edges = malloc((size_t)count * sizeof *edges);
        double *got = room(M * count);
        if (mha_path_edges(pair, MHA_DENOISE, edges, got, &err) != MHA_OK) fail_msg("%s", err.message);
        check_head_edges(folders[f], pair, info, edges, got, count);
        check_edge(folders[f], pair, edges, got, count,
                   (mha_path_edge){MHA_PATH_FROM_EMBEDDING, MHA_PATH_Q, -1, -1, 0, 1},
                   (mha_patch_part){MHA_SITE_Q, 0, 1, -1});
        if (f == 2)
            check_edge(folders[f], pair, edges, got, count,
                       (mha_path_edge){MHA_PATH_FROM_EMBEDDING, MHA_PATH_MLP, -1, -1, 0, -1},
                       (mha_patch_part){MHA_SITE_MLP_OUT, 0, -1, -1});
        if (f != 4) /* the norm after the feed-forward of Gemma 2 keeps its scale */
            check_edge(folders[f], pair, edges, got, count,
                       (mha_path_edge){MHA_PATH_FROM_MLP, MHA_PATH_LOGITS, last, -1, -1, -1},
                       (mha_patch_part){MHA_SITE_MLP_OUT, last, -1, -1});
        free(got);
        free(edges);
        mha_prompt_pair_free(pair);
        mha_model_free(model);
    }
}

/* ---- refusals ---- */

static void check_refused(mha_status got, mha_status want, const char *word)
{
    if (got != want || !strstr(err.message, word))
        fail_msg("must fail with %d and name \"%s\" (got %d: %s)", (int)want, word, (int)got, err.message);
}

static void refusals_name_the_reason(void **state)
{
    (void)state;
    double out[4096];
    const int32_t beyond[T] = {1 << 30};
    mha_prompt_pair *pair;
    mha_model *bert = case_open(NULL, "models/bert-mlm-tiny"), *plain = case_open(NULL, "models/bert-tiny");
    mha_model *parallel = case_open(NULL, "families2/gpt-neox-parallel");
    mha_prompt_pair_options o = {.size = sizeof o, .clean = clean_ids, .corrupted = beyond, .length = T};
    check_refused(mha_prompt_pair_create(bert, &o, &pair, &err), MHA_ERR_ARG, "corrupted[0]");
    o.corrupted = clean_ids;
    o.length = (int64_t)1 << 40; /* must be refused before any id is read */
    check_refused(mha_prompt_pair_create(bert, &o, &pair, &err), MHA_ERR_ARG, "length must be from 1 to");
    o.length = T;
    check_refused(mha_prompt_pair_create(plain, &o, &pair, &err), MHA_ERR_UNSUPPORTED, "logits");
    o.answer = -1;
    check_refused(mha_prompt_pair_create(bert, &o, &pair, &err), MHA_ERR_ARG, "answer");
    pair = pair_of(bert, clean_ids, corrupted_ids, 0);
    check_refused(mha_path_patch(pair, MHA_PATH_Q, MHA_DENOISE, out, &err), MHA_ERR_UNSUPPORTED, "post-norm");
    mha_path_edge edges[1];
    check_refused(mha_path_edges(pair, MHA_DENOISE, edges, out, &err), MHA_ERR_UNSUPPORTED, "post-norm");
    check_refused(mha_path_edges(pair, MHA_DENOISE, NULL, out, &err), MHA_ERR_ARG, "edges must not be NULL");
    check_refused(mha_path_patch(pair, MHA_PATH_MLP, MHA_DENOISE, out, &err), MHA_ERR_ARG, "MHA_PATH_Q");
    check_refused(mha_patch(pair, MHA_SITE_Z, MHA_BY_POSITION, MHA_DENOISE, out, &err), MHA_ERR_ARG, "MHA_BY_HEAD");
    const mha_patch_part part = {MHA_SITE_K, 0, 99, 0};
    check_refused(mha_patch_together(pair, MHA_NOISE, &part, 1, out, &err), MHA_ERR_ARG, "head must be");
    const mha_attention_edge edge = {0, 0, T, 0};
    const int64_t starts[] = {0, T};
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = clean_ids},
                          packed = {.size = sizeof in, .batch = 1, .length = T, .ids = clean_ids, .starts = starts};
    check_refused(mha_knockout_forward(bert, &in, NULL, &edge, 1, &err), MHA_ERR_ARG, "query must be from -1 to 6");
    check_refused(mha_knockout_forward(bert, &packed, NULL, &edge, 1, &err), MHA_ERR_ARG, "starts must be NULL");
    const mha_model_input huge = {.size = sizeof in, .batch = 1, .length = INT64_MAX, .ids = clean_ids};
    check_refused(mha_knockout_forward(bert, &huge, NULL, &edge, 1, &err), MHA_ERR_ARG, "length must be");
    mha_prompt_pair_free(pair);
    pair = pair_of(parallel, clean_ids, corrupted_ids, T - 1);
    check_refused(mha_patch(pair, MHA_SITE_RESID_MID, MHA_BY_POSITION, MHA_DENOISE, out, &err), MHA_ERR_UNSUPPORTED,
                  "resid_mid");
    mha_prompt_pair_free(pair);
    assert_true(isnan(mha_patch_normalized(1, 2, 2.0005)));
    mha_model_free(parallel);
    mha_model_free(plain);
    mha_model_free(bert);
}

/* The message about a model in another type must name its type. */
static void a_bf16_model_is_refused_by_type(void **state)
{
    (void)state;
    const mha_model_options bf16 = {.size = sizeof bf16, .no_tokenizer = 1, .dtype = MHA_BF16};
    const mha_prompt_pair_options o = {.size = sizeof o, .clean = clean_ids, .corrupted = clean_ids, .length = T};
    mha_prompt_pair *pair;
    mha_model *model = case_model(NULL, "families/llama", &bf16);
    check_refused(mha_prompt_pair_create(model, &o, &pair, &err), MHA_ERR_UNSUPPORTED, "opened in f32 (got bf16)");
    mha_model_free(model);
}

/* The divergence must be that of the formula. It is infinite if Q is 0 where P is not. */
static void divergences_of_logits(void **state)
{
    (void)state;
    const float p[] = {0, 1, -2}, q[] = {5, 5, 5}, far[] = {1000, 0, -1000}, none[] = {0, 1, -INFINITY};
    double sum = 0, want = 0;
    for (int v = 0; v < 3; v++)
        sum += exp((double)p[v]);
    for (int v = 0; v < 3; v++)
        want += exp((double)p[v]) / sum * log(exp((double)p[v]) / sum * 3);
    assert_true(fabs(mha_kl_divergence(p, q, 3) - want) < 1e-12);
    assert_true(mha_kl_divergence(p, p, 3) == 0 && mha_kl_divergence(far, far, 3) == 0);
    assert_true(fabs(mha_kl_divergence(far, q, 3) - log(3)) < 1e-12);
    assert_true(fabs(mha_kl_divergence(none, p, 3) - log(sum / (1 + exp(1)))) < 1e-12);
    assert_true(isinf(mha_kl_divergence(p, none, 3)));
    const float wrong[] = {0, NAN, 1}, empty[] = {-INFINITY, -INFINITY, -INFINITY};
    assert_true(isnan(mha_kl_divergence(wrong, p, 3)) && isnan(mha_kl_divergence(p, wrong, 3)));
    assert_true(isnan(mha_kl_divergence(empty, p, 3)) && isnan(mha_kl_divergence(p, empty, 3)));
    assert_true(isnan(mha_kl_divergence(NULL, p, 3)) && isnan(mha_kl_divergence(p, p, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patching_everything_gives_the_other_run),
        cmocka_unit_test(equal_parts_change_nothing),
        cmocka_unit_test(sweeps_equal_single_parts),
        cmocka_unit_test(attributions_add_up),
        cmocka_unit_test(removing_all_keys_removes_the_head),
        cmocka_unit_test(removing_masked_keys_changes_nothing),
        cmocka_unit_test(a_pass_without_edges_equals_the_knockout),
        cmocka_unit_test(removed_edges_keep_the_mask_of_the_batch),
        cmocka_unit_test(knockouts_do_not_require_logits),
        cmocka_unit_test(paths_do_not_require_a_norm_before_attention),
        cmocka_unit_test(edges_extend_paths_and_patches),
        cmocka_unit_test(refusals_name_the_reason),
        cmocka_unit_test(a_bf16_model_is_refused_by_type),
        cmocka_unit_test(divergences_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

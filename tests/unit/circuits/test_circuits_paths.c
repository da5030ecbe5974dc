/* test_circuits_paths.c - laws of path patching, errors of all interventions, and the divergence of logits. */
#include "support/check.h"
#include "support/circuits/prompt_pair_case.h"
#include "support/model/model_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static mha_error err;

/* ---- path patching ---- */

/* A layer without a norm before its attention (OLMo 2) has direct paths: only the sender's write passes a norm. */
static void paths_do_not_require_a_norm_before_attention(void **state)
{
    (void)state;
    mha_model *model = case_open(NULL, "families2/olmo2");
    const mha_model_info *info = mha_model_describe(model);
    const int64_t senders = info->layers * info->heads;
    mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
    double *out = calloc((size_t)(M * senders * senders), sizeof *out), base[M], max = 0;
    assert_int_equal(mha_prompt_pair_metrics(pair, MHA_RUN_CORRUPTED, base, &err), MHA_OK);
    if (mha_path_patch(pair, MHA_PATH_Q, MHA_DENOISE, out, &err) != MHA_OK) fail_msg("%s", err.message);
    for (int64_t n = 0; n < senders * senders; n++) {
        const bool later = n % senders / info->heads > n / senders / info->heads;
        max = fmax(max, fabs(out[n] - base[0]));
        if (!later) assert_true(out[n] == base[0]);
    }
    assert_true(max > 0);
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
        double *want = prompt_pair_room(M * senders * columns);
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
        mha_prompt_pair *pair = prompt_pair_of(model, prompt_pair_clean, prompt_pair_corrupted, T - 1);
        const int64_t count = mha_path_edge_count(pair), last = info->layers - 1;
        mha_path_edge *edges = malloc((size_t)count * sizeof *edges);
        double *got = prompt_pair_room(M * count);
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

/* ---- errors ---- */

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
    mha_prompt_pair_options o = {.size = sizeof o, .clean = prompt_pair_clean, .corrupted = beyond, .length = T};
    check_refused(mha_prompt_pair_create(bert, &o, &pair, &err), MHA_ERR_ARG, "corrupted[0]");
    o.corrupted = prompt_pair_clean;
    o.length = (int64_t)1 << 40; /* must be refused before any id is read */
    check_refused(mha_prompt_pair_create(bert, &o, &pair, &err), MHA_ERR_ARG, "length must be from 1 to");
    o.length = T;
    check_refused(mha_prompt_pair_create(plain, &o, &pair, &err), MHA_ERR_UNSUPPORTED, "logits");
    o.answer = -1;
    check_refused(mha_prompt_pair_create(bert, &o, &pair, &err), MHA_ERR_ARG, "answer");
    pair = prompt_pair_of(bert, prompt_pair_clean, prompt_pair_corrupted, 0);
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
    const mha_model_input in = {.size = sizeof in, .batch = 1, .length = T, .ids = prompt_pair_clean},
                          packed = {
                              .size = sizeof in, .batch = 1, .length = T, .ids = prompt_pair_clean, .starts = starts};
    check_refused(mha_knockout_forward(bert, &in, NULL, &edge, 1, &err), MHA_ERR_ARG, "query must be from -1 to 6");
    check_refused(mha_knockout_forward(bert, &packed, NULL, &edge, 1, &err), MHA_ERR_ARG, "starts must be NULL");
    const mha_model_input huge = {.size = sizeof in, .batch = 1, .length = INT64_MAX, .ids = prompt_pair_clean};
    check_refused(mha_knockout_forward(bert, &huge, NULL, &edge, 1, &err), MHA_ERR_ARG, "length must be");
    mha_prompt_pair_free(pair);
    pair = prompt_pair_of(parallel, prompt_pair_clean, prompt_pair_corrupted, T - 1);
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
    const mha_prompt_pair_options o = {
        .size = sizeof o, .clean = prompt_pair_clean, .corrupted = prompt_pair_clean, .length = T};
    mha_prompt_pair *pair;
    mha_model *model = case_model(NULL, "families/llama", &bf16);
    check_refused(mha_prompt_pair_create(model, &o, &pair, &err), MHA_ERR_UNSUPPORTED, "opened in f32 (got bf16)");
    mha_model_free(model);
}

/* ---- divergence of logits ---- */

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
        cmocka_unit_test(paths_do_not_require_a_norm_before_attention),
        cmocka_unit_test(edges_extend_paths_and_patches),
        cmocka_unit_test(refusals_name_the_reason),
        cmocka_unit_test(a_bf16_model_is_refused_by_type),
        cmocka_unit_test(divergences_of_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_diversity_minilm.c - how much alike the heads of all-MiniLM-L6-v2 are on 24 sentences, their map and clusters,
 * and rollouts, against reference values (float64, PyTorch and scipy). Needs the real weights, as test_heads_minilm.c.
 * Limits: abs_tolerance of the reference's index.json, ten times a float32 run's error. */
#include "support/check.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "mha/diversity.h"
#include "support/model/model_case.h"

enum { LAYERS = 6, HEADS = 12, TOTAL = LAYERS * HEADS, TEXTS = 24 };

static mha_model *model;
static mha_head_data *data;
static mha_diversity *diversity;
static mha_file *golden;

static void check_near(const char *what, double worst, double limit)
{
    printf("%-22s worst %.2e of %.2e\n", what, worst, limit);
    if (!(worst <= limit)) fail_msg("%s: error %.3g, limit %.3g", what, worst, limit);
}

/* A NAN stays. */
static double worse(double worst, double got, float want)
{
    const double difference = fabs(got - (double)want);
    return difference <= worst ? worst : difference;
}

static double of_layers(mha_diversity_kind what, const float *want)
{
    double worst = 0;
    for (int n = 0; n < LAYERS * HEADS * HEADS; n++) {
        const int layer = n / HEADS / HEADS, a = n / HEADS % HEADS, b = n % HEADS;
        worst = worse(worst, mha_diversity_value(diversity, what, layer, a, layer, b), want[n]);
    }
    return worst;
}

static double of_all(mha_diversity_kind what, const float *want)
{
    double worst = 0;
    for (int n = 0; n < TOTAL * TOTAL; n++) {
        const int a = n / TOTAL, b = n % TOTAL;
        const double got = mha_diversity_value(diversity, what, a / HEADS, a % HEADS, b / HEADS, b % HEADS);
        worst = worse(worst, got, want[n]);
    }
    return worst;
}

static void values(void **state)
{
    (void)state;
    static const struct {
        mha_diversity_kind what;
        double (*compare)(mha_diversity_kind what, const float *want);
        double limit;
    } cases[] = {{MHA_DIVERSITY_COSINE, of_layers, 5.4e-6}, {MHA_DIVERSITY_COSINE_CENTRED, of_layers, 6e-6},
                 {MHA_DIVERSITY_JS, of_all, 9.7e-7},        {MHA_DIVERSITY_JS_CLARK, of_all, 3e-4},
                 {MHA_DIVERSITY_CKA, of_layers, 3.5e-6},    {MHA_DIVERSITY_SUBSPACE, of_layers, 1.8e-6}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float *want = case_floats(golden, mha_diversity_key(cases[c].what));
        check_near(mha_diversity_key(cases[c].what), cases[c].compare(cases[c].what, want), cases[c].limit);
        free(want);
    }
}

static void map_and_clusters(void **state)
{
    (void)state;
    float *xy = case_floats(golden, "map_xy"), *eigenvalues = case_floats(golden, "map_eigenvalues");
    float *height = case_floats(golden, "cluster_merge_height"), *ids = case_floats(golden, "cluster_merge_ids");
    const mha_head_merge *merges = mha_diversity_merges(diversity);
    double far = 0, worst = 0, high = 0;
    for (int n = 0; n < 2 * TOTAL; n++)
        far = worse(far, mha_diversity_map(diversity)[n], xy[n]);
    for (int n = 0; n < 2; n++)
        worst = worse(worst, mha_diversity_eigenvalues(diversity)[n], eigenvalues[n]);
    for (int n = 0; n < TOTAL - 1; n++) {
        high = worse(high, merges[n].height, height[n]);
        assert_int_equal(merges[n].a, (int64_t)ids[2 * n]);
        assert_int_equal(merges[n].b, (int64_t)ids[2 * n + 1]);
    }
    assert_int_equal(merges[TOTAL - 2].size, TOTAL);
    check_near("map_xy", far, 1e-6);
    check_near("map_eigenvalues", worst, 2.1e-6);
    check_near("cluster_merge_height", high, 8.9e-7);
    free(xy);
    free(eigenvalues);
    free(height);
    free(ids);
}

static void rollouts(void **state)
{
    (void)state;
    static const struct {
        int text, tokens;
        double limit;
    } cases[] = {{0, 8, 1.3e-6}, {14, 19, 1.1e-6}};
    mha_file *maps = case_file("heads/minilm-attention.safetensors");
    for (int c = 0; c < 2; c++) {
        char name[20];
        const int n = cases[c].tokens;
        mha_error err = {0};
        float *got = malloc((size_t)(n * n) * sizeof *got);
        assert_non_null(got);
        snprintf(name, sizeof name, "rollout_%d", cases[c].text);
        float *want = case_floats(maps, name);
        if (mha_head_rollout(model, data, cases[c].text, got, &err) != MHA_OK) fail_msg("%s", err.message);
        double worst = 0;
        for (int i = 0; i < n * n; i++)
            worst = worse(worst, (double)got[i], want[i]);
        check_near(name, worst, cases[c].limit);
        free(got);
        free(want);
    }
    mha_file_free(maps);
}

/* Facts of the reference: the cosine says that layer 4 is one head, its outputs do not. */
static void cosine_overstates_likeness(void **state)
{
    (void)state;
    const double cosine = 1 - mha_diversity_layer(diversity, MHA_DIVERSITY_COSINE, 4);
    const double cka = 1 - mha_diversity_layer(diversity, MHA_DIVERSITY_CKA, 4);
    assert_true(fabs(cosine - 0.84) < 0.005);
    assert_true(fabs(cka - 0.37) < 0.005);
    for (int layer = 0; layer < LAYERS; layer++)
        printf("layer %d: unique %.3f, js %.3f\n", layer, mha_diversity_layer(diversity, MHA_DIVERSITY_UNIQUE, layer),
               mha_diversity_layer(diversity, MHA_DIVERSITY_JS, layer));
}

static int set_up(void **state)
{
    mha_error err = {0};
    const char *texts[TEXTS];
    json_t *sentences = json_load_file(MHA_TEST_DATA "/heads/sentences.json", 0, NULL);
    *state = sentences;
    for (int i = 0; i < TEXTS; i++)
        texts[i] = json_string_value(json_array_get(json_object_get(sentences, i < 12 ? "a" : "b"), (size_t)i % 12));
    if (mha_model_open(NULL, case_minilm(), NULL, &model, &err) != MHA_OK ||
        mha_head_data_of_texts(model, texts, TEXTS, NULL, &data, &err) != MHA_OK ||
        mha_diversity_measure(model, data, NULL, &diversity, &err) != MHA_OK ||
        mha_file_open(NULL, MHA_TEST_DATA "/heads/minilm-diversity.safetensors", NULL, &golden, &err) != MHA_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    return 0;
}

static int tear_down(void **state)
{
    json_decref(*state);
    mha_file_free(golden);
    mha_diversity_free(diversity);
    mha_head_data_free(data);
    mha_model_free(model);
    return 0;
}

int main(void)
{
    if (!case_minilm()) {
        printf("skipped: no all-MiniLM-L6-v2 in $MHA_MINILM or the cache folder; ./run fetch minilm gets it\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(values), cmocka_unit_test(map_and_clusters),
                                       cmocka_unit_test(rollouts), cmocka_unit_test(cosine_overstates_likeness)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}

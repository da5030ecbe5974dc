/* test_heads_hosts.c - tests host plans: compares their figures with values calculated by hand from the alpha-beta
 * model of communication costs, and checks properties of random plans. */
#include "heads/plan/host_cost.h"
#include "support/check.h"
#include "support/model/host_case.h"
#include <math.h>

/* A model with 70 billion parameters and grouped-query attention. All its matrices belong to layers. */
static const mha_host_model large = {.size = sizeof large,
                                     .layers = 80,
                                     .hidden = 8192,
                                     .heads = 64,
                                     .kv_heads = 8,
                                     .head_dim = 128,
                                     .layer_weights = 70000000000};
static void near(double value, double wanted, double tolerance)
{
    if (!(fabs(value - wanted) <= tolerance)) fail_msg("must be %g +- %g (got %g)", wanted, tolerance, value);
}

/* ---- figures calculated by hand ---- */

/* Generation of one token with a 70B model in bf16 on hosts that read 200 GB/s. Compares the tokens per second and the
 * percentage of time spent on messages with values calculated by hand. */
static void test_decode(void **state)
{
    (void)state;
    static const struct {
        int64_t hosts;
        double want[4][2];
    } rows[] = {{2, {{2.5, 13}, {2.8, 3}, {2.8, 1}, {2.9, 0}}},
                {4, {{3.6, 36}, {5.2, 10}, {5.5, 3}, {5.7, 1}}},
                {8, {{4.7, 59}, {8.7, 24}, {10.4, 9}, {11.1, 3}}},
                {16, {{5.2, 77}, {12.3, 46}, {18.1, 21}, {21.4, 6}}},
                {64, {{5.1, 94}, {14.9, 84}, {35.5, 61}, {64.6, 29}}}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int n = 0; n < 4; n++) {
            mha_host_options o = OPTIONS(.hosts = 64, .job = MHA_HOSTS_GENERATE, .seq = 1, .dtype = MHA_BF16, FAST);
            o.network = host_network(mha_host_network_key(n));
            const mha_host_layout row = host_layout(&large, &o, rows[i].hosts, 1, 1);
            near(row.tokens_per_second, rows[i].want[n][0], 0.0501);
            near(100 * row.exposed / row.seconds, rows[i].want[n][1], 0.501);
            near(row.weights, 140e9 / (double)rows[i].hosts, 1);
            assert_true((row.refused != NULL) == (rows[i].hosts > 8));
        }
}

/* The minimum number of tokens per host at which computation hides the ring messages must equal values calculated by
 * hand, for 1, 4 and 8 query heads per key head and elements of two bytes. */
static void test_hiding(void **state)
{
    (void)state;
    static const struct {
        double flops, want[3][3];
    } rows[] = {{2e12, {{3478, 870, 435}, {364, 91, 45}, {83, 21, 10}}},
                {8e12, {{13913, 3478, 1739}, {1455, 364, 182}, {333, 83, 42}}},
                {40e12, {{69565, 17391, 8696}, {7273, 1818, 909}, {1667, 417, 208}}}};
    static const char *const names[] = {"10gbe", "100gbe", "ib400"};
    static const int64_t groups[] = {1, 4, 8};
    for (int i = 0; i < 9; i++)
        for (int g = 0; g < 3; g++) {
            mha_host_model model = host_medium;
            model.kv_heads = 32 / groups[g];
            mha_host_options o = OPTIONS(.hosts = 4, .job = MHA_HOSTS_SCORE, .seq = 8192, .dtype = MHA_BF16, FAST);
            o.speed.flops = rows[i / 3].flops;
            o.network = host_network(names[i % 3]);
            mha_host_layout list[MHA_HOST_LAYOUTS];
            mha_host_choice choice;
            assert_int_equal(mha_host_layouts(&model, &o, list, &choice, NULL), MHA_OK);
            near(choice.hiding_tokens, rows[i / 3].want[i % 3][g], 0.501);
        }
}

/* The time [s] of a pass over 2^20 tokens at 8 Tflop/s must equal values calculated by hand. The computation must hide
 * all messages. */
static void test_prefill(void **state)
{
    (void)state;
    static const int64_t hosts[] = {1, 64, 256};
    static const double seconds[] = {38126, 596, 149};
    for (int i = 0; i < 3; i++) {
        mha_host_options o = OPTIONS(.hosts = 256, .job = MHA_HOSTS_SCORE, .seq = 1 << 20, .dtype = MHA_BF16, FAST);
        o.speed.flops = 8e12;
        o.network = host_network("100gbe");
        const mha_host_layout row = host_layout(&host_medium, &o, 1, hosts[i], 1);
        near(row.seconds, seconds[i], 0.501);
        assert_true(row.exposed == 0 && (row.hidden > 0) == (hosts[i] > 1) && row.hidden < row.compute);
        near(row.tokens_per_second, (1 << 20) / row.seconds, 1e-6);
        const double n = (1 << 20) / (double)hosts[i], key = 8 * 128;
        const double step = 15e-6 + 2 * n * key * 2 / 11e9; /* seconds per ring step, with keys in bf16 */
        near(row.hidden, 32 * (double)(hosts[i] - 1) * step, 1e-6);
        near(row.weights, 16e9, 1);
        if (hosts[i] == 1) near(row.activations, 4 * (64 * (4 * 4096 + 2 * key) + 64 * (4 * 4096 + 4096)), 1);
        if (hosts[i] > 1) near(row.activations, 4 * (n * (4 * 4096 + 2 * key) + 512 * (4 * 4096 + 4096)), 1);
        near(row.cache, hosts[i] == 1 ? 32 * n * 2 * key * 2 : 0, 1); /* only an undivided text has a cache */
        const double parts[] = {0, 16, 22};
        near(row.exchange, hosts[i] == 1 ? 0 : n * (4 * key * 2 + parts[i] * 32 * 130 * 4), 1);
    }
    /* with 1 Gbit/s Ethernet and 8192 tokens per host, the computation does not hide the ring: 127 steps in each of 32
     * layers */
    mha_host_options o = OPTIONS(.hosts = 128, .job = MHA_HOSTS_SCORE, .seq = 1 << 20, .dtype = MHA_BF16, FAST);
    o.speed.flops = 8e12;
    o.network = host_network("1gbe");
    const double attention = 2 * 8192.0 * 8192 * 4096 / 8e12, exchange = 50e-6 + 2 * 8192.0 * 1024 * 2 / 0.117e9;
    near(host_layout(&host_medium, &o, 1, 128, 1).exposed, 32 * 127 * (exchange - attention), 0.01);
}

/* Tests a cache divided among hosts: the keys per host, and the messages that merge partial results. */
static void test_shared_cache(void **state)
{
    (void)state;
    mha_host_options o = OPTIONS(.hosts = 1000, .job = MHA_HOSTS_GENERATE, .seq = 1 << 20, .dtype = MHA_BF16, FAST);
    o.network = host_network("100gbe");
    near(host_layout(&host_medium, &o, 1, 1, 1).cache, 137.4e9, 0.05e9);
    near(host_layout(&host_medium, &o, 1, 64, 1).cache, 2.147e9, 0.001e9);
    near(host_layout(&host_medium, &o, 1, 8, 1).exposed, 1.6e-3, 0.05e-3);
    near(host_layout(&host_medium, &o, 1, 1000, 1).exposed, 5.3e-3, 0.05e-3);
    near(host_layout(&host_medium, &o, 1, 8, 1).compute, (16e9 + 137.4e9 / 8) / 200e9, 1e-3);
    o.kv_dtype = MHA_F16;
    assert_non_null(host_layout(&host_medium, &o, 1, 8, 1).refused);
}

/* Tests heads divided among hosts: compares the weights per host, and the messages for a text of 200 tokens and for its
 * logits. */
static void test_divided_heads(void **state)
{
    (void)state;
    mha_host_model m = MODEL(.layers = 2, .hidden = 64, .heads = 4, .kv_heads = 2, .head_dim = 16);
    m.layer_weights = 8000, m.output_weights = m.word_weights = 6400, m.other_weights = 100;
    mha_host_options o = OPTIONS(.hosts = 8, .job = MHA_HOSTS_SCORE, .seq = 200, .batch = 3, FAST);
    o.network = (mha_host_network){1e-3, 1e6};
    mha_host_layout row = host_layout(&m, &o, 2, 1, 1);
    near(row.weights, 4 * (4000 + 3200 + 3200 + 100), 1e-6);
    near(row.exchange, 4 * 128 * 64 * 14, 1e-6);
    near(row.activations, 4 * (64 * (2 * 64 + 2 * 32 + 2 * 16) + 64 * (128 + 64) + 64 * 100), 1e-6);
    near(row.cache, 4 * 2 * 200 * 2 * 16, 1e-6);
    near(row.exposed, 3 * (2 * 2 * 4 * (1e-3 + 64 * 64 * 4 / 1e6) + 1e-3 + 200 * 100 * 4 / 2 / 1e6), 1e-9);
    row = host_layout(&m, &o, 3, 1, 1); /* 3 of 8 groups */
    near(row.weights, 4 * (3.0 / 8 * (8000 + 6400 + 6400) + 100), 1e-6);
    row = host_layout(&m, &o, 4, 1, 1); /* each host computes one head, which reads one of the two key heads */
    near(row.activations, 4 * (64 * (2 * 64 + 2 * 16 + 2 * 16) + 64 * (64 + 64) + 64 * 100), 1e-6);
    o.dtype = MHA_Q8_0; /* packed weights: 33 bytes per 32 weights */
    near(host_layout(&m, &o, 1, 1, 1).weights, 33.0 / 32 * (8000 + 6400) + 4 * (6400 + 100), 1e-6);
}

static void test_training(void **state)
{
    (void)state;
    const mha_host_model model =
        MODEL(.layers = 12, .hidden = 768, .heads = 12, .head_dim = 64, .layer_weights = 125000000);
    mha_host_options o = OPTIONS(.hosts = 1000, .job = MHA_HOSTS_TRAIN, .workers = 16, .batch = 4, .seq = 256, FAST);
    o.network = host_network("100gbe");
    near(host_layout(&model, &o, 1, 1, 1000).exposed, 0.09, 0.005);
    const mha_host_layout row = host_layout(&model, &o, 1, 1, 4);
    assert_null(row.refused);
    near(row.weights, 12 * 125e6, 1);
    near(row.optimizer, (8.0 / 4 + 4 * 2) * 125e6, 1);
    near(host_layout(&model, &o, 1, 1, 16).optimizer, 8.0 / 16 * 125e6, 1);
    o.moments = MHA_BF16;
    near(host_layout(&model, &o, 1, 1, 4).optimizer, (4.0 / 4 + 4 * 2) * 125e6, 1);
    near(host_layout(&model, &o, 1, 1, 16).optimizer, 4.0 / 16 * 125e6, 1);
    o.moments = MHA_F32;
    near(row.activations, 4 * 1024.0 * (12 * (2 * 768 + 3072 + 4 * 768) + 6 * 768 + 4 * 2 * 768), 1);
    o.network = host_network("1gbe");
    near(host_layout(&model, &o, 1, 1, 1000).exposed, 8.5, 0.05);
    o.speed = (mha_host_speed){1e12, 1e15};
    const double products = 6 * 125e6 * 1024, attention = 14 * 12 * 768 * 4 * (256.0 * 257 / 2);
    near(host_layout(&model, &o, 1, 1, 4).compute, 4 * (products + attention) / 1e12, 1e-4);
    near(host_layout(&model, &o, 1, 1, 8).compute, 2 * (products + attention) / 1e12, 1e-4);
}

/* 1000 texts of 100 tokens must be measured in 50 steps of 20 texts. */
static void test_measurement(void **state)
{
    (void)state;
    mha_host_options o = OPTIONS(.hosts = 64, .job = MHA_HOSTS_HEADS, .seq = 100, .batch = 1000, FAST);
    o.speed.flops = 8e12;
    o.network = (mha_host_network){1e-3, 1e9};
    const double step = (16e9 * 2000 + 2 * 4.0 * 32 * 4096 * 20 * 100 * 101 / 2) / 8e12;
    near(host_layout(&host_medium, &o, 1, 1, 1).seconds, 50 * step, 1e-6);
    near(host_layout(&host_medium, &o, 1, 1, 7).compute, 8 * step, 1e-6);
    near(host_layout(&host_medium, &o, 1, 1, 64).compute, step, 1e-6);
    const double sums = 32.0 * 32 * 64 * 32; /* exchanged sums [bytes]: 2 MiB */
    near(host_layout(&host_medium, &o, 1, 1, 64).exposed, 2e-3 + 12e-3 + 2 * sums * 63 / 64 / 1e9, 1e-6);
}

/* ---- invariants of random plans ---- */

static uint64_t drawn(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

/* Generates a random plan. Every tenth plan has extreme sizes. */
static void draw(uint64_t *seed, mha_host_model *model, mha_host_options *o)
{
    const int64_t kv_heads = 1 + (int64_t)drawn(seed, 16), big = drawn(seed, 10) == 0 ? 1 << 16 : 1;
    *model = MODEL(.layers = 1 + (int64_t)drawn(seed, 100), .kv_heads = kv_heads);
    model->heads = kv_heads * (1 + (int64_t)drawn(seed, 8));
    model->hidden = 1 + (int64_t)drawn(seed, 16384);
    model->head_dim = 1 + (int64_t)drawn(seed, 256);
    model->gated = (int)drawn(seed, 2);
    model->layer_weights = 1 + (int64_t)drawn(seed, 1000000000) * big;
    model->output_weights = (int64_t)drawn(seed, 1000000000);
    model->word_weights = (int64_t)drawn(seed, 1000000000);
    model->other_weights = (int64_t)drawn(seed, 1000000);
    *o = OPTIONS(.hosts = 1 + (int64_t)drawn(seed, 40), .job = (mha_host_job)drawn(seed, MHA_HOST_JOBS));
    model->bidirectional = o->job != MHA_HOSTS_GENERATE && drawn(seed, 3) == 0;
    o->seq = 1 + (int64_t)drawn(seed, 100000) * (big > 1 ? 4096 : 1);
    o->batch = 1 + (int64_t)drawn(seed, 100);
    o->memory = 1 + (int64_t)(drawn(seed, 4000) * drawn(seed, 4000)) * 4000 * big;
    o->dtype = (mha_dtype[]){MHA_F32, MHA_BF16, MHA_F16, MHA_Q8_0}[drawn(seed, 4)];
    o->network = (mha_host_network){(double)drawn(seed, 100) * 1e-6, 1e6 * (1 + (double)drawn(seed, 10000))};
    o->speed = (mha_host_speed){1e9 * (1 + (double)drawn(seed, 10000)), 1e8 * (1 + (double)drawn(seed, 1000))};
}

static void check_list(const mha_host_options *o, const mha_host_layout *rows, const mha_host_choice *choice)
{
    assert_in_range(choice->count, 1, MHA_HOST_LAYOUTS);
    for (int n = 0; n < choice->count; n++) {
        const mha_host_layout *r = &rows[n], *b = &rows[n > 0 ? n - 1 : 0];
        assert_null(r->refused);
        assert_true(r->tp * r->cp * r->dp <= o->hosts);
        assert_true(r->fits == (r->bytes <= (double)o->memory));
        near(r->weights + r->cache + r->activations + r->exchange + r->optimizer, r->bytes, 1e-9 * r->bytes);
        near(r->compute + r->exposed, r->seconds, 1e-9 * r->seconds);
        assert_true(r->compute > 0 && r->exposed >= 0 && r->hidden >= 0 && r->hidden <= r->compute);
        assert_true(r->tokens_per_second > 0 && isfinite(r->tokens_per_second));
        const int64_t hosts = r->tp * r->cp * r->dp, before = b->tp * b->cp * b->dp;
        assert_true(n == 0 || before < hosts || (before == hosts && b->tp < r->tp));
    }
}

/* Fails unless choice->smallest has the fewest hosts of all layouts that fit, and choice->fastest is the fastest row
 * that fits. */
static void check_choice(const mha_host_model *m, const mha_host_options *o, const mha_host_layout *rows,
                         const mha_host_choice *choice)
{
    const mha_host_layout *best = choice->smallest < 0 ? NULL : &rows[choice->smallest];
    for (int64_t tp = 1; tp <= o->hosts; tp++)
        for (int64_t cp = 1; cp <= o->hosts / tp; cp++)
            for (int64_t dp = 1; dp <= o->hosts / (tp * cp); dp++) {
                const mha_host_layout row = host_layout(m, o, tp, cp, dp);
                if (row.refused || !row.fits) continue;
                if (!best) fail_msg("choice must not be empty, because %d x %d x %d fits", (int)tp, (int)cp, (int)dp);
                assert_true(best->tp * best->cp * best->dp <= tp * cp * dp);
            }
    for (int n = 0; n < choice->count; n++)
        if (rows[n].fits) assert_true(rows[choice->fastest].tokens_per_second >= rows[n].tokens_per_second);
    assert_true((choice->smallest < 0) == (choice->fastest < 0));
    if (best) assert_true(best->fits);
}

static void test_smallest(void **state)
{
    (void)state;
    uint64_t seed = 1;
    int fits = 0, between = 0;
    for (int i = 0; i < 400; i++) {
        mha_host_model m;
        mha_host_options o;
        mha_host_layout rows[MHA_HOST_LAYOUTS];
        mha_host_choice choice;
        draw(&seed, &m, &o);
        assert_int_equal(mha_host_layouts(&m, &o, rows, &choice, NULL), MHA_OK);
        check_list(&o, rows, &choice);
        check_choice(&m, &o, rows, &choice);
        fits += choice.smallest >= 0;
        between += choice.smallest > 0;
    }
    assert_in_range(fits, 100, 390); /* the plans must cover both cases, and layouts in the middle of the table */
    assert_in_range(between, 20, 390);
}

/* A faster network or host must never increase the time, and a larger tp must never increase the memory per host. */
static void test_faster(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < 2000; i++) {
        mha_host_model m;
        mha_host_options o;
        draw(&seed, &m, &o);
        o.hosts = 64;
        const int64_t tp = 1 << drawn(&seed, 3), cp = 1 + (int64_t)drawn(&seed, 8), dp = 1 + (int64_t)drawn(&seed, 2);
        const mha_host_layout row = host_layout(&m, &o, tp, cp, dp);
        if (tp < 8 && 2 * tp * cp * dp <= 64 && o.job != MHA_HOSTS_TRAIN) {
            const mha_host_layout half = host_layout(&m, &o, 2 * tp, cp, dp);
            assert_true(half.weights <= row.weights && half.cache <= row.cache && half.activations <= row.activations);
        }
        double *const fields[] = {&o.network.bandwidth, &o.speed.flops, &o.speed.bandwidth};
        for (int f = 0; f < 3; f++) {
            const double before = *fields[f];
            *fields[f] *= 1.5;
            assert_true(host_layout(&m, &o, tp, cp, dp).seconds <= row.seconds * (1 + 1e-12));
            *fields[f] = before;
        }
        o.network.latency *= 0.5;
        assert_true(host_layout(&m, &o, tp, cp, dp).seconds <= row.seconds * (1 + 1e-12));
    }
}

/* The tokens and the query-key pairs of the rank with the most work must equal those found by a search over all ranks
 * and positions. */
static void test_division(void **state)
{
    (void)state;
    uint64_t seed = 3;
    for (int i = 0; i < 300; i++) {
        const int64_t cp = 2 + (int64_t)drawn(&seed, 9), N = 1025 + (int64_t)drawn(&seed, 40000);
        const int64_t chunk = (N + 2048 * cp - 1) / (2048 * cp) * 1024;
        const mha_host_options o = OPTIONS(.seq = N);
        const mha__host_job job = mha__host_divide(&host_medium, &o, 1, cp, 1);
        double tokens = 0, pairs = 0;
        for (int64_t rank = 0; rank < cp; rank++) {
            double t = 0, p = 0;
            for (int64_t at = 0; at < N; at++)
                if (at / chunk == rank || at / chunk == 2 * cp - 1 - rank) t += 1, p += (double)(at + 1);
            tokens = fmax(tokens, t), pairs = fmax(pairs, p);
        }
        near(job.tokens, tokens, 0);
        near(job.pairs, pairs, 0);
    }
}

/* The largest values of all fields must give finite figures. */
static void test_extremes(void **state)
{
    (void)state;
    const int64_t wide = 1 << 20, max = INT64_C(1) << 60, text = INT64_C(1) << 32;
    mha_host_model m = MODEL(.layers = 65536, .hidden = wide, .heads = wide, .head_dim = wide, .layer_weights = max);
    m.feed_forward = INT64_C(1) << 31, m.gated = 1, m.output_weights = m.word_weights = m.other_weights = max;
    mha_host_options o = OPTIONS(.hosts = 65536, .memory = 1, .seq = text, .batch = text);
    o.network = (mha_host_network){10, 1}, o.speed = (mha_host_speed){1, 1};
    for (int job = 0; job < MHA_HOST_JOBS; job++) {
        mha_host_layout rows[MHA_HOST_LAYOUTS];
        mha_host_choice choice;
        o.job = (mha_host_job)job;
        assert_int_equal(mha_host_layouts(&m, &o, rows, &choice, NULL), MHA_OK);
        assert_int_equal(choice.smallest, -1);
        assert_in_range(choice.count, 17, MHA_HOST_LAYOUTS);
        for (int n = 0; n < choice.count; n++)
            assert_true(isfinite(rows[n].bytes) && isfinite(rows[n].seconds) && rows[n].tokens_per_second > 0);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode),        cmocka_unit_test(test_hiding),       cmocka_unit_test(test_prefill),
        cmocka_unit_test(test_divided_heads), cmocka_unit_test(test_shared_cache), cmocka_unit_test(test_training),
        cmocka_unit_test(test_measurement),   cmocka_unit_test(test_smallest),     cmocka_unit_test(test_faster),
        cmocka_unit_test(test_division),      cmocka_unit_test(test_extremes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

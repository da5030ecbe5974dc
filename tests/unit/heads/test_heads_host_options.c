/* test_heads_host_options.c - tests host plans: model shapes (read from config.json or planned), names, the measured
 * speed, and errors. */
#include "support/alloc.h"
#include "support/check.h"
#include "support/model/host_case.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- model shapes ---- */

static void test_config(void **state)
{
    (void)state;
    mha_host_model m = MODEL(.layers = 0);
    assert_int_equal(mha_host_model_of_config(NULL,
                                              "{\"model_type\": \"llama\", \"hidden_size\": 64, \"vocab_size\": 100, "
                                              "\"intermediate_size\": 96, \"num_attention_heads\": 4, "
                                              "\"num_key_value_heads\": 2, \"num_hidden_layers\": 3}",
                                              &m, NULL),
                     MHA_OK);
    assert_true(m.layers == 3 && m.hidden == 64 && m.heads == 4 && m.kv_heads == 2 && m.head_dim == 16);
    assert_true(m.feed_forward == 96 && m.gated == 1 && !m.bidirectional && !m.tied);
    assert_int_equal(m.layer_weights, 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96));
    assert_int_equal(m.output_weights, 6400);
    assert_int_equal(m.word_weights, 6400);
    assert_int_equal(m.other_weights, 3 * 2 * 64 + 64);
    assert_int_equal(
        mha_host_model_of_config(NULL,
                                 "{\"model_type\": \"gpt2\", \"n_embd\": 32, \"n_layer\": 2, \"n_head\": 4, "
                                 "\"vocab_size\": 50, \"n_positions\": 10}",
                                 &m, NULL),
        MHA_OK);
    assert_true(m.feed_forward == 128 && !m.gated && m.tied && m.kv_heads == 4);
    assert_int_equal(m.layer_weights, 2 * 12 * 32 * 32);
    assert_int_equal(m.output_weights, 1600);
    assert_int_equal(m.word_weights, 1600);
    assert_int_equal(m.other_weights, 320 + 2 * (4 * 32 + 96 + 32 + 128 + 32) + 64);
}

/* Models that mha_model_ranks rejects must have no layout that divides their weights. */
static void test_undivided(void **state)
{
    static const char *const families[] = {"llama", "qwen3", "mixtral", "olmo2", "mpnet"};
    mha_host_options o = OPTIONS(.hosts = 2, .job = MHA_HOSTS_SCORE, FAST);
    o.network = host_network("1gbe");
    (void)state;
    for (int n = 0; n < 5; n++) {
        const int undivided = n >= 2;
        char config[400];
        mha_host_model m = MODEL(.layers = 0);
        mha_host_layout rows[MHA_HOST_LAYOUTS];
        mha_host_choice choice;
        mha_error e = {0};
        snprintf(config, sizeof config,
                 "{\"model_type\": \"%s\", \"hidden_size\": 64, \"intermediate_size\": 96, \"vocab_size\": 64, "
                 "\"num_attention_heads\": 4, \"num_key_value_heads\": 4, \"num_hidden_layers\": 2, "
                 "\"max_position_embeddings\": 66}",
                 families[n]);
        if (mha_host_model_of_config(NULL, config, &m, &e) != MHA_OK) fail_msg("%s: %s", families[n], e.message);
        assert_int_equal(m.undivided, undivided);
        assert_int_equal(host_layout(&m, &o, 2, 1, 1).refused != NULL, undivided);
        assert_int_equal(mha_host_layouts(&m, &o, rows, &choice, NULL), MHA_OK);
        assert_int_equal(choice.count, undivided ? 2 : 3);
        for (int row = 0; row < choice.count; row++)
            assert_true(rows[row].tp == 1 || !undivided);
    }
}

static void test_config_errors(void **state)
{
    (void)state;
    mha_error e = {0};
    mha_host_model m = MODEL(.layers = 0);
    assert_int_equal(mha_host_model_of_config(NULL, "{\"model_type\": \"unheard\"}", &m, &e), MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "unheard"));
    assert_int_equal(mha_host_model_of_config(NULL, "{", &m, &e), MHA_ERR_FORMAT);
    assert_int_equal(mha_host_model_of_config(NULL,
                                              "{\"model_type\": \"llama\", \"hidden_size\": 2147483648, "
                                              "\"intermediate_size\": 2147483648, \"num_attention_heads\": 4, "
                                              "\"head_dim\": 64, \"vocab_size\": 9, \"num_hidden_layers\": 4096}",
                                              &m, &e),
                     MHA_ERR_UNSUPPORTED);
    assert_non_null(strstr(e.message, "parameters"));
    assert_int_equal(mha_host_model_of_config(NULL, NULL, &m, &e), MHA_ERR_ARG);
    assert_int_equal(mha_host_model_of_config(NULL, "{}", NULL, &e), MHA_ERR_ARG);
    counting counted = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counted)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    const long before = counted.live;
    mha_status status = MHA_ERR_MEMORY;
    for (long budget = 0; status != MHA_OK; budget++) {
        assert_in_range(budget, 0, 100);
        counted.budget = counted.calls + budget;
        status = mha_host_model_of_config(ctx, "{\"model_type\": \"gpt2\"}", &m, &e);
        if (status != MHA_OK) assert_int_equal(e.status, MHA_ERR_MEMORY);
        assert_int_equal(counted.live, before);
    }
    mha_ctx_free(ctx);
}

static void test_planned(void **state)
{
    (void)state;
    mha_error e = {0};
    mha_host_model m = MODEL(.layers = 0);
    mha_head_layout_options p = {.size = sizeof p, .d_model = 64, .heads = 4, .layers = 3, .vocab = 100};
    assert_int_equal(mha_host_model_of_layout(&p, 0, &m, NULL), MHA_OK);
    assert_true(m.layer_weights == 3 * 12 * 64 * 64 && m.output_weights == 6400 && m.word_weights == 6400 && m.tied);
    assert_int_equal(mha_host_model_of_layout(&p, 2, &m, NULL), MHA_OK);
    assert_int_equal(m.layer_weights, 3 * (10 * 64 * 64 + 2 * 64 * 32));
    p.parameters = 6401;
    assert_int_equal(mha_host_model_of_layout(&p, 2, &m, NULL), MHA_OK);
    assert_int_equal(m.layer_weights, 1);
    p.parameters = 6400;
    assert_int_equal(mha_host_model_of_layout(&p, 2, &m, &e), MHA_ERR_ARG);
    assert_true(check_has_word(e.message, "6400"));
    p.parameters = 0;
    assert_int_equal(mha_host_model_of_layout(&p, 3, &m, &e), MHA_ERR_ARG);
    assert_true(strstr(e.message, "kv_heads") && check_has_word(e.message, "3"));
    assert_int_equal(mha_host_model_of_layout(&p, -1, &m, &e), MHA_ERR_ARG);
    assert_int_equal(mha_host_model_of_layout(NULL, 0, &m, &e), MHA_ERR_ARG);
    assert_int_equal(mha_host_model_of_layout(&p, 0, NULL, &e), MHA_ERR_ARG);
}

/* ---- names, speed, errors ---- */

static void test_names(void **state)
{
    (void)state;
    for (int n = 0; n < MHA_HOST_NETWORKS; n++)
        assert_true(host_network(mha_host_network_key(n)).bandwidth > 1e8 && mha_host_network_help(n));
    assert_null(mha_host_network_key(MHA_HOST_NETWORKS));
    assert_null(mha_host_network_help(-1));
    assert_string_equal(mha_host_job_key(MHA_HOSTS_TRAIN), "train");
    assert_null(mha_host_job_key(MHA_HOST_JOBS));
    assert_null(mha_host_job_help((mha_host_job)-1));
    const mha_host_network n = host_network("5e-05:117000000");
    assert_true(n.latency == 5e-5 && n.bandwidth == 117e6);
    static const char *const bad[] = {"",       "2gbe", "1:",      ":1",    "1e-6",  "1e-6:1e9x", "x:1",  "-1:1e9",
                                      "11:1e9", "0:0",  "nan:1e9", "0:nan", "0:inf", "0:1e16",    "1gbe "};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        mha_error e = {0};
        mha_host_network none;
        assert_int_equal(mha_host_network_find(bad[i], &none, &e), MHA_ERR_ARG);
        assert_non_null(strstr(e.message, bad[i]));
    }
    assert_int_equal(mha_host_network_find(NULL, &(mha_host_network){0}, NULL), MHA_ERR_ARG);
    assert_int_equal(mha_host_network_find("1gbe", NULL, NULL), MHA_ERR_ARG);
}

static void test_speed(void **state)
{
    (void)state;
    mha_host_speed speed = {0};
    assert_int_equal(mha_host_speed_measure(NULL, &speed, NULL), MHA_OK);
    assert_true(speed.flops > 1e6 && speed.flops < 1e15 && speed.bandwidth > 1e6 && speed.bandwidth < 1e15);
    assert_int_equal(mha_host_speed_measure(NULL, NULL, NULL), MHA_ERR_ARG);
    counting counted = {.budget = -1};
    mha_ctx *ctx;
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&counted)};
    assert_int_equal(mha_ctx_create(&options, &ctx, NULL), MHA_OK);
    counted.budget = counted.calls;
    assert_int_equal(mha_host_speed_measure(ctx, &speed, NULL), MHA_ERR_MEMORY);
    mha_ctx_free(ctx);
}

static void refused(const mha_host_model *model, const mha_host_options *o, const char *word, const char *value)
{
    mha_error e = {0};
    mha_host_layout rows[MHA_HOST_LAYOUTS];
    mha_host_choice choice;
    assert_int_equal(mha_host_layouts(model, o, rows, &choice, &e), MHA_ERR_ARG);
    if (!strstr(e.message, word) || !check_has_word(e.message, value))
        fail_msg("message \"%s\" must contain %s and %s", e.message, word, value);
    assert_int_equal(mha_host_layout_predict(model, o, 1, 1, 1, rows, NULL), MHA_ERR_ARG);
}

#define WRONG(field, given, word, value) \
    do {                                 \
        mha_host_model m = host_medium;  \
        mha_host_options o = usual;      \
        field = given;                   \
        refused(&m, &o, word, value);    \
    } while (0)

static void test_refusals(void **state)
{
    (void)state;
    mha_host_options usual = OPTIONS(.hosts = 4, .job = MHA_HOSTS_SCORE, FAST);
    usual.network = host_network("1gbe");
    WRONG(m.layers, 0, "layers", "0");
    WRONG(m.layers, 65537, "layers", "65537");
    WRONG(m.hidden, -1, "hidden", "-1");
    WRONG(m.heads, INT64_MAX, "heads", "9223372036854775807");
    WRONG(m.kv_heads, 5, "kv_heads", "5");
    WRONG(m.kv_heads, 64, "kv_heads", "64");
    WRONG(m.head_dim, 0, "head_dim", "0");
    WRONG(m.feed_forward, -1, "feed_forward", "-1");
    WRONG(m.layer_weights, 0, "layer_weights", "0");
    WRONG(m.output_weights, INT64_MAX, "output_weights", "9223372036854775807");
    WRONG(m.word_weights, -7, "word_weights", "-7");
    WRONG(m.other_weights, -7, "other_weights", "-7");
    WRONG(m.cached_width, -1, "cached_width", "-1");
    WRONG(m.cached_width, (INT64_C(1) << 21) + 1, "cached_width", "2097153");
    WRONG(o.hosts, 0, "hosts", "0");
    WRONG(o.hosts, 65537, "hosts", "65537");
    WRONG(o.memory, 0, "memory", "0");
    WRONG(o.memory, -5, "memory", "-5");
    WRONG(o.seq, -1, "seq", "-1");
    WRONG(o.batch, INT64_MIN, "batch", "-9223372036854775808");
    WRONG(o.workers, 3, "workers", "3");
    WRONG(o.workers, 131072, "workers", "131072");
    WRONG(o.job, MHA_HOST_JOBS, "job", "4");
    WRONG(o.dtype, MHA_F64, "dtype", "f64");
    WRONG(o.kv_dtype, MHA_Q8_0, "kv_dtype", "q8_0");
    WRONG(o.moments, MHA_F16, "moments", "f16");
    WRONG(o.speed.flops, NAN, "speed.flops", "nan");
    WRONG(o.speed.bandwidth, 0, "speed.bandwidth", "0");
    WRONG(o.network.latency, -1, "latency", "-1");
    WRONG(o.network.bandwidth, INFINITY, "bandwidth", "inf");
    mha_host_model encoder = host_medium;
    encoder.bidirectional = 1;
    usual.job = MHA_HOSTS_GENERATE;
    refused(&encoder, &usual, "generate", "encoder");
}

static void test_wrong_layouts(void **state)
{
    (void)state;
    mha_error e = {0};
    mha_host_layout row, rows[MHA_HOST_LAYOUTS];
    mha_host_options o = OPTIONS(.hosts = 4, .job = MHA_HOSTS_HEADS, FAST);
    o.network = host_network("1gbe");
    static const int64_t wrong[][3] = {{0, 1, 1}, {1, 1, 5}, {2, 3, 1}, {INT64_MAX, INT64_MAX, 1}, {1, 2, INT64_MAX}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(mha_host_layout_predict(&host_medium, &o, wrong[i][0], wrong[i][1], wrong[i][2], &row, &e),
                         MHA_ERR_ARG);
        assert_non_null(strstr(e.message, "tp * cp * dp"));
    }
    assert_int_equal(mha_host_layout_predict(&host_medium, &o, 1, 1, 1, NULL, &e), MHA_ERR_ARG);
    assert_int_equal(mha_host_layouts(&host_medium, &o, NULL, &(mha_host_choice){0}, &e), MHA_ERR_ARG);
    assert_int_equal(mha_host_layouts(&host_medium, &o, rows, NULL, &e), MHA_ERR_ARG);
    assert_non_null(host_layout(&host_medium, &o, 2, 1, 1).refused);
    assert_non_null(host_layout(&host_medium, &o, 1, 2, 1).refused);
    o.job = MHA_HOSTS_SCORE;
    assert_non_null(host_layout(&host_medium, &o, 1, 1, 2).refused);
    assert_null(host_layout(&host_medium, &o, 1, 2, 1).refused);
    o.seq = 1024;
    assert_non_null(host_layout(&host_medium, &o, 1, 2, 1).refused);
    o.job = MHA_HOSTS_TRAIN;
    assert_non_null(host_layout(&host_medium, &o, 1, 1, 3).refused);
    o.workers = 2;
    assert_non_null(host_layout(&host_medium, &o, 1, 1, 4).refused);
    assert_null(host_layout(&host_medium, &o, 1, 1, 2).refused);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),        cmocka_unit_test(test_config_errors), cmocka_unit_test(test_planned),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_speed),         cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_wrong_layouts), cmocka_unit_test(test_undivided),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

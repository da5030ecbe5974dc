/* test_rope.c - compares every case of data/ops/rope.json with transformers and with double arithmetic: frequencies,
 * gain, and rotated heads of each kind. */
#include "mha/io.h"
#include "mha/rope.h"
#include "support/check.h"
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static mha_file *file;
static json_t *index_json;

static int load(void **state)
{
    (void)state;
    index_json = json_load_file(MHA_TEST_DATA "/ops/rope.json", 0, NULL);
    return index_json && mha_file_open(NULL, MHA_TEST_DATA "/ops/rope.safetensors", NULL, &file, NULL) == MHA_OK ? 0
                                                                                                                 : -1;
}

static int unload(void **state)
{
    (void)state;
    json_decref(index_json);
    mha_file_free(file);
    return 0;
}

static const mha_tensor *tensor_of(const char *name, const char *what)
{
    char path[100];
    snprintf(path, sizeof path, "%s/%s", name, what);
    return mha_file_find(file, path);
}

static double number(const json_t *rope, const char *key)
{
    return json_number_value(json_object_get(rope, key));
}

static const double *list(const json_t *rope, const char *key, double *to)
{
    const json_t *array = json_object_get(rope, key);
    for (size_t i = 0; i < json_array_size(array); i++)
        to[i] = json_number_value(json_array_get(array, i));
    return array ? to : NULL;
}

static mha_rope_kind kind_of(const json_t *rope)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    const char *name = json_string_value(json_object_get(rope, "rope_type"));
    for (int i = 0; name && i < 6; i++)
        if (strcmp(name, names[i]) == 0) return (mha_rope_kind)i;
    return MHA_ROPE_DEFAULT;
}

static mha_rope_options options_of(const json_t *c, double *short_by, double *long_by)
{
    const json_t *rope = json_object_get(c, "rope");
    const double part = number(rope, "partial_rotary_factor");
    mha_rope_options o = {.size = sizeof o,
                          .head_dim = json_integer_value(json_object_get(c, "head_dim")),
                          .theta = number(rope, "rope_theta"),
                          .kind = kind_of(rope),
                          .factor = number(rope, "factor"),
                          .max_positions = json_integer_value(json_object_get(c, "max_position_embeddings")),
                          .original_positions = (int64_t)number(rope, "original_max_position_embeddings"),
                          .low_freq = number(rope, "low_freq_factor"),
                          .high_freq = number(rope, "high_freq_factor"),
                          .beta_fast = number(rope, "beta_fast"),
                          .beta_slow = number(rope, "beta_slow"),
                          .no_truncate = json_is_false(json_object_get(rope, "truncate")),
                          .gain = number(rope, "attention_factor"),
                          .mscale = number(rope, "mscale"),
                          .mscale_all = number(rope, "mscale_all_dim")};
    if (part > 0) o.rotary_dim = (int64_t)((double)o.head_dim * part);
    o.short_by = list(rope, "short_factor", short_by);
    o.long_by = list(rope, "long_factor", long_by);
    return o;
}

static void check_frequencies(const json_t *c, const mha_rope_options *o, const char *name, int64_t length)
{
    double f[256], gain = 0;
    const mha_tensor *want = tensor_of(name, "inv_freq");
    mha_error err;
    if (mha_rope_frequencies(o, length, f, &gain, &err) != MHA_OK) fail_msg("%s: %s", name, err.message);
    assert_true(fabs(gain - number(c, "attention_factor")) < 1e-12);
    for (int64_t i = 0; i < want->elements; i++) {
        double w;
        memcpy(&w, (const char *)want->data + i * (int64_t)sizeof w, sizeof w);
        if (!(fabs(f[i] / w - 1) < 1e-12))
            fail_msg("%s: frequency %d: got %.17g, expected %.17g", name, (int)i, f[i], w);
    }
}

/* Rotating x must give the reference; rotating the result back must give x times gain^2. */
static void check_turned(const mha_rope_options *o, const char *name, const char *form, double gain)
{
    enum { ROOM = 6 * 2 * 128 };
    float x[ROOM], y[ROOM], want[ROOM], cos[ROOM], sin[ROOM];
    int64_t positions[8];
    const mha_tensor *p = tensor_of(name, "positions"), *given = tensor_of(name, "x"), *turned = tensor_of(name, form);
    const int64_t rows = p->elements, D = o->head_dim;
    mha_error err;
    assert_true(given->elements <= ROOM && rows <= 8);
    memcpy(positions, p->data, (size_t)rows * sizeof *positions);
    assert_int_equal(mha_tensor_read(given, MHA_F32, x, NULL), MHA_OK);
    assert_int_equal(mha_tensor_read(turned, MHA_F32, want, NULL), MHA_OK);
    memcpy(y, x, sizeof x);
    if (mha_rope_angles(o, positions, rows, cos, sin, &err) != MHA_OK) fail_msg("%s: %s", name, err.message);
    assert_int_equal(mha_rope_turn(NULL, o, cos, sin, rows, 2, y, 2 * D, D, 0, NULL), MHA_OK);
    for (int64_t i = 0; i < given->elements; i++)
        if (!(fabs((double)y[i] - (double)want[i]) < 1e-6))
            fail_msg("%s %s: element %d: got %g, expected %g", name, form, (int)i, (double)y[i], (double)want[i]);
    assert_int_equal(mha_rope_turn(NULL, o, cos, sin, rows, 2, y, 2 * D, D, 1, NULL), MHA_OK);
    for (int64_t i = 0; i < given->elements; i++) {
        const bool rotated = i % D < (o->rotary_dim ? o->rotary_dim : D);
        assert_true(fabs((double)y[i] - (rotated ? gain * gain : 1) * (double)x[i]) < 2e-6);
    }
}

static void test_cases(void **state)
{
    (void)state;
    size_t i;
    json_t *c;
    int checked = 0;
    json_array_foreach(json_object_get(json_object_get(index_json, "rope"), "cases"), i, c)
    {
        double short_by[64], long_by[64];
        const char *name = json_string_value(json_object_get(c, "name"));
        mha_rope_options o = options_of(c, short_by, long_by);
        const double gain = number(c, "attention_factor");
        check_frequencies(c, &o, name, (int64_t)number(c, "length"));
        check_turned(&o, name, "half_split", gain);
        o.interleaved = 1;
        if (tensor_of(name, "interleaved")) check_turned(&o, name, "interleaved", gain);
        checked++;
    }
    assert_int_equal(checked, 13);
}

static void refused(mha_rope_options o, const char *field)
{
    double f[256], gain;
    mha_error err = {0};
    o.size = sizeof o;
    assert_int_equal(mha_rope_frequencies(&o, 10, f, &gain, &err), MHA_ERR_ARG);
    if (!strstr(err.message, field)) fail_msg("message must contain %s (got \"%s\")", field, err.message);
}

static void test_refusals(void **state)
{
    (void)state;
    const double ones[2] = {1, 1}, wrong[2] = {1, 0};
    refused((mha_rope_options){0}, "head_dim must be from 2 to 4096 (got 0)");
    refused((mha_rope_options){.head_dim = 4098}, "head_dim must be from 2 to 4096 (got 4098)");
    refused((mha_rope_options){.head_dim = 8, .rotary_dim = 3}, "rotary_dim must be even and from 2 to 8 (got 3)");
    refused((mha_rope_options){.head_dim = 8, .rotary_dim = 10}, "rotary_dim must be even and from 2 to 8 (got 10)");
    refused((mha_rope_options){.head_dim = 8, .theta = -1}, "theta must be finite and greater than 0 (got -1)");
    refused((mha_rope_options){.head_dim = 8, .theta = NAN}, "theta must be finite and greater than 0 (got nan)");
    refused((mha_rope_options){.head_dim = 8, .kind = (mha_rope_kind)9}, "must be a value of mha_rope_kind (got 9)");
    refused((mha_rope_options){.head_dim = 8, .kind = MHA_ROPE_LINEAR}, "factor must be finite and at least 1 (got 0)");
    refused((mha_rope_options){.head_dim = 8, .kind = MHA_ROPE_DYNAMIC, .factor = 2}, "(got 0, 8)");
    refused((mha_rope_options){.head_dim = 8, .kind = MHA_ROPE_LLAMA3, .factor = 2},
            "original_positions must be at least 1 (got 0)");
    refused(
        (mha_rope_options){.head_dim = 8, .kind = MHA_ROPE_LLAMA3, .factor = 2, .original_positions = 8, .low_freq = 5},
        "low_freq and high_freq must be ascending and greater than 0 (got 5");
    refused(
        (mha_rope_options){.head_dim = 8, .kind = MHA_ROPE_YARN, .factor = 2, .original_positions = 8, .beta_slow = -1},
        "beta_slow must be");
    refused((mha_rope_options){.head_dim = 4, .kind = MHA_ROPE_LONGROPE, .factor = 2, .original_positions = 8},
            "short_by");
    refused((mha_rope_options){.head_dim = 4,
                               .kind = MHA_ROPE_LONGROPE,
                               .factor = 2,
                               .original_positions = 8,
                               .short_by = ones,
                               .long_by = wrong},
            "long_by must be finite and greater than 0 (got 0)");
    const int64_t before[1] = {-1};
    float cos[4], sin[4];
    mha_error err;
    const mha_rope_options o = {.size = sizeof o, .head_dim = 4};
    assert_int_equal(mha_rope_angles(&o, before, 1, cos, sin, &err), MHA_ERR_ARG);
    assert_non_null(strstr(err.message, "positions[0] must be"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, load, unload);
}

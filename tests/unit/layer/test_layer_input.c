/* test_layer_input.c - tests that attention layers and blocks reject invalid fields of mha_layer_input, with messages
 * that name the field. */
#include "support/check.h"
#include "support/reference/layer_ref.h"
#include <stdlib.h>
#include <string.h>

enum { B = 2, L = 20, E = 24 };

#define INPUT(...) (&(mha_layer_input){.size = sizeof(mha_layer_input), __VA_ARGS__})

typedef struct fixture {
    mha_block_options options;
    mha_block *block;
    mha_attn_layer *attn;
    float *x, *y; /* [B L, E] */
} fixture;

static fixture fixture_open(void)
{
    fixture f = {.options = random_block(3, E, 3, 0, 0, 40),
                 .x = random_floats(3, 1, B * L * E, 1, 0),
                 .y = calloc(B * L * E, sizeof(float))};
    assert_int_equal(mha_block_create(NULL, &f.options, &f.block, NULL), MHA_OK);
    assert_int_equal(mha_attn_layer_create(NULL, &f.options.attn, &f.attn, NULL), MHA_OK);
    return f;
}

static void fixture_close(fixture *f)
{
    mha_block_free(f->block);
    mha_attn_layer_free(f->attn);
    random_block_free(&f->options);
    free(f->x);
    free(f->y);
}

/* Both forward functions must fail with this message, and leave y and x unchanged. */
static void refused(const fixture *f, const mha_layer_input *in, const char *message)
{
    mha_error err = {0};
    float *before = malloc(B * L * E * sizeof *before);
    memcpy(before, f->x, B * L * E * sizeof *before);
    assert_int_equal(mha_attn_layer_forward(f->attn, in, f->x, f->y, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, message);
    assert_int_equal(mha_block_forward(f->block, in, f->x, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, message);
    assert_memory_equal(f->x, before, B * L * E * sizeof *before);
    free(before);
}

static void test_lengths(void **state)
{
    (void)state;
    fixture f = fixture_open();
    const int64_t longer[B] = {3, 21}, negative[B] = {-1, 3}, none[B] = {0, 20};
    size_t bytes = 0;
    refused(&f, INPUT(.batch = B, .length = L, .lengths = longer),
            "mha_layer_input: lengths[1] must be from 0 to 20 (got 21)");
    refused(&f, INPUT(.batch = B, .length = L, .lengths = negative),
            "mha_layer_input: lengths[0] must be from 0 to 20 (got -1)");
    const mha_layer_input *in = INPUT(.batch = B, .length = L, .lengths = none);
    assert_int_equal(mha_attn_layer_forward(f.attn, in, f.x, f.y, NULL), MHA_OK);
    /* a call for a workspace must not read the lengths */
    assert_int_equal(mha_block_workspace(f.block, INPUT(.batch = B, .length = L, .lengths = longer), &bytes, NULL),
                     MHA_OK);
    fixture_close(&f);
}

static void test_starts(void **state)
{
    (void)state;
    fixture f = fixture_open();
    const struct {
        int64_t starts[4];
        const char *message;
    } wrong[] = {
        {{1, 5, 9, 20}, "mha_layer_input: starts[0] must be 0 (got 1)"},
        {{0, -5, 9, 20}, "mha_layer_input: starts[1] must be from 0 to 20 (got -5)"},
        {{0, 9, 5, 20}, "mha_layer_input: starts[2] must be from 9 to 20 (got 5)"},
        {{0, 5, INT64_MAX, 20}, "mha_layer_input: starts[2] must be from 5 to 20 (got 9223372036854775807)"},
        {{0, 5, 9, 19}, "mha_layer_input: starts[3] must be the number of rows, 20 (got 19)"},
    };
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++)
        refused(&f, INPUT(.batch = 1, .length = L, .starts = wrong[n].starts, .sequences = 3), wrong[n].message);
    const int64_t empty[] = {0, 9, 9, 20};
    const mha_layer_input *in = INPUT(.batch = 1, .length = L, .starts = empty, .sequences = 3);
    assert_int_equal(mha_attn_layer_forward(f.attn, in, f.x, f.y, NULL), MHA_OK);
    fixture_close(&f);
}

/* The keys and values of another sequence have lengths and starts of their own. */
static void test_sources(void **state)
{
    (void)state;
    fixture f = fixture_open();
    mha_attn_layer_options o = f.options.attn;
    mha_attn_layer *cross;
    mha_error err = {0};
    float kv[6 * 2 * E] = {0};
    const int64_t longer[1] = {7}, starts[2] = {0, L}, late[2] = {0, 5};
    o.cross = 1;
    assert_int_equal(mha_attn_layer_create(NULL, &o, &cross, &err), MHA_OK);
    mha_layer_source source = {.tokens = 6, .lengths = longer, .kv = kv};
    const mha_layer_input *in = INPUT(.batch = 1, .length = L, .source = &source);
    assert_int_equal(mha_attn_layer_forward(cross, in, f.x, f.y, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_layer_source: lengths[0] must be from 0 to 6 (got 7)");
    source = (mha_layer_source){.tokens = 6, .starts = late, .kv = kv};
    in = INPUT(.batch = 1, .length = L, .starts = starts, .sequences = 1, .source = &source);
    assert_int_equal(mha_attn_layer_forward(cross, in, f.x, f.y, &err), MHA_ERR_ARG);
    assert_string_equal(err.message, "mha_layer_source: starts[1] must be the number of rows, 6 (got 5)");
    mha_attn_layer_free(cross);
    fixture_close(&f);
}

/* A count or an index must be 0 without the array or the cache that it belongs to. */
static void test_fields_without_owner(void **state)
{
    (void)state;
    fixture f = fixture_open();
    refused(&f, INPUT(.batch = 1, .length = L, .map_count = 2),
            "mha_layer_input: map_count must be 0 if map_heads is NULL (got 2)");
    refused(&f, INPUT(.batch = 1, .length = L, .map_row_count = 2),
            "mha_layer_input: map_row_count must be 0 if map_rows is NULL (got 2)");
    refused(&f, INPUT(.batch = 1, .length = L, .sequence = 1),
            "mha_layer_input: sequence must be 0 if cache is NULL (got 1)");
    refused(&f, INPUT(.batch = 1, .length = L, .sequences = 1),
            "mha_layer_input: sequences must be 0 if starts is NULL (got 1)");
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_fields_without_owner),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_gguf.c - tests the GGUF reader: the values and the tensors of a file written by gguf-py, whose dequantized
 * elements must be bitwise identical, and damaged copies of this file, each of which must be refused. */
#include "io/gguf/gguf.h"
#include "io/quantized_blocks.h"
#include "mha/io.h"
#include "support/files.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char types[] = MHA_TEST_DATA "/gguf/types.gguf", floats[] = MHA_TEST_DATA "/gguf/types.safetensors";

static mha_file *open_file(const char *path)
{
    mha_file *file = NULL;
    mha_error err = {0};
    if (mha_file_open(NULL, path, NULL, &file, &err) != MHA_OK) fail_msg("%s", err.message);
    return file;
}

/* The elements of gguf-py must be bitwise identical, but it reads the code of -0 of MXFP4 as 0. */
static bool equal(const mha_tensor *want, const float *has)
{
    const float *elements = want->data;
    if (strcmp(want->name, "mxfp4") != 0) return memcmp(has, elements, want->bytes) == 0;
    for (int64_t i = 0; i < want->elements; i++)
        if (memcmp(&has[i], &elements[i], sizeof *has) != 0 && !(has[i] == 0 && elements[i] == 0)) return false;
    return true;
}

static void every_type(void **state)
{
    (void)state;
    mha_file *file = open_file(types), *wants = open_file(floats);
    assert_string_equal(mha_file_format(file), "gguf");
    assert_int_equal(mha_file_count(file), mha_file_count(wants));
    for (int64_t i = 0; i < mha_file_count(wants); i++) {
        const mha_tensor *want = mha_file_tensor(wants, i), *t = mha_file_find(file, want->name);
        assert_non_null(t);
        assert_int_equal(t->rank, want->rank);
        assert_memory_equal(t->shape, want->shape, (size_t)t->rank * sizeof *t->shape);
        float *has = malloc(want->bytes);
        assert_int_equal(mha_tensor_read(t, MHA_F32, has, NULL), MHA_OK);
        if (!equal(want, has)) fail_msg("%s must equal the elements of gguf-py", want->name);
        free(has);
    }
    mha_file_free(file);
    mha_file_free(wants);
}

static void quantized_tensors_convert_to_f32_only(void **state)
{
    (void)state;
    mha_file *file = open_file(types);
    mha_error err = {0};
    const mha_tensor *t = mha_file_find(file, "q4_k");
    double *wide = malloc((size_t)t->elements * sizeof *wide);
    assert_int_equal(mha_tensor_read(t, MHA_F64, wide, &err), MHA_ERR_UNSUPPORTED);
    assert_string_equal(err.message, "tensor \"q4_k\": Q4_K cannot be read as f64");
    assert_int_equal(mha_tensor_aligned(t), 0);
    free(wide);
    mha_file_free(file);
}

/* ---- values ---- */

static void values_by_key(void **state)
{
    (void)state;
    mha_file *file = open_file(types);
    mha_error err = {0};
    const mha__gguf_value *v = NULL;
    int64_t i = 0;
    double real = 0;
    bool flag = false;
    const char *text = NULL;
    size_t n = 0;
    assert_int_equal(mha__gguf_int(file, "test.least", INT64_MIN, 0, &i, &err), MHA_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(mha__gguf_int(file, "test.i8", -128, 127, &i, &err), MHA_OK);
    assert_int_equal(i, -8);
    assert_int_equal(mha__gguf_int(file, "test.i16", -300, 0, &i, &err), MHA_OK);
    assert_int_equal(i, -300);
    assert_int_equal(mha__gguf_int(file, "test.u16", 0, 65535, &i, &err), MHA_OK);
    assert_int_equal(i, 60000);
    assert_int_equal(mha__gguf_real(file, "test.real", &real, &err), MHA_OK);
    assert_true(real == 0.1);
    assert_int_equal(mha__gguf_bool(file, "test.flag", &flag, &err), MHA_OK);
    assert_true(flag);
    assert_int_equal(mha__gguf_text(file, "general.name", &text, &n, &err), MHA_OK);
    assert_memory_equal(text, "every type", n);
    assert_int_equal(mha__gguf_array(file, "test.words", MHA__GGUF_STRING, &v, &err), MHA_OK);
    assert_int_equal(v->count, 4);
    const char *at = v->data;
    for (int k = 0; k < 4; k++)
        text = mha__gguf_next_text(&at, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(text, "\xE2\x96\x81trois", n);
    assert_int_equal(mha__gguf_array(file, "test.integers", MHA__GGUF_I32, &v, &err), MHA_OK);
    assert_true(mha__gguf_element(v, 1, &i));
    assert_int_equal(i, -2);
    mha_file_free(file);
}

static void expect(mha_status status, const mha_error *err, const char *says)
{
    assert_int_equal(status, MHA_ERR_FORMAT);
    if (!strstr(err->message, says)) fail_msg("message must contain \"%s\" (got \"%s\")", says, err->message);
}

static void values_of_other_types(void **state)
{
    (void)state;
    mha_file *file = open_file(types);
    mha_error err = {0};
    const mha__gguf_value *v;
    int64_t i = 77;
    double real;
    bool flag;
    const char *text;
    size_t n;
    expect(mha__gguf_int(file, "test.most", 0, INT64_MAX, &i, &err), &err, "(got u64 of at least 2^63)");
    expect(mha__gguf_int(file, "test.i8", 0, 9, &i, &err), &err, "test.i8 must be an integer from 0 to 9 (got i8 -8)");
    expect(mha__gguf_int(file, "test.flag", 0, 9, &i, &err), &err, "(got bool 1)");
    expect(mha__gguf_int(file, "test.words", 0, 9, &i, &err), &err, "(got an array of 4 string)");
    expect(mha__gguf_real(file, "test.i8", &real, &err), &err, "test.i8 must be a finite f32 or f64 (got i8 -8)");
    expect(mha__gguf_bool(file, "test.real", &flag, &err), &err, "test.real must be a bool (got f64 0.1)");
    expect(mha__gguf_text(file, "test.words", &text, &n, &err), &err, "test.words must be a string");
    expect(mha__gguf_array(file, "general.name", MHA__GGUF_STRING, &v, &err), &err,
           "general.name must be an array of string (got every type)");
    assert_int_equal(mha__gguf_int(file, "absent", 0, 9, &i, &err), MHA_OK);
    assert_int_equal(i, 77);
    mha_file_free(file);
}

/* ---- damaged files ---- */

typedef enum field { VERSION, COUNT, LENGTH, TYPE, BOOLEAN, NAME, DIMENSION, OFFSET, END } field;

/* Fields of the valid file, in order. */
typedef struct place {
    field field;
    size_t at, bytes;
} place;

typedef struct layout {
    const char *file;
    size_t at;
    place place[600];
    int count;
} layout;

static uint64_t mark(layout *l, field field, size_t bytes)
{
    uint64_t value = 0;
    memcpy(&value, l->file + l->at, bytes < 8 ? bytes : 8);
    assert_true(l->count < 600);
    l->place[l->count++] = (place){field, l->at, bytes};
    l->at += bytes;
    return value;
}

static void mark_text(layout *l, field characters)
{
    const uint64_t n = mark(l, LENGTH, 8);
    if (n) mark(l, characters, n);
}

static void mark_elements(layout *l, uint64_t type, uint64_t count)
{
    static const size_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    for (uint64_t n = 0; n < count; n++)
        if (type == MHA__GGUF_STRING)
            mark_text(l, END);
        else
            mark(l, type == MHA__GGUF_BOOL ? BOOLEAN : END, bytes[type]);
}

static void mark_tensor(layout *l)
{
    mark_text(l, NAME);
    const uint64_t rank = mark(l, COUNT, 4);
    for (uint64_t n = 0; n < rank; n++)
        mark(l, DIMENSION, 8);
    mark(l, TYPE, 4);
    mark(l, OFFSET, 8);
}

static void mark_file(layout *l)
{
    l->at = 4;
    mark(l, VERSION, 4);
    const uint64_t tensors = mark(l, COUNT, 8), keys = mark(l, COUNT, 8);
    for (uint64_t n = 0; n < keys; n++) {
        mark_text(l, NAME);
        uint64_t count = 1, type = mark(l, TYPE, 4);
        if (type == MHA__GGUF_ARRAY) {
            type = mark(l, TYPE, 4);
            count = mark(l, COUNT, 8);
        }
        mark_elements(l, type, count);
    }
    for (uint64_t n = 0; n < tensors; n++)
        mark_tensor(l);
}

typedef struct damage {
    const char *bytes;
    char *copy;
    size_t n;
    int cases;
} damage;

/* Opens `n` bytes of the damaged copy in a block of exactly this size; it must be refused with a sentence that names
 * the file and, in parentheses, the value. */
static void refused(damage *d, size_t n, const char *what, size_t at)
{
    char *exact = malloc(n ? n : 1);
    mha_file *file = NULL;
    mha_error err = {0};
    memcpy(exact, d->copy, n);
    const mha_status status = mha_file_open_memory(NULL, "damaged.gguf", exact, n, &file, &err);
    if (status == MHA_OK) fail_msg("%s at byte %zu must be refused", what, at);
    if (!strstr(err.message, "damaged.gguf: ") || !strstr(err.message, " must ") || !strstr(err.message, "(got "))
        fail_msg("%s at byte %zu: message must name the file, the rule and the value (got \"%s\")", what, at,
                 err.message);
    mha_file_free(file);
    free(exact);
    d->cases++;
    memcpy(d->copy, d->bytes, d->n);
}

static void refuse_value(damage *d, const place *p, uint64_t value, const char *what)
{
    uint64_t old = 0;
    memcpy(&old, d->bytes + p->at, p->bytes);
    if (old == value) return;
    memcpy(d->copy + p->at, &value, p->bytes);
    refused(d, d->n, what, p->at);
}

static void damage_field(damage *d, const place *p)
{
    static const uint64_t bad_types[] = {4, 5, 13, 31, 77, 255, UINT32_MAX};
    uint64_t value = 0;
    memcpy(&value, d->bytes + p->at, p->bytes < 8 ? p->bytes : 8);
    switch (p->field) {
    case VERSION:
    case COUNT:
    case LENGTH:
    case OFFSET:
        refuse_value(d, p, 0, "a number that is 0");
        refuse_value(d, p, value - 1, "a number that is too small by 1");
        refuse_value(d, p, value + 1, "a number that is too large by 1");
        refuse_value(d, p, UINT64_MAX >> (64 - 8 * p->bytes), "the largest number");
        refuse_value(d, p, UINT64_MAX >> (65 - 8 * p->bytes), "half the largest number");
        break;
    case TYPE:
        for (size_t n = 2; n < sizeof bad_types / sizeof *bad_types; n++)
            refuse_value(d, p, bad_types[n], "an unknown type");
        break;
    case BOOLEAN:
        refuse_value(d, p, 2, "a bool that is 2");
        break;
    case NAME:
        d->copy[p->at] = '\0';
        refused(d, d->n, "a name with NUL", p->at);
        d->copy[p->at] = (char)0xFF;
        refused(d, d->n, "a name that is not UTF-8", p->at);
        break;
    case DIMENSION:
        refuse_value(d, p, 0, "a dimension of 0");
        refuse_value(d, p, UINT64_MAX, "the largest dimension");
        refuse_value(d, p, (uint64_t)1 << 62, "a dimension of 2^62");
        refuse_value(d, p, (uint64_t)1 << 40, "a dimension of 2^40");
        break;
    default:
        break;
    }
}

static void damaged_files(void **state)
{
    (void)state;
    damage d = {0};
    layout *l = calloc(1, sizeof *l);
    d.bytes = l->file = files_read(types, &d.n);
    d.copy = malloc(d.n);
    memcpy(d.copy, d.bytes, d.n);
    mark_file(l);
    for (int n = 0; n < l->count; n++) {
        const place *p = &l->place[n];
        damage_field(&d, p);
        refused(&d, p->at, "the end of the file", p->at);
        refused(&d, p->at + p->bytes / 2, "the end of the file within a field", p->at);
    }
    refused(&d, l->at, "the end of the file before the data", l->at);
    refused(&d, d.n - 32, "the end of the file within the last tensor", d.n - 32);
    char *longer = malloc(d.n + 1);
    memcpy(longer, d.bytes, d.n);
    longer[d.n] = 'x';
    mha_file *file = NULL;
    mha_error err = {0};
    assert_int_equal(mha_file_open_memory(NULL, "longer.gguf", longer, d.n + 1, &file, &err), MHA_ERR_FORMAT);
    assert_non_null(strstr(err.message, "longer.gguf: file must end after the data of the last tensor"));
    if (d.cases < 100) fail_msg("damaged files must be at least 100 (got %d)", d.cases);
    print_message("%d damaged files refused\n", d.cases + 1);
    free(longer);
    free(d.copy);
    free((char *)d.bytes);
    free(l);
}

/* ---- damage that needs a file of its own ---- */

/* Builds a file in memory. */
typedef struct builder {
    char bytes[2000];
    size_t n;
} builder;

static void number(builder *b, uint64_t value, size_t bytes)
{
    memcpy(b->bytes + b->n, &value, bytes);
    b->n += bytes;
}

static void text(builder *b, const char *s)
{
    number(b, strlen(s), 8);
    memcpy(b->bytes + b->n, s, strlen(s));
    b->n += strlen(s);
}

static builder begin(uint64_t tensors, uint64_t keys)
{
    builder b = {.bytes = "GGUF", .n = 4};
    number(&b, 3, 4);
    number(&b, tensors, 8);
    number(&b, keys, 8);
    return b;
}

static void tensor(builder *b, const char *name, uint64_t columns, uint32_t type, uint64_t offset)
{
    text(b, name);
    number(b, 1, 4);
    number(b, columns, 8);
    number(b, type, 4);
    number(b, offset, 8);
}

static void pad(builder *b, size_t data)
{
    while (b->n % 32)
        b->bytes[b->n++] = 0;
    memset(b->bytes + b->n, 0, data);
    b->n += data;
}

static void built(const builder *b, const char *says)
{
    mha_file *file = NULL;
    mha_error err = {0};
    expect(mha_file_open_memory(NULL, "built.gguf", b->bytes, b->n, &file, &err), &err, says);
}

static void wrong_tables(void **state)
{
    (void)state;
    builder b = begin(0, 2);
    for (int n = 0; n < 2; n++) {
        text(&b, "a.key");
        number(&b, MHA__GGUF_U8, 4);
        number(&b, 1, 1);
    }
    built(&b, "built.gguf: key a.key must be unique (got two)");
    b = begin(2, 0);
    tensor(&b, "w", 8, 0, 0);
    tensor(&b, "w", 8, 0, 32);
    pad(&b, 64);
    built(&b, "name of tensor \"w\" must be unique (got two)");
    b = begin(2, 0);
    tensor(&b, "v", 8, 0, 0);
    tensor(&b, "w", 8, 0, 0);
    pad(&b, 64);
    built(&b, "offset of tensor \"w\" must be 32, the end of the tensor before it, with padding (got 0)");
    b = begin(1, 0);
    tensor(&b, "w", 8, 0, 32);
    pad(&b, 64);
    built(&b, "offset of tensor \"w\" must be 0, the start of the data (got 32)");
    b = begin(1, 0);
    tensor(&b, "w", 48, 8, 0);
    pad(&b, 64);
    built(&b, "rows of tensor \"w\" must have a multiple of 32 elements, as Q8_0 requires (got 48)");
    b = begin(1, 0);
    tensor(&b, "0123456789012345678901234567890123456789012345678901234567890123", 8, 0, 0);
    pad(&b, 64);
    built(&b, "length of name of tensor 0 must be from 1 to 63 (got 64)");
}

static void wrong_alignments(void **state)
{
    (void)state;
    static const uint64_t wrong[] = {0, 1, 4, 12, 33, (uint64_t)1 << 31, UINT32_MAX};
    for (size_t n = 0; n < sizeof wrong / sizeof *wrong; n++) {
        builder b = begin(0, 1);
        text(&b, "general.alignment");
        number(&b, MHA__GGUF_U32, 4);
        number(&b, wrong[n], 4);
        built(&b, "built.gguf: general.alignment must be ");
    }
    builder b = begin(0, 1);
    text(&b, "general.alignment");
    number(&b, MHA__GGUF_STRING, 4);
    text(&b, "32");
    built(&b, "general.alignment must be an integer from 1 to 1073741824 (got 32)");
}

static void nested_arrays(void **state)
{
    (void)state;
    builder b = begin(0, 1);
    text(&b, "deep");
    for (int n = 0; n < 50; n++) {
        number(&b, MHA__GGUF_ARRAY, 4);
        if (n) number(&b, 1, 8);
    }
    built(&b, "type of the elements of deep must not be an array (got 9)");
}

/* Blocks with infinite elements keep them, and the largest finite values; smaller values become 0. */
static void infinity_in_mxfp4(void **state)
{
    (void)state;
    float x[32] = {INFINITY, -INFINITY, 0x1.8p127F, -0x1p127F, 0x1p126F, 1}, back[32];
    unsigned char block[17];
    mha__mxfp4_round(x, 32, block);
    mha__mxfp4_to_f32(block, back);
    x[5] = 0;
    assert_memory_equal(back, x, sizeof x);
}

/* A block in a GGUF file and codes in a checkpoint of gpt-oss have the same elements; zeros keep their sign. */
static void signs_of_mxfp4(void **state)
{
    (void)state;
    float x[32], back[32];
    unsigned char block[17];
    static const float values[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
    for (int i = 0; i < 32; i++)
        x[i] = i % 16 < 8 ? values[i % 8] : -values[i % 8];
    mha__mxfp4_round(x, 32, block);
    mha__mxfp4_to_f32(block, back);
    assert_memory_equal(back, x, sizeof x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type),        cmocka_unit_test(quantized_tensors_convert_to_f32_only),
        cmocka_unit_test(values_by_key),     cmocka_unit_test(values_of_other_types),
        cmocka_unit_test(damaged_files),     cmocka_unit_test(wrong_tables),
        cmocka_unit_test(nested_arrays),     cmocka_unit_test(wrong_alignments),
        cmocka_unit_test(infinity_in_mxfp4), cmocka_unit_test(signs_of_mxfp4),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

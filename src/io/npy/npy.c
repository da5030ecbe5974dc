/* npy.c - numpy's .npy format: "\x93NUMPY" | version | header length | header | elements.
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * The header is a Python literal, but is never evaluated: it must have these three keys, each once, with a quoted
 * string, True or False, and a tuple of integers. Supported types are bool, integers and floats; objects (pickles),
 * structures, strings, dates and complex numbers are rejected with a message that names the type. Elements are returned
 * in row-major, little-endian order; column-major or big-endian arrays are copied and converted on opening. */
#include "io/npy/npy.h"

#include "base/ctx.h"
#include "base/size.h"
#include "io/files/file_fail.h"
#include "io/input_limits.h"
#include "io/tensor_file.h"
#include <string.h>

static const struct dtype {
    char text[3]; /* type code in descr, without the byte order */
    mha_dtype dtype;
} dtypes[] = {
    {"b1", MHA_BOOL}, {"i1", MHA_I8},  {"u1", MHA_U8},  {"i2", MHA_I16}, {"u2", MHA_U16}, {"f2", MHA_F16},
    {"i4", MHA_I32},  {"u4", MHA_U32}, {"f4", MHA_F32}, {"i8", MHA_I64}, {"u8", MHA_U64}, {"f8", MHA_F64},
};

const char *mha__npy_type(mha_dtype dtype)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].text;
    return NULL;
}

/* Kinds of types that numpy writes but this reader does not support, identified by their letter in descr. */
static const struct {
    char letter;
    const char *text;
} refused_kinds[] = {
    {'O', "a Python pickle, which can run code and is never read"},
    {'V', "a structure"},
    {'S', "a string"},
    {'a', "a string"},
    {'U', "a string"},
    {'M', "a date"},
    {'m', "a duration"},
    {'c', "a complex number"},
};

typedef struct reader {
    const char *path;
    const char *text, *at, *end; /* the header: its text, the next byte to read, and its end */
    mha_error *err;
    char descr[4];
    mha_dtype dtype;
    bool fortran, swap;
    int rank;
    int64_t shape[MHA__RANK];
} reader;

/* Fails with "PATH: what". */
#define REFUSE(r, ...) mha__file_fail((r)->err, (r)->path, NULL, __VA_ARGS__)

/* ---- grammar of the header ---- */

static void skip_blanks(reader *r)
{
    while (r->at < r->end && strchr(" \t\n", *r->at) && *r->at != '\0')
        r->at++;
}

/* Skips blanks and reads `literal`; returns false if other text follows. */
static bool take(reader *r, const char *literal)
{
    size_t n = strlen(literal);
    skip_blanks(r);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, literal, n) != 0) return false;
    r->at += n;
    return true;
}

static mha_status expected(reader *r, const char *what)
{
    mha__quoted q;
    skip_blanks(r);
    size_t left = (size_t)(r->end - r->at);
    return REFUSE(r, "header, byte %zu: next token must be %s (got \"%s\")", (size_t)(r->at - r->text), what,
                  mha__quote(&q, r->at, left < 20 ? left : 20));
}

/* Reads a string without escapes, in single or double quotes. */
static bool take_string(reader *r, const char **text, size_t *n)
{
    skip_blanks(r);
    if (r->at == r->end || (*r->at != '\'' && *r->at != '"')) return false;
    const char *begin = r->at + 1;
    const char *quote = memchr(begin, *r->at, (size_t)(r->end - begin));
    if (!quote || memchr(begin, '\\', (size_t)(quote - begin))) return false;
    *text = begin;
    *n = (size_t)(quote - begin);
    r->at = quote + 1;
    return true;
}

/* Reads a dimension: digits without sign or leading zero, below 2^63. */
static bool take_dimension(reader *r, int64_t *dimension)
{
    skip_blanks(r);
    const char *begin = r->at;
    int64_t value = 0;
    for (; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, *r->at - '0', &value))
            return false;
    if (r->at == begin || (*begin == '0' && r->at - begin > 1)) return false;
    *dimension = value;
    return true;
}

static mha_status read_descr(reader *r)
{
    const char *text;
    size_t n;
    mha__quoted q;
    if (take(r, "[")) return REFUSE(r, "header: descr must be a dtype of real numbers (got a structure)");
    if (!take_string(r, &text, &n)) return expected(r, "a quoted dtype such as '<f4'");
    mha__quote(&q, text, n);
    for (size_t i = 0; n > 1 && i < sizeof refused_kinds / sizeof refused_kinds[0]; i++)
        if (text[1] == refused_kinds[i].letter)
            return REFUSE(r, "header: descr must be a dtype of real numbers (got \"%s\": %s)", q.text,
                          refused_kinds[i].text);
    for (size_t i = 0; n == 3 && i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (memcmp(text + 1, dtypes[i].text, 2) != 0) continue;
        bool one_byte = text[2] == '1';
        if (text[0] != '<' && text[0] != '>' && !(one_byte && text[0] == '|')) break;
        r->dtype = dtypes[i].dtype;
        r->swap = text[0] == '>' && !one_byte;
        memcpy(r->descr, text, 3);
        return MHA_OK;
    }
    return REFUSE(r, "header: descr must be a dtype of real numbers, such as \"<f4\" (got \"%s\")", q.text);
}

static mha_status read_order(reader *r)
{
    r->fortran = take(r, "True");
    return r->fortran || take(r, "False") ? MHA_OK : expected(r, "True or False");
}

/* Reads a shape such as (), (3,), (3, 4) or (3, 4,). Rejects (3), which is not a tuple. */
static mha_status read_shape(reader *r)
{
    if (!take(r, "(")) return expected(r, "a tuple for the shape");
    bool comma = true;
    while (!take(r, ")")) {
        if (!comma) return expected(r, "a comma or )");
        if (r->rank == MHA__RANK) return REFUSE(r, "header: shape must have at most %d dimensions", MHA__RANK);
        if (!take_dimension(r, &r->shape[r->rank])) return expected(r, "a dimension from 0 to 2^63 - 1");
        r->rank++;
        comma = take(r, ",");
    }
    return r->rank == 1 && !comma ? expected(r, "a comma after the only dimension") : MHA_OK;
}

static mha_status read_header(reader *r)
{
    static const struct {
        const char *key;
        mha_status (*read)(reader *);
    } fields[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};
    enum { FIELDS = sizeof fields / sizeof fields[0] };
    bool seen[FIELDS] = {false}, comma = true;
    if (!take(r, "{")) return expected(r, "{");
    while (!take(r, "}")) {
        const char *key;
        size_t n, i = 0;
        if (!comma || !take_string(r, &key, &n)) return expected(r, comma ? "a quoted key or }" : "a comma or }");
        while (i < FIELDS && (n != strlen(fields[i].key) || memcmp(key, fields[i].key, n) != 0))
            i++;
        mha__quoted q;
        if (i == FIELDS || seen[i])
            return REFUSE(r, "header: %s key \"%s\"", i == FIELDS ? "unknown" : "duplicate", mha__quote(&q, key, n));
        seen[i] = true;
        if (!take(r, ":")) return expected(r, ":");
        MHA__TRY(fields[i].read(r));
        comma = take(r, ",");
    }
    skip_blanks(r);
    if (r->at != r->end) return expected(r, "the end");
    for (size_t i = 0; i < FIELDS; i++)
        if (!seen[i]) return REFUSE(r, "header: %s is missing", fields[i].key);
    return MHA_OK;
}

/* ---- the file ---- */

/* Finds the start and length of the header, and checks that the whole header is inside the file. */
static mha_status find_header(const reader *r, const mha__source *source, size_t *begin, size_t *length)
{
    unsigned char head[12] = {0}; /* 6 bytes magic, 2 bytes version, 2 or 4 bytes length */
    size_t n = source->size < sizeof head ? source->size : sizeof head;
    MHA__TRY(mha__source_read(source, 0, head, n, r->err));
    if (n > 7 && (head[6] < 1 || head[6] > 3 || head[7] != 0))
        return REFUSE(r, ".npy version must be 1.0, 2.0 or 3.0 (got %d.%d)", head[6], head[7]);
    *begin = head[6] == 1 ? 10 : 12;
    if (n < *begin) return REFUSE(r, ".npy file must contain its whole header (got %zu bytes)", source->size);
    *length = head[8] | (size_t)head[9] << 8;
    if (head[6] > 1) *length |= (size_t)head[10] << 16 | (size_t)head[11] << 24;
    if (*length > source->size - *begin)
        return REFUSE(r, ".npy header length must be at most the %zu bytes that follow (got %zu)",
                      source->size - *begin, *length);
    if (*length > MHA__NPY_HEADER_BYTES)
        return REFUSE(r, ".npy header length must be at most %zu (got %zu)", MHA__NPY_HEADER_BYTES, *length);
    return MHA_OK;
}

static mha_status parse_file(reader *r, mha_ctx *ctx, const mha__source *source, size_t *data_begin)
{
    size_t begin = 0, length = 0;
    MHA__TRY(find_header(r, source, &begin, &length));
    *data_begin = begin + length;
    if (length == 0) return REFUSE(r, ".npy header length must be positive (got 0)");
    char *text = mha__alloc(ctx, length);
    if (!text) return mha__no_memory(r->err, length, "an .npy header");
    mha_status status = mha__source_read(source, begin, text, length, r->err);
    r->text = r->at = text;
    r->end = text + length;
    if (status == MHA_OK) status = read_header(r);
    mha__free(ctx, text);
    return status;
}

static mha_status check_size(const reader *r, size_t have, mha_tensor *t)
{
    size_t elements;
    if (!mha__bytes(r->shape, r->rank, 1, &elements) || !mha__mul(elements, mha_dtype_size(r->dtype), &t->bytes))
        return REFUSE(r, "header: shape: size must fit in %d bits", 8 * (int)sizeof(size_t));
    if (t->bytes != have)
        return REFUSE(r, "data must have the %zu bytes that the shape requires (got %zu)", t->bytes, have);
    t->elements = (int64_t)elements; /* cannot overflow, because the file contains this number of bytes */
    return MHA_OK;
}

/* ---- conversion of element order and byte order ---- */

/* Copies the elements into row-major, little-endian order. The index advances with the last dimension fastest, and
 * `from` advances by the strides of the file, in elements. */
static void reorder(const reader *r, const mha_tensor *t, const char *from, char *to)
{
    size_t each = mha_dtype_size(r->dtype);
    int64_t index[MHA__RANK] = {0}, stride[MHA__RANK], step = 1, at = 0;
    for (int i = 0; i < r->rank; i++) {
        int dim = r->fortran ? i : r->rank - 1 - i;
        stride[dim] = step;
        step *= r->shape[dim];
    }
    for (int64_t e = 0; e < t->elements; e++, to += each) {
        const char *element = from + (size_t)at * each;
        for (size_t k = 0; k < each; k++)
            to[k] = element[r->swap ? each - 1 - k : k];
        for (int dim = r->rank - 1; dim >= 0; dim--) {
            at += stride[dim];
            if (++index[dim] < r->shape[dim]) break;
            at -= stride[dim] * r->shape[dim];
            index[dim] = 0;
        }
    }
}

static mha_status load(const reader *r, mha_file *file, const mha__source *source, size_t begin, mha_tensor *t)
{
    const char *data = NULL;
    MHA__TRY(mha__data_load(file, source, begin, t->bytes, &data, r->err));
    t->data = data;
    if (t->bytes == 0 || (!r->swap && !(r->fortran && r->rank > 1))) return MHA_OK;
    void *ordered = NULL;
    MHA__TRY(mha__data_memory(file->ctx, r->path, t->bytes, &ordered, r->err));
    reorder(r, t, data, ordered);
    mha__data_drop(file);
    file->copy = ordered;
    t->data = ordered;
    return MHA_OK;
}

mha_status mha__npy_open(mha_file *file, const mha__source *source, mha_error *err)
{
    reader r = {.path = source->name, .err = err};
    size_t begin = 0;
    MHA__TRY(parse_file(&r, file->ctx, source, &begin));
    file->records = mha__calloc(file->ctx, 1, sizeof *file->records);
    file->shapes = mha__calloc(file->ctx, MHA__RANK, sizeof *file->shapes);
    file->strings = mha__calloc(file->ctx, sizeof r.descr, 1);
    if (!file->records || !file->shapes || !file->strings)
        return mha__no_memory(err, sizeof r.shape, "the tables of an .npy file");
    memcpy(file->shapes, r.shape, sizeof r.shape);
    memcpy(file->strings, r.descr, sizeof r.descr);
    mha_tensor *t = &file->records[0].tensor;
    *t = (mha_tensor){.name = "", .dtype = r.dtype, .dtype_name = file->strings, .rank = r.rank, .shape = file->shapes};
    MHA__TRY(check_size(&r, source->size - begin, t));
    file->count = 1;
    file->format = "npy";
    return load(&r, file, source, begin, t);
}

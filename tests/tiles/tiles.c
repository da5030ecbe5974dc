/* tiles.c - implements tiles.h. */
#include "tiles/tiles.h"

#include "support/check.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* Without the FMA instruction, each multiply-add is a call of libm. */
#if defined(__x86_64__)
#define FUSED __attribute__((target("avx2,fma")))
#else
#define FUSED
#endif

enum { DWORDS = TILES_BYTES / 4 };

typedef struct tile {
    bool valid;
    int rows, colsb;
    uint8_t row[TILES_ROWS][TILES_BYTES];
} tile;

static _Thread_local bool configured;
static _Thread_local tile tiles[TILES];
_Thread_local tiles_counts tiles_counted;

#define REQUIRE(condition) mock_assert(condition, #condition, __FILE__, __LINE__)

/* ---- configuration ---- */

static bool all_zero(const void *from, const void *end)
{
    for (const char *byte = from; byte < (const char *)end; byte++)
        if (*byte) return false;
    return true;
}

void tiles_release(void)
{
    configured = false;
    memset(tiles, 0, sizeof tiles);
}

void tiles_configure(const void *config)
{
    tiles_config c;
    memcpy(&c, config, sizeof c);
    tiles_release();
    REQUIRE(c.palette <= 1);
    if (c.palette == 0) return;
    REQUIRE(c.start_row == 0);
    REQUIRE(all_zero(c.reserved, c.reserved + sizeof c.reserved));
    REQUIRE(all_zero(c.colsb + TILES, c.colsb + 16) && all_zero(c.rows + TILES, c.rows + 16));
    for (int n = 0; n < TILES; n++) {
        REQUIRE(c.colsb[n] <= TILES_BYTES && c.rows[n] <= TILES_ROWS);
        REQUIRE((c.colsb[n] == 0) == (c.rows[n] == 0));
        tiles[n].valid = c.rows[n] != 0;
        tiles[n].rows = c.rows[n];
        tiles[n].colsb = c.colsb[n];
    }
    configured = true;
}

static tile *valid_tile(int number)
{
    REQUIRE(configured);
    REQUIRE(number >= 0 && number < TILES);
    REQUIRE(tiles[number].valid);
    return &tiles[number];
}

/* ---- memory ---- */

/* Writes a row, and sets the bytes after it to 0. */
static void write_row(tile *t, int r, const void *bytes)
{
    memset(t->row[r], 0, sizeof t->row[r]);
    memcpy(t->row[r], bytes, (size_t)t->colsb);
}

static void zero_upper_rows(tile *t, int from)
{
    for (int r = from; r < TILES_ROWS; r++)
        memset(t->row[r], 0, sizeof t->row[r]);
}

void tiles_load(int number, const void *base, int64_t stride)
{
    tile *t = valid_tile(number);
    zero_upper_rows(t, 0);
    for (int r = 0; r < t->rows; r++)
        write_row(t, r, (const char *)base + r * stride);
    tiles_counted.loads++;
}

void tiles_store(int number, void *base, int64_t stride)
{
    const tile *t = valid_tile(number);
    for (int r = 0; r < t->rows; r++)
        memcpy((char *)base + r * stride, t->row[r], (size_t)t->colsb);
    tiles_counted.stores++;
}

void tiles_zero(int number)
{
    zero_upper_rows(valid_tile(number), 0);
}

/* ---- products ---- */

typedef struct operands {
    tile *c;
    const tile *a, *b;
    int rows, columns, steps; /* of c, and dwords of a row of a; columns are dwords */
} operands;

/* Checks the operands as the exception class AMX-E4 specifies. */
static operands checked(int c, int a, int b)
{
    REQUIRE(c != a && c != b && a != b);
    const operands o = {valid_tile(c), valid_tile(a),      valid_tile(b),
                        tiles[c].rows, tiles[c].colsb / 4, tiles[a].colsb / 4};
    REQUIRE(o.c->colsb % 4 == 0 && o.a->colsb % 4 == 0 && o.b->colsb % 4 == 0);
    REQUIRE(o.c->rows == o.a->rows);
    REQUIRE(o.c->colsb == o.b->colsb);
    REQUIRE(o.steps == o.b->rows);
    tiles_counted.products++;
    return o;
}

static int32_t extend(uint8_t byte, bool sign)
{
    return sign ? (int8_t)byte : byte;
}

static uint32_t dot_of_bytes(uint32_t sum, const uint8_t *x, const uint8_t *y, bool x_signed)
{
    for (int i = 0; i < 4; i++)
        sum += (uint32_t)(extend(x[i], x_signed) * extend(y[i], true));
    return sum;
}

static void multiply_bytes(const operands *o, bool a_signed)
{
    for (int m = 0; m < o->rows; m++) {
        uint32_t sums[DWORDS];
        memcpy(sums, o->c->row[m], sizeof sums);
        for (int k = 0; k < o->steps; k++)
            for (int n = 0; n < o->columns; n++)
                sums[n] = dot_of_bytes(sums[n], o->a->row[m] + 4 * k, o->b->row[k] + 4 * n, a_signed);
        write_row(o->c, m, sums);
    }
    zero_upper_rows(o->c, o->rows);
}

void tiles_dpbusd(int c, int a, int b)
{
    const operands o = checked(c, a, b);
    multiply_bytes(&o, false);
}

void tiles_dpbssd(int c, int a, int b)
{
    const operands o = checked(c, a, b);
    multiply_bytes(&o, true);
}

static float flushed(float x)
{
    return fabsf(x) < FLT_MIN ? copysignf(0, x) : x;
}

/* Returns element i of a row of bf16. */
static float bf16_at(const uint8_t *row, int i)
{
    uint16_t half;
    memcpy(&half, row + 2 * i, sizeof half);
    const uint32_t word = (uint32_t)half << 16;
    float x;
    memcpy(&x, &word, sizeof x);
    return flushed(x);
}

/* Returns `sum`, which is fmaf(a, b, c), with denormal results flushed as by MXCSR.FTZ: a result is denormal if its
 * magnitude is below FLT_MIN after it is rounded to 24 bits with an unbounded exponent. fmaf rounds some of these
 * results to FLT_MIN. The same operation on larger operands, which cannot overflow then, tells them apart. */
FUSED static float flushed_sum(float a, float b, float c, float sum)
{
    const float scale = 0x1p32F;
    if (fabsf(sum) != FLT_MIN) return flushed(sum);
    const bool a_smaller = fabsf(a) < fabsf(b);
    const float wide = fmaf(a_smaller ? a * scale : a, a_smaller ? b : b * scale, c * scale);
    return fabsf(wide) < FLT_MIN * scale ? copysignf(0, sum) : sum;
}

/* Adds the products of one dword of A and a row of B to the chains, in two loops, of which compilers vectorize the
 * first. */
FUSED static void add_pair(const uint8_t *left, const float right[2 * DWORDS], float chain[2 * DWORDS])
{
    const float a[2] = {bf16_at(left, 0), bf16_at(left, 1)};
    float sum[2 * DWORDS];
    for (int n = 0; n < 2 * DWORDS; n++)
        sum[n] = fmaf(a[n % 2], right[n], chain[n]);
    for (int n = 0; n < 2 * DWORDS; n++)
        chain[n] = fabsf(sum[n]) > FLT_MIN ? sum[n] : flushed_sum(a[n % 2], right[n], chain[n], sum[n]);
}

void tiles_dpbf16ps(int c, int a, int b)
{
    const operands o = checked(c, a, b);
    float right[TILES_ROWS][2 * DWORDS] = {{0}};
    for (int k = 0; k < o.steps; k++)
        for (int n = 0; n < 2 * o.columns; n++)
            right[k][n] = bf16_at(o.b->row[k], n);
    for (int m = 0; m < o.rows; m++) {
        float total[DWORDS], chain[2 * DWORDS] = {0};
        memcpy(total, o.c->row[m], sizeof total);
        for (int k = 0; k < o.steps; k++)
            add_pair(o.a->row[m] + 4 * k, right[k], chain);
        for (int n = 0; n < o.columns; n++)
            total[n] = flushed(flushed(total[n]) + flushed(chain[2 * n] + chain[2 * n + 1]));
        write_row(o.c, m, total);
    }
    zero_upper_rows(o.c, o.rows);
}

/* golden_attention_case.c - reads the recorded operands of an operator case, and compares results with recorded
 * results. */
#include "conformance/golden_attention.h"
#include "output.h"
#include <math.h>
#include <string.h>

bool verify_records(const verify_entry *e, const char *output)
{
    size_t n;
    json_t *name;
    json_array_foreach(json_object_get(e->object, "outputs"), n,
                       name) if (json_is_string(name) && strcmp(json_string_value(name), output) == 0) return true;
    return false;
}

const mha_tensor *verify_operand(attention_case *c, const char *name, int64_t heads, int64_t length, int64_t width,
                                 int64_t stride[4])
{
    int64_t shape[4] = {c->B, heads, length, width}, packed[3] = {length, heads, width};
    if (!c->packed) return verify_tensor(&c->entry, c->file, name, 4, shape);
    stride[1] = width;
    stride[2] = heads * width;
    stride[3] = 1;
    return verify_tensor(&c->entry, c->file, name, 3, packed);
}

mha_cview verify_typed(attention_case *c, const char *name, int64_t heads, int64_t length, int64_t width)
{
    mha_cview view = {0};
    const mha_tensor *tensor = verify_operand(c, name, heads, length, width, view.stride);
    if (tensor && tensor->dtype != c->desc.dtype)
        verify_fault(&c->entry, "tensor \"%s\" must have dtype %s (got %s)", name, mha_dtype_name(c->desc.dtype),
                     tensor->dtype_name);
    view.data = verify_raw(&c->memory, &c->entry, tensor);
    return view;
}

/* Converts a 16-bit float with `fraction` fraction bits (7 in bf16, 10 in f16). */
static float value_of(uint16_t bits, int fraction)
{
    const int bias = (1 << (14 - fraction)) - 1, exponent = (bits & 0x7FFF) >> fraction;
    const int digits = bits & ((1 << fraction) - 1);
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 2 * bias + 1) return (float)(digits ? NAN : sign * INFINITY);
    if (exponent == 0) return (float)(sign * ldexp(digits, 1 - bias - fraction));
    return (float)(sign * ldexp(digits + (1 << fraction), exponent - bias - fraction));
}

/* Widens 16-bit results to float. The expected results were recorded before rounding, so *limit is increased by the
 * rounding error: half a unit in the last place of the largest value, per rounding. */
static const float *widened(attention_case *c, const void *got, const double *want, int64_t count, double *limit)
{
    const int fraction = c->desc.dtype == MHA_BF16 ? 7 : 10;
    float *wide = verify_alloc(&c->memory, count, sizeof *wide, &c->entry);
    double largest = 0;
    for (int64_t n = 0; wide && n < count; n++) {
        wide[n] = value_of(((const uint16_t *)got)[n], fraction);
        if (isfinite(want[n]) && fabs(want[n]) > largest) largest = fabs(want[n]);
    }
    *limit += c->roundings * ldexp(largest, -1 - fraction);
    return wide;
}

/* Returns the error that a 16-bit output adds to a gradient: D = rowsum(dO * O) uses the rounded O (docs/numerics.md).
 * The case's "atol_rounded_out" is the error of one rounding. */
static double rounded_out(const attention_case *c, const char *name)
{
    const verify_entry limits = {json_object_get(c->entry.object, "atol_rounded_out"), c->entry.name, c->entry.error};
    const bool half = c->desc.dtype == MHA_BF16 || c->desc.dtype == MHA_F16;
    return half && verify_has(&limits, name) ? c->roundings * verify_real(&limits, name) : 0;
}

static void compare(attention_case *c, verify_case *outcome, const char *name, const void *got, bool half)
{
    const mha_tensor *tensor = mha_file_find(c->file, name);
    verify_entry limits = {json_object_get(c->entry.object, "atol"), c->entry.name, c->entry.error};
    const double *want = verify_reals(&c->memory, &c->entry, tensor);
    double limit = verify_real(&limits, name) + rounded_out(c, name);
    if (want && got && half) got = widened(c, got, want, tensor->elements, &limit);
    if (want && got) verify_compare(outcome, name, got, want, tensor->elements, limit);
}

void verify_typed_result(attention_case *c, verify_case *outcome, const char *name, const void *got)
{
    compare(c, outcome, name, got, c->desc.dtype != MHA_F32);
}

void verify_float_result(attention_case *c, verify_case *outcome, const char *name, const float *got)
{
    compare(c, outcome, name, got, false);
}

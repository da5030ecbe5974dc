/* golden_draws.c - samples the tensors of a golden walk-through as PyTorch does, and compares them with the recording
 * and with the printed digits. */
#include "conformance/walkthroughs/golden_seeds.h"
#include "output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

float *seed_alloc(seed_case *c, int64_t count)
{
    return verify_alloc(&c->memory, count, sizeof(float), &c->entry);
}

int64_t seed_integer(const seed_case *c, const char *key)
{
    return verify_int(&c->config, key);
}

bool seed_has(const seed_case *c, const char *name)
{
    return mha_file_find(c->file, name) != NULL;
}

static float *stored(seed_case *c, const mha_tensor *tensor)
{
    float *copy = tensor ? seed_alloc(c, tensor->elements) : NULL;
    return copy && mha_tensor_read(tensor, MHA_F32, copy, c->entry.error) == MHA_OK ? copy : NULL;
}

float *seed_values(seed_case *c, const char *name, int rank, int64_t *shape)
{
    const mha_tensor *tensor = verify_tensor(&c->entry, c->file, name, rank, shape);
    for (int n = 0; tensor && n < c->drawn_count; n++)
        if (strcmp(c->drawn[n].name, name) == 0) return c->drawn[n].data;
    return stored(c, tensor);
}

bool seed_ok(seed_case *c, mha_status status, const mha_error *error)
{
    if (status != MHA_OK && !c->outcome->broken && !c->outcome->refused) verify_stopped(c->outcome, error);
    return status == MHA_OK;
}

/* ---- comparison ---- */

/* Returns the tolerance of a printed number: half a unit of its last digit, or one unit if it is printed with an
 * exponent. */
static double printed_limit(const char *text)
{
    const char *point = strchr(text, '.'), *e = strchr(text, 'e');
    const double digits = point ? (double)strspn(point + 1, "0123456789") : 0;
    const double unit = pow(10, (e ? strtod(e + 1, NULL) : 0) - digits);
    return (e ? 1 : 0.5) * unit * (1 + 1e-6);
}

static void compare_printed(seed_case *c, const char *name, const float *got, int64_t count)
{
    const json_t *printed = json_object_get(json_object_get(c->entry.object, "printed"), name);
    const json_t *values = json_object_get(printed, "values");
    if (!printed || !c->from_seed) return;
    if (json_array_size(values) != (size_t)count) {
        verify_fault(&c->entry, "\"%s\" must have %lld printed values (got %zu)", cli_shown(name), (long long)count,
                     json_array_size(values));
        return;
    }
    char what[80];
    snprintf(what, sizeof what, "%s as printed", name);
    for (int64_t n = 0; n < count; n++) {
        const char *text = json_string_value(json_array_get(values, (size_t)n));
        if (!text) {
            verify_fault(&c->entry, "printed values of \"%s\" must be strings", cli_shown(name));
            return;
        }
        const double want = strtod(text, NULL), had = (double)got[n];
        verify_measured(c->outcome, what, want == had ? 0 : fabs(want - had), printed_limit(text));
        c->log->printed++;
    }
}

void seed_compare(seed_case *c, const char *name, const float *got, int64_t count)
{
    const mha_tensor *tensor = mha_file_find(c->file, name);
    if (tensor && tensor->elements != count)
        verify_fault(&c->entry, "tensor \"%s\" must have %lld elements (got %lld)", cli_shown(name), (long long)count,
                     (long long)tensor->elements);
    const float *want = tensor && got && c->entry.error->status == MHA_OK ? stored(c, tensor) : NULL;
    for (int64_t n = 0; want && n < count; n++) {
        const double w = (double)want[n], g = (double)got[n];
        const bool same = w == g || (isnan(w) && isnan(g));
        verify_measured(c->outcome, name,
                        same                         ? 0
                        : isfinite(g) && isfinite(w) ? fabs(g - w)
                                                     : INFINITY,
                        c->atol + c->rtol * fabs(w));
    }
    if (want) compare_printed(c, name, got, count);
}

void seed_compare_integers(seed_case *c, const char *name, const int64_t *got, int64_t count)
{
    const mha_tensor *tensor = mha_file_find(c->file, name);
    if (!tensor) return;
    if (tensor->elements != count)
        verify_fault(&c->entry, "tensor \"%s\" must have %lld elements (got %lld)", cli_shown(name), (long long)count,
                     (long long)tensor->elements);
    const float *want =
        c->entry.error->status == MHA_OK ? stored(c, tensor) : NULL; /* small integers are stored as F32 */
    for (int64_t n = 0; want && n < count; n++)
        verify_measured(c->outcome, name, (double)want[n] != (double)got[n], 0);
}

/* ---- sampling ---- */

/* An entry of "draws" in the index. */
typedef struct draw {
    verify_entry entry; /* the entry, with the name of the case */
    const char *op, *tensor;
    int64_t count;
} draw;

/* Allocates a sampled tensor. The file must contain it with this shape. */
static float *place(seed_case *c, const char *name, int rank, const int64_t *shape)
{
    int64_t want[8];
    memcpy(want, shape, (size_t)rank * sizeof *want);
    const mha_tensor *tensor = verify_tensor(&c->entry, c->file, name, rank, want);
    if (tensor && c->drawn_count == SEED_DRAWS)
        verify_fault(&c->entry, "the number of sampled tensors must be at most %d", SEED_DRAWS);
    float *data = tensor && c->drawn_count < SEED_DRAWS ? seed_alloc(c, tensor->elements) : NULL;
    if (!data) return NULL;
    c->drawn[c->drawn_count].name = tensor->name;
    c->drawn[c->drawn_count++].data = data;
    return data;
}

/* Checks that the sampled tensor is bitwise identical to PyTorch's. */
static void must_equal(seed_case *c, const char *name, const float *got)
{
    const mha_tensor *tensor = mha_file_find(c->file, name);
    const float *want = got ? stored(c, tensor) : NULL;
    if (!want) return;
    int64_t different = 0;
    for (int64_t n = 0; n < tensor->elements; n++)
        different += memcmp(&want[n], &got[n], sizeof *got) != 0;
    verify_measured(c->outcome, name, (double)different, 0);
    compare_printed(c, name, got, tensor->elements);
}

static void draw_linear(seed_case *c, mha_rng *rng, const verify_entry *d)
{
    const int64_t in = verify_int(d, "in"), out = verify_int(d, "out"), shape[2] = {out, in};
    const char *prefix = verify_text(d, "prefix");
    char weight_name[120], bias_name[120];
    mha_error error = {0};
    snprintf(weight_name, sizeof weight_name, "%s.weight", prefix);
    snprintf(bias_name, sizeof bias_name, "%s.bias", prefix);
    float *weight = place(c, weight_name, 2, shape);
    float *bias = verify_bool(d, "bias") ? place(c, bias_name, 1, shape) : NULL;
    if (c->entry.error->status != MHA_OK) return;
    if (!seed_ok(c, mha_rng_linear(rng, in, out, weight, bias, &error), &error)) return;
    must_equal(c, weight_name, weight);
    if (bias) must_equal(c, bias_name, bias);
}

/* Keeps rows [from, to) of the second dimension of a tensor that was sampled for more tokens than the case has. */
static float *keep_tokens(seed_case *c, const char *name, const float *all, const int64_t *shape, const int64_t *range)
{
    const int64_t tokens = range[1] - range[0];
    float *kept = place(c, name, 3, (int64_t[]){shape[0], tokens, shape[2]});
    for (int64_t b = 0; kept && b < shape[0]; b++)
        memcpy(kept + b * tokens * shape[2], all + (b * shape[1] + range[0]) * shape[2],
               (size_t)(tokens * shape[2]) * sizeof *kept);
    return kept;
}

static mha_status fill(seed_case *c, mha_rng *rng, const verify_entry *d, float *data, const int64_t *shape,
                       int64_t count, mha_error *error)
{
    const char *op = verify_text(d, "op");
    if (strcmp(op, "rand") == 0) return mha_rng_rand(rng, data, count, error);
    if (strcmp(op, "randn") == 0) return mha_rng_randn(rng, data, count, error);
    if (strcmp(op, "embedding") == 0) return mha_rng_embedding(rng, shape[0], shape[1], -1, data, error);
    if (strcmp(op, "dropout_of_ones") == 0) {
        for (int64_t n = 0; n < count; n++)
            data[n] = 1;
        c->at_dropout = *rng;
        return mha_rng_dropout(rng, verify_real(d, "p"), MHA_RNG_ROUTE_DEFAULT, data, data, count, error);
    }
    verify_fault(&c->entry, "unknown draw \"%s\"", cli_shown(op));
    return MHA_OK;
}

static void draw_tensor(seed_case *c, mha_rng *rng, const verify_entry *d)
{
    const char *name = verify_text(d, "tensor");
    const int rank = (int)json_array_size(json_object_get(d->object, "shape"));
    int64_t shape[8], range[2] = {0, 0}, count = 1;
    mha_error error = {0};
    if (rank < 1 || rank > 4) verify_fault(&c->entry, "\"shape\" of a draw must have 1 to 4 dimensions (got %d)", rank);
    if (c->entry.error->status != MHA_OK) return;
    verify_ints(d, "shape", shape, rank);
    for (int n = 0; n < rank; n++) {
        if (shape[n] < 1 || shape[n] > 1 << 20 || count > 1 << 24)
            verify_fault(&c->entry, "\"shape\" of a draw is too large");
        count *= shape[n];
    }
    const bool cut = verify_has(d, "keep_tokens");
    if (cut) verify_ints(d, "keep_tokens", range, 2);
    if (cut && (rank != 3 || range[0] < 0 || range[1] > shape[1] || range[0] >= range[1]))
        verify_fault(&c->entry, "\"keep_tokens\" must be a range of the tensor's tokens");
    if (c->entry.error->status != MHA_OK) return;
    float *data = cut ? seed_alloc(c, count) : place(c, name, rank, shape);
    if (!data || !seed_ok(c, fill(c, rng, d, data, shape, count, &error), &error)) return;
    if (cut) data = keep_tokens(c, name, data, shape, range);
    must_equal(c, name, data);
}

static bool is_parameter(const verify_entry *d)
{
    const char *name = json_string_value(json_object_get(d->object, "tensor"));
    if (!name) name = json_string_value(json_object_get(d->object, "prefix"));
    return name && strncmp(name, "param.", 6) == 0;
}

void seed_draw(seed_case *c)
{
    size_t n;
    json_t *object;
    mha_rng rng;
    bool parameters = false;
    mha_rng_manual_seed(&rng, 0);
    json_array_foreach(json_object_get(c->entry.object, "draws"), n, object)
    {
        const verify_entry d = {object, c->entry.name, c->entry.error};
        if (c->entry.error->status != MHA_OK) return;
        if (strcmp(verify_text(&d, "op"), "manual_seed") == 0) {
            mha_rng_manual_seed(&rng, (uint64_t)verify_int(&d, "seed"));
            continue;
        }
        if (is_parameter(&d) && !parameters) {
            c->at_parameters = rng;
            parameters = true;
        }
        if (json_object_get(object, "prefix"))
            draw_linear(c, &rng, &d);
        else
            draw_tensor(c, &rng, &d);
    }
}

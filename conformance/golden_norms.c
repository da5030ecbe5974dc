/* golden_norms.c - compares norms and cross entropy, forward and backward, with golden results. */
#include "conformance/golden_ops.h"
#include <math.h>
#include <string.h>

/* ---- norms ---- */

/* Returns the largest intermediate value of y: an element of x before the mean is subtracted, in units of its row's
 * standard deviation. */
static double centered_size(const float *x, int64_t rows, int64_t width, double eps)
{
    double max = 0;
    for (int64_t r = 0; r < rows; r++, x += width) {
        double sum = 0, squares = 0, largest = 0;
        for (int64_t n = 0; n < width; n++)
            sum += (double)x[n], largest = fmax(largest, fabs((double)x[n]));
        for (int64_t n = 0; n < width; n++)
            squares += pow((double)x[n] - sum / (double)width, 2);
        max = fmax(max, squares > 0 ? largest / sqrt(squares / (double)width + eps) : 0);
    }
    return max;
}

/* Returns the largest intermediate value of dx before means are subtracted: weight * dy in the same units. */
static double slope_size(const mha_norm *norm, const float *x, const float *dy, const int64_t shape[2])
{
    double max = 0;
    for (int64_t r = 0; r < shape[0]; r++, x += shape[1], dy += shape[1]) {
        double mean = 0, square = 0, largest = 0;
        for (int64_t n = 0; n < shape[1]; n++) {
            mean += norm->kind == MHA_NORM_LAYER ? (double)x[n] / (double)shape[1] : 0;
            largest = fmax(largest, fabs((double)norm->weight[n] * (double)dy[n]));
        }
        for (int64_t n = 0; n < shape[1]; n++)
            square += pow((double)x[n] - mean, 2) / (double)shape[1];
        max = fmax(max, largest / sqrt(square + norm->eps));
    }
    return max;
}

static double largest_of(const float *x, int64_t count)
{
    double max = 0;
    for (int64_t n = 0; n < count; n++)
        max = fmax(max, fabs((double)x[n]));
    return max;
}

/* Runs the forward and backward pass of one kind of norm, and compares the results. */
static bool check_norm(ops_case *c, const char *kind, const mha_norm *norm, const int64_t shape[2], const float *x,
                       const float *dy, float *room[4])
{
    enum { Y, DX, DWEIGHT, DBIAS };
    static const char *const names[] = {"y", "dx", "dweight", "dbias"};
    char name[60];
    mha_error error = {0};
    /* the gradient of a row of one element is exactly 0, but the recorded gradient has a rounding error */
    static const double NOTHING = 1e-6;
    const double centered = norm->kind == MHA_NORM_LAYER ? centered_size(x, shape[0], shape[1], norm->eps) : 0;
    const double sizes[] = {centered, slope_size(norm, x, dy, shape),
                            largest_of(dy, shape[0] * shape[1]) * fmax(centered, NOTHING), 0};
    const int64_t counts[] = {shape[0] * shape[1], shape[0] * shape[1], shape[1], shape[1]};
    const mha_norm_gradient g = {.size = sizeof g,
                                 .rows = shape[0],
                                 .width = shape[1],
                                 .x = x,
                                 .dy = dy,
                                 .dx = room[DX],
                                 .dweight = memset(room[DWEIGHT], 0, (size_t)shape[1] * sizeof(float)),
                                 .dbias = memset(room[DBIAS], 0, (size_t)shape[1] * sizeof(float))};
    if (mha_norm_forward(c->ctx, norm, shape[0], shape[1], x, NULL, room[Y], &error) != MHA_OK ||
        mha_norm_backward(c->ctx, norm, &g, &error) != MHA_OK) {
        verify_stopped(&c->outcome, &error);
        return false;
    }
    for (int n = Y; n <= DBIAS; n++) {
        snprintf(name, sizeof name, "%s/%s", kind, names[n]);
        if (n < DBIAS || ops_find(c, name)) ops_compare(c, name, room[n], counts[n], 0, sizes[n]);
    }
    return true;
}

void ops_norms(ops_case *c)
{
    static const char *const kinds[] = {"layer_norm", "rms_norm", "rms_norm_plus_one"};
    int64_t width = verify_int(&c->entry, "size"), shape[2] = {-1, width};
    const double eps = verify_real(&c->entry, "eps");
    const float *x = ops_floats(c, "x", 2, shape), *dy = ops_floats(c, "dy", 2, shape);
    const float *bias = ops_floats(c, "bias", 1, &width), *weight = ops_floats(c, "weight", 1, &width);
    float *more = ops_room(c, width), *room[4] = {0};
    for (int n = 0; n < 4 && dy; n++)
        room[n] = ops_room(c, n < 2 ? shape[0] * width : width);
    if (c->entry.error->status != MHA_OK) return;
    for (int64_t n = 0; n < width; n++)
        more[n] = weight[n] + 1;
    for (int kind = 0; kind < 3; kind++) {
        const mha_norm norm = {.weight = kind == 2 ? more : weight,
                               .bias = kind == 0 ? bias : NULL,
                               .eps = eps,
                               .kind = kind == 0 ? MHA_NORM_LAYER : MHA_NORM_RMS};
        if (!check_norm(c, kinds[kind], &norm, shape, x, dy, room)) return;
    }
}

/* ---- cross entropy ---- */

void ops_cross_entropy(ops_case *c)
{
    int64_t shape[3] = {-1, -1, -1};
    double loss = 0;
    mha_error error = {0};
    const float *logits = ops_floats(c, "logits", 3, shape);
    const int64_t rows = shape[0] * shape[1];
    const mha_tensor *stored = ops_find(c, "labels"), *recorded = ops_find(c, "loss");
    if (!stored || stored->elements != rows || !recorded || recorded->elements != 1)
        verify_fault(&c->entry, "the file must have labels and a loss for \"logits\"");
    if (c->entry.error->status != MHA_OK) return;
    const int64_t *wide = verify_integers(&c->memory, &c->entry, stored);
    const double *want = verify_reals(&c->memory, &c->entry, recorded);
    int32_t *labels = verify_alloc(&c->memory, rows, sizeof *labels, &c->entry);
    float *dlogits = ops_room(c, rows * shape[2]);
    for (int64_t n = 0; wide && labels && n < rows; n++)
        labels[n] = (int32_t)wide[n];
    if (c->entry.error->status != MHA_OK) return;
    const mha_cross_entropy_args args = {
        .size = sizeof args, .rows = rows, .classes = shape[2], .logits = logits, .labels = labels, .dlogits = dlogits};
    if (mha_cross_entropy(c->ctx, &args, &loss, NULL, &error) != MHA_OK) {
        verify_stopped(&c->outcome, &error);
        return;
    }
    const float rounded = (float)loss;
    verify_compare(&c->outcome, "loss", &rounded, want, 1, 4 * 0x1p-24 * fmax(1, fabs(*want)));
    ops_compare(c, "dlogits", dlogits, rows * shape[2], 0, 0);
}

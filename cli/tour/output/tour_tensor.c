/* tour_tensor.c - prints a tensor as PyTorch does: four decimals, or none for integers; one format per tensor, derived
 * from its elements; rows wrapped at the line width; only the first and last three indices of each axis if the tensor
 * has more than 200 elements. */
#include "tour/tour.h"
#include <math.h>
#include <string.h>

enum { EDGE = 3, MANY = 200, INDENT = 7 /* INDENT: width of "tensor(" */ };

/* Format of all elements. `whole`: all elements are integral and have a trailing point unless they are `integer`. */
typedef struct format {
    bool summarized, integer, whole, scientific;
    int width;
    double min, max; /* magnitudes of the finite nonzero elements */
} format;

static bool left_out(const format *f, int64_t i, int64_t n)
{
    return f->summarized && n > 2 * EDGE && i >= EDGE && i < n - EDGE;
}

static bool counts(double x)
{
    return isfinite(x) && x != 0;
}

static int put(char text[32], const format *f, double x)
{
    if (isnan(x)) return snprintf(text, 32, "nan");
    if (f->scientific) return snprintf(text, 32, "%.4e", x);
    return snprintf(text, 32, !f->whole ? "%.4f" : f->integer || isinf(x) ? "%.0f" : "%.0f.", x);
}

/* ---- choice of the format ---- */

static void see_range(format *f, double x)
{
    if (!counts(x)) return;
    f->whole = f->whole && x == ceil(x);
    f->min = fmin(f->min, fabs(x));
    f->max = fmax(f->max, fabs(x));
}

static void see_width(format *f, double x)
{
    char text[32];
    const int width = put(text, f, x);
    if (counts(x) && width > f->width) f->width = width;
}

/* Calls see() for every element that will be printed. */
static void each(const tour_tensor *t, format *f, void (*see)(format *f, double x))
{
    for (int64_t n = 0; n < t->count; n++) {
        bool printed = true;
        int64_t rest = n;
        for (int axis = t->rank - 1; axis >= 0; axis--) {
            printed = printed && !left_out(f, rest % t->shape[axis], t->shape[axis]);
            rest /= t->shape[axis];
        }
        if (printed) see(f, (double)t->values[n]);
    }
}

static format choose(const tour_tensor *t)
{
    format f = {.summarized = t->count > MANY, .integer = t->look == TOUR_WHOLE, .whole = true, .width = 1};
    f.min = INFINITY;
    each(t, &f, see_range);
    f.scientific = !f.integer && f.max > 0 && (f.max / f.min > 1000 || f.max > 1e8 || f.min < 1e-4);
    each(t, &f, see_width);
    return f;
}

/* ---- output ---- */

static void put_number(FILE *out, const format *f, double x)
{
    char text[32];
    put(text, f, x);
    fprintf(out, "%*s", f->width, text);
}

static void put_row(FILE *out, const tour_tensor *t, const format *f, int64_t at, int indent, int columns)
{
    const int64_t n = t->shape[t->rank - 1];
    const int room = (columns - indent) / (f->width + 2), line = room > 0 ? room : 1;
    int entries = 0;
    for (int64_t i = 0; i < n; i++) {
        const bool gap = left_out(f, i, n);
        if (gap && i > EDGE) continue;
        if (entries > 0) fputs(entries % line == 0 ? "," : ", ", out);
        if (entries > 0 && entries % line == 0) fprintf(out, "\n%*s", indent + 1, "");
        if (gap)
            fputs(" ...", out);
        else
            put_number(out, f, (double)t->values[at * n + i]);
        entries++;
    }
}

static void put_axis(FILE *out, const tour_tensor *t, const format *f, int axis, int64_t at, int columns)
{
    const int indent = INDENT + axis;
    const int64_t n = t->shape[axis];
    fputc('[', out);
    if (axis == t->rank - 1) put_row(out, t, f, at, indent, columns);
    for (int64_t i = 0; axis < t->rank - 1 && i < n; i++) {
        const bool gap = left_out(f, i, n);
        if (gap && i > EDGE) continue;
        if (i > 0) {
            fputc(',', out);
            for (int line = axis; line < t->rank - 1; line++)
                fputc('\n', out);
            fprintf(out, "%*s", indent + 1, "");
        }
        if (gap)
            fputs("...", out);
        else
            put_axis(out, t, f, axis + 1, at * n + i, columns);
    }
    fputc(']', out);
}

void tour_tensor_print(FILE *out, const tour_tensor *t, int columns)
{
    const format f = choose(t);
    fputs("tensor(", out);
    if (t->rank == 0)
        put_number(out, &f, (double)t->values[0]);
    else
        put_axis(out, t, &f, 0, 0, columns);
    fputs(")\n", out);
}

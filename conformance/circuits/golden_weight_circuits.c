/* golden_weight_circuits.c - checks recorded circuits from weights ("raw." and "folded."). */
#include "conformance/circuits/golden_circuits.h"
#include "mha/weight_circuits.h"
#include <math.h>

/* Results of one folding. */
typedef struct folding {
    circuits_file *f;
    const mha_weight_circuits *c; /* NULL if the measurement failed */
    const char *prefix;           /* "raw" or "folded" */
    mha_error failed;
} folding;

/* Compares a tensor, or checks that the measure is refused: a recorded measure that is not defined for the family
 * counts as unsupported. */
static void check(const folding *x, const char *name, mha_circuit_kind what, int rank, const int64_t *shape,
                  const double *got)
{
    mha_error failed = x->failed;
    char tensor[60];
    const char *reason = mha_weight_circuits_reason(x->c, what);
    snprintf(tensor, sizeof tensor, "%s.%s", x->prefix, name);
    if (reason) {
        failed.status = MHA_ERR_UNSUPPORTED;
        snprintf(failed.message, sizeof failed.message, "%s", reason);
    }
    if (got) circuits_case(x->f, tensor, rank, shape, got, &failed);
}

static void check_singular(const folding *x, const char *name, mha_circuit_kind what)
{
    const int64_t H = x->f->info->heads, shape[] = {x->f->info->layers, H, x->f->info->head_dim};
    double *got = circuits_room(x->f, shape[0] * H * shape[2], sizeof *got);
    for (int64_t n = 0; got && n < shape[0] * H; n++) {
        int64_t count;
        const double *s = mha_weight_circuits_singular(x->c, what, n / H, n % H, &count);
        for (int64_t i = 0; i < count; i++)
            got[n * shape[2] + i] = s[i];
    }
    check(x, name, what, 3, shape, got);
}

static void check_copying(const folding *x)
{
    const int64_t H = x->f->info->heads, shape[] = {x->f->info->layers, H}, count = shape[0] * H;
    double *got = circuits_room(x->f, 3 * count, sizeof *got);
    for (int64_t n = 0; got && n < count; n++) {
        got[n] = mha_weight_circuits_copying(x->c, n / H, n % H, 0);
        got[count + n] = mha_weight_circuits_copying(x->c, n / H, n % H, 1);
        got[2 * count + n] = mha_weight_circuits_trace(x->c, n / H, n % H);
    }
    static const char *const names[] = {"ov_copying", "ov_copying_centred", "ov_trace"};
    for (int i = 0; i < 3; i++)
        check(x, names[i], MHA_CIRCUIT_COPYING, 2, shape, got ? got + i * count : NULL);
}

static void check_composition(const folding *x, const char *name, mha_circuit_kind what)
{
    const int64_t H = x->f->info->heads, all = x->f->info->layers * H, shape[] = {all, all};
    double *got = circuits_room(x->f, all * all, sizeof *got);
    for (int64_t n = 0; got && n < all * all; n++) {
        const int64_t s = n / all, t = n % all;
        got[n] = mha_weight_circuits_composition(x->c, what, s / H, s % H, t / H, t % H);
    }
    check(x, name, what, 2, shape, got);
}

static void check_folding(circuits_file *f, int raw)
{
    folding x = {.f = f, .prefix = raw ? "raw" : "folded"};
    const mha_weight_circuits_options o = {.size = sizeof o, .raw = raw};
    mha_weight_circuits *c = NULL;
    x.failed.status = mha_weight_circuits_measure(f->model, &o, &c, &x.failed);
    x.c = c;
    check_singular(&x, "qk_sv", MHA_CIRCUIT_QK);
    check_singular(&x, "qk_sv_previous", MHA_CIRCUIT_QK_PREVIOUS);
    check_singular(&x, "ov_sv", MHA_CIRCUIT_OV);
    check_copying(&x);
    check_composition(&x, "composition_q", MHA_CIRCUIT_COMPOSE_Q);
    check_composition(&x, "composition_k", MHA_CIRCUIT_COMPOSE_K);
    check_composition(&x, "composition_v", MHA_CIRCUIT_COMPOSE_V);
    mha_weight_circuits_free(c);
}

void circuits_check_weights(circuits_file *f)
{
    check_folding(f, 1);
    check_folding(f, 0);
}

/* golden_ops.c - compares single operations with golden results. Each kind of operation has one file, with tensors
 * named CASE/TENSOR. */
#include "conformance/golden_ops.h"

#include "output.h"
#include "session.h"
#include <math.h>
#include <string.h>

/* ---- rope ---- */

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* Returns the array `key`, which has one factor per pair of elements; NULL if the key is missing. */
static const double *factors(ops_case *c, const json_t *rope, const char *key, int64_t pairs)
{
    const json_t *array = json_object_get(rope, key);
    double *to = array ? verify_alloc(&c->memory, pairs, sizeof *to, &c->entry) : NULL;
    if (array && json_array_size(array) != (size_t)pairs)
        verify_fault(&c->entry, "\"%s\" must have %lld elements (got %zu)", key, (long long)pairs,
                     json_array_size(array));
    for (int64_t n = 0; to && n < pairs; n++)
        to[n] = json_number_value(json_array_get(array, (size_t)n));
    return to;
}

static mha_rope_kind rope_kind(ops_case *c, const json_t *rope)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope"};
    const char *name = json_string_value(json_object_get(rope, "rope_type"));
    for (int n = 0; name && n < (int)(sizeof names / sizeof *names); n++)
        if (strcmp(name, names[n]) == 0) return (mha_rope_kind)n;
    if (name) verify_fault(&c->entry, "\"rope_type\" must be a supported type (got \"%s\")", cli_shown(name));
    return MHA_ROPE_DEFAULT;
}

static mha_rope_options rope_options(ops_case *c)
{
    const json_t *rope = json_object_get(c->entry.object, "rope");
    const double part = number(rope, "partial_rotary_factor");
    const int64_t D = verify_int(&c->entry, "head_dim");
    mha_rope_options o = {.size = sizeof o, .head_dim = D, .theta = number(rope, "rope_theta")};
    o.kind = rope_kind(c, rope);
    o.rotary_dim = part > 0 ? (int64_t)((double)D * part) : 0;
    o.factor = number(rope, "factor");
    o.max_positions =
        verify_has(&c->entry, "max_position_embeddings") ? verify_int(&c->entry, "max_position_embeddings") : 0;
    o.original_positions = (int64_t)number(rope, "original_max_position_embeddings");
    o.low_freq = number(rope, "low_freq_factor"), o.high_freq = number(rope, "high_freq_factor");
    o.beta_fast = number(rope, "beta_fast"), o.beta_slow = number(rope, "beta_slow");
    o.no_truncate = json_is_false(json_object_get(rope, "truncate"));
    o.gain = number(rope, "attention_factor");
    o.mscale = number(rope, "mscale"), o.mscale_all = number(rope, "mscale_all_dim");
    o.short_by = factors(c, rope, "short_factor", D / 2), o.long_by = factors(c, rope, "long_factor", D / 2);
    return o;
}

/* Rotates x [rows, heads, D] and stores the result in `y`. */
static mha_status turn(ops_case *c, mha_rope_options *o, const int64_t *positions, const int64_t shape[3],
                       const float *x, float *y, mha_error *error)
{
    const int64_t pairs = (o->rotary_dim ? o->rotary_dim : o->head_dim) / 2, heads = shape[1], D = shape[2];
    float *cos = ops_room(c, shape[0] * pairs), *sin = ops_room(c, shape[0] * pairs);
    if (!cos || !sin) return MHA_OK; /* the error is already in entry.error */
    memcpy(y, x, (size_t)(shape[0] * heads * D) * sizeof *y);
    mha_status status = mha_rope_angles(o, positions, shape[0], cos, sin, error);
    return status != MHA_OK ? status : mha_rope_turn(c->ctx, o, cos, sin, shape[0], heads, y, heads * D, D, 0, error);
}

void ops_rope(ops_case *c)
{
    static const char *const ways[] = {"half_split", "interleaved"};
    int64_t shape[3] = {-1, -1, verify_int(&c->entry, "head_dim")};
    mha_rope_options o = rope_options(c);
    const float *x = ops_floats(c, "x", 3, shape);
    const mha_tensor *at = ops_find(c, "positions");
    if (!at || at->elements != shape[0]) verify_fault(&c->entry, "the file must have one position per row of \"x\"");
    const int64_t *positions = x ? verify_integers(&c->memory, &c->entry, at) : NULL;
    float *y = positions ? ops_room(c, shape[0] * shape[1] * shape[2]) : NULL;
    for (int n = 0; n < 2 && y; n++) {
        mha_error error = {0};
        o.interleaved = n;
        if (!ops_find(c, ways[n])) continue;
        if (turn(c, &o, positions, shape, x, y, &error) != MHA_OK) {
            verify_stopped(&c->outcome, &error);
            return;
        }
        ops_compare(c, ways[n], y, shape[0] * shape[1] * shape[2], 0, 0);
    }
}

/* ---- activations ---- */

/* Compares an activation function and its derivative, which is the backward pass of a gradient of ones. */
void ops_activation(ops_case *c)
{
    static const struct {
        const char *name;
        mha_activation activation;
    } known[] = {{"gelu", MHA_ACT_GELU},
                 {"gelu_new", MHA_ACT_GELU_TANH},
                 {"gelu_pytorch_tanh", MHA_ACT_GELU_TANH},
                 {"relu", MHA_ACT_RELU},
                 {"tanh", MHA_ACT_TANH},
                 {"silu", MHA_ACT_SILU},
                 {"quick_gelu", MHA_ACT_QUICK_GELU},
                 {"sigmoid", MHA_ACT_SIGMOID},
                 {"softplus", MHA_ACT_SOFTPLUS}};
    enum {
        KNOWN = sizeof known / sizeof *known,
        BEYOND = 3 /* number of infinite and NaN inputs at the end, for which torch returns other values */
    };
    int64_t count = -1;
    mha_error error = {0};
    char gradient[80];
    int n = 0;
    while (n < KNOWN && strcmp(c->entry.name, known[n].name) != 0)
        n++;
    if (n == KNOWN) {
        c->outcome.refused = true;
        snprintf(c->outcome.reason, sizeof c->outcome.reason, "activation is not supported");
        return;
    }
    const float *x = ops_floats(c, "x", 1, &count);
    float *y = x ? ops_room(c, count) : NULL, *dx = x ? ops_room(c, count) : NULL;
    if (!y || !dx) return;
    memcpy(y, x, (size_t)count * sizeof *y);
    for (int64_t i = 0; i < count; i++)
        dx[i] = 1;
    if (mha_activation_forward(c->ctx, known[n].activation, 1, count, y, &error) != MHA_OK ||
        mha_activation_backward(c->ctx, known[n].activation, 1, count, x, dx, dx, &error) != MHA_OK) {
        verify_stopped(&c->outcome, &error);
        return;
    }
    snprintf(gradient, sizeof gradient, "d_%s", c->entry.name);
    ops_compare(c, c->entry.name, y, count, BEYOND, 0);
    ops_compare(c, gradient, dx, count, BEYOND, 0);
}

/* ---- kinds of operations, and the cases of each kind ---- */

/* Kinds of operations. The cases of a kind are index[name][list], an array of named objects, or an object with one key
 * per case. A kind without a check function is reported as unsupported. */
static const struct kind {
    const char *name, *list;
    void (*check)(ops_case *c);
} kinds[] = {{"rope", "cases", ops_rope},
             {"norms", "cases", ops_norms},
             {"activations", "functions", ops_activation},
             {"cross_entropy", "cases", ops_cross_entropy},
             {"logits_processing", "names", NULL},
             {"torch_mha", "cases", ops_torch_mha}};

static void refuse_kind(verify_log *log, const char *kind)
{
    verify_case outcome;
    verify_begin(&outcome, kind, kind);
    outcome.refused = true;
    snprintf(outcome.reason, sizeof outcome.reason, "results of kind \"%s\" are not supported", kind);
    verify_end(log, &outcome);
}

static void check_case(cli_session *session, const struct kind *kind, const mha_file *file, const char *name,
                       const json_t *object, verify_log *log, mha_error *error)
{
    ops_case c = {.entry = {object, name ? name : "case without a name", error}, .file = file, .log = log};
    c.ctx = session->ctx;
    verify_begin(&c.outcome, kind->name, c.entry.name);
    kind->check(&c);
    verify_release(&c.memory);
    if (error->status == MHA_OK) verify_end(log, &c.outcome);
}

/* Checks all cases of a kind; returns an exit code. */
static int check_kind(cli_session *session, const struct kind *kind, const mha_file *file, json_t *list,
                      verify_log *log)
{
    size_t n;
    const char *key;
    json_t *object;
    mha_error error = {0};
    json_array_foreach(list, n, object)
    {
        const char *name = json_string_value(json_object_get(object, "name"));
        if (cli_signal()) return 128 + cli_signal();
        if (error.status == MHA_OK) check_case(session, kind, file, name, object, log, &error);
    }
    if (json_is_object(list))
        json_object_foreach(list, key, object) if (error.status == MHA_OK)
            check_case(session, kind, file, key, object, log, &error);
    return error.status == MHA_OK ? CLI_DONE : cli_refuse(session, &error);
}

int verify_ops(cli_session *session, const char *folder, const json_t *index, verify_log *log)
{
    int code = CLI_DONE;
    for (size_t n = 0; n < sizeof kinds / sizeof *kinds && code == CLI_DONE; n++) {
        char name[60];
        mha_file *file;
        mha_error error = {0};
        const verify_entry entry = {index, kinds[n].name, &error};
        json_t *list = json_object_get(json_object_get(index, kinds[n].name), kinds[n].list);
        if (!list) continue;
        if (!kinds[n].check) {
            refuse_kind(log, kinds[n].name);
            continue;
        }
        snprintf(name, sizeof name, "%s.safetensors", kinds[n].name);
        if (verify_file_open(session->ctx, folder, &entry, name, &file) != MHA_OK) return cli_refuse(session, &error);
        code = check_kind(session, &kinds[n], file, list, log);
        mha_file_free(file);
    }
    return code;
}

/* train_gates.c - checks the settings of --gates, which prunes heads during training, and prints the gates. */
#include "output.h"
#include "session.h"
#include "train/train_run.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

int train_settings_check_gates(const cli_session *s, const train_settings *t)
{
    const char *other = t->heads >= 0             ? "--heads"
                        : !isnan(t->gate_penalty) ? "--gate-penalty"
                        : !isnan(t->gate_rate)    ? "--gate-rate"
                        : t->gates_start >= 0     ? "--gates-start"
                        : t->gates_end >= 0       ? "--gates-end"
                        : t->gates_only           ? "--gates-only"
                        : t->gates_together       ? "--gates-together"
                                                  : NULL;
    if (!t->gates && other) return cli_usage(s, "%s requires --gates", other);
    if (t->gates && strcmp(t->gates, "l0") != 0 && strcmp(t->gates, "l1") != 0)
        return cli_usage(s, "--gates must be one of l0, l1 (got \"%s\")", cli_shown(t->gates));
    const char *unused = !isnan(t->gate_rate) ? "--gate-rate" : !isnan(t->gate_penalty) ? "--gate-penalty" : NULL;
    if (t->gates && strcmp(t->gates, "l0") == 0 && t->heads >= 0 && unused)
        return cli_usage(s,
                         "%s must not be combined with --gates l0 and --heads, because each gate is then computed from "
                         "the value of its head",
                         unused);
    if (t->gates_only && t->gates_together)
        return cli_usage(s, "--gates-only and --gates-together are mutually exclusive");
    return CLI_DONE;
}

/* Returns true if gates are trained before weights, the default for a trained model. By default, gates and weights of a
 * new model are trained together. */
static bool gates_come_first(const train_settings *t)
{
    return !t->gates_only && !t->gates_together && !(t->shape && t->gates_start == 0);
}

/* Returns the default of --gates-end. The steps after this step repair the loss: three quarters of the remaining steps
 * if weights are trained. With --gates-only, the default leaves half of the steps for l1, because its open gates are
 * still trained, and none for l0. */
static long long find_end(const train_settings *t)
{
    const long long left = t->steps - t->gates_start, part = t->gates_only ? 2 : 4;
    const bool mends = !t->gates_only || strcmp(t->gates, "l1") == 0;
    return mends && left >= part ? t->gates_start + left / part : t->steps;
}

int train_settings_fit_gates(const cli_session *s, train_settings *t)
{
    if (!t->gates) return CLI_DONE;
    t->follows[TRAIN_GATES_END] = t->gates_end < 0;
    if (t->gates_start < 0) t->gates_start = 0;
    if (t->gates_end < 0) t->gates_end = find_end(t);
    if (t->gates_end <= t->gates_start)
        return cli_usage(
            s, "--gates-end must be after --gates-start = %lld (got %lld): give more --steps, or a later --gates-end",
            t->gates_start, t->gates_end);
    if (t->heads < 0 || t->gates_end <= t->steps) return CLI_DONE;
    return cli_usage(s, "--gates-end %lld must not be after the last of %lld steps if --heads %lld is given",
                     t->gates_end, t->steps, t->heads);
}

int train_run_join_gates(train_run *run)
{
    mha_error error = {0};
    if (!run->t.gates || run->was_end >= 0 || run->t.gates_start >= 0) return CLI_DONE;
    const int64_t taken = mha_train_store_step(run->store, &error);
    if (error.status != MHA_OK) return cli_refuse(run->s, &error);
    if (taken > 0 && taken <= INT64_C(1) << 40) run->t.gates_start = taken; /* the trainer checks other values */
    return CLI_DONE;
}

mha_train_gates train_settings_gates_of(const train_settings *t)
{
    if (!t->gates) return (mha_train_gates){0};
    return (mha_train_gates){.penalty = strcmp(t->gates, "l0") == 0 ? MHA_GATES_L0 : MHA_GATES_L1,
                             .strength = isnan(t->gate_penalty) ? 0 : t->gate_penalty,
                             .rate = isnan(t->gate_rate) ? 0 : t->gate_rate,
                             .start = t->gates_start,
                             .end = t->gates_end,
                             .heads = t->heads > 0 ? t->heads : 0,
                             .only = t->gates_only,
                             .first = gates_come_first(t)};
}

void train_run_keep_settled(train_run *run)
{
    train_settings *t = &run->t;
    const bool settled = t->gates && run->was_end >= 0 && run->begun >= run->was_end;
    if (!settled) return;
    if (t->heads != run->was_heads || (t->gates_end != run->was_end && !t->follows[TRAIN_GATES_END]))
        cli_say(run->s, "the gates were frozen after step %lld: ignoring heads and gates_end", run->was_end);
    t->heads = run->was_heads;
    t->gates_end = run->was_end;
}

/* ---- results ---- */

static float *read_gates(const train_run *run, const mha_model_info **info)
{
    *info = mha_model_describe(mha_trainer_model(run->trainer));
    float *gates = calloc((size_t)((*info)->layers * (*info)->heads), sizeof *gates);
    if (gates) mha_trainer_gates(run->trainer, gates, NULL);
    return gates;
}

int train_run_put_gates(const train_run *run)
{
    const mha_model_info *info;
    FILE *out = run->s->out;
    if (!run->t.gates) return CLI_DONE;
    float *gates = read_gates(run, &info);
    if (!gates) return cli_error(run->s, CLI_FAILED, "out of memory for the gates");
    fprintf(out, "%lld open heads\n", (long long)mha_trainer_gates(run->trainer, NULL, NULL));
    for (int64_t l = 0; l < info->layers; l++) {
        fprintf(out, "layer %-3lld", (long long)l);
        for (int64_t h = 0; h < info->heads_per_layer[l]; h++)
            fprintf(out, gates[l * info->heads + h] != 0 ? " %4.2f" : "    .", (double)gates[l * info->heads + h]);
        fputc('\n', out);
    }
    free(gates);
    return CLI_DONE;
}

int train_run_add_gates(const train_run *run, json_t *result)
{
    const mha_model_info *info;
    if (!run->t.gates) return CLI_DONE;
    float *gates = read_gates(run, &info);
    json_t *layers = gates ? json_array() : NULL;
    for (int64_t l = 0; layers && l < info->layers; l++) {
        json_t *layer = json_array();
        for (int64_t h = 0; h < info->heads_per_layer[l]; h++)
            json_array_append_new(layer, cli_real((double)gates[l * info->heads + h]));
        json_array_append_new(layers, layer);
    }
    free(gates);
    if (!layers) return cli_error(run->s, CLI_FAILED, "out of memory for the gates");
    json_object_set_new(result, "heads", json_integer(mha_trainer_gates(run->trainer, NULL, NULL)));
    json_object_set_new(result, "gates", layers);
    return CLI_DONE;
}

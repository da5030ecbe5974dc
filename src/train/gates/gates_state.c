/* gates_state.c - computes the expected number of open heads, and the current gates, which are multiplied into the
 * model. */
#include "train/gates/trainer_gates.h"

static double open_part(const mha__gates *g, double value)
{
    return g->o.penalty == MHA_GATES_L0 ? mha__gate_open(value) : value > 0 ? 1 : 0;
}

bool mha__gates_begun(const mha__gates *g)
{
    return g->control[MHA__GATES_TAKEN] > 0 || mha__gates_settled(g);
}

double mha__gates_expected(const mha__gates *g)
{
    double open = 0;
    if (!mha__gates_begun(g)) return (double)g->total;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        open += mha__gates_has(g, at) ? open_part(g, g->value[at]) : 0;
    return open;
}

static double shown_gate(const mha__gates *g, double value)
{
    if (!mha__gates_begun(g)) return 1;
    return g->o.penalty == MHA_GATES_L0 ? mha__gate_mean(value) : value;
}

void mha__gates_show(mha__gates *g)
{
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        g->shown[at] = mha__gates_has(g, at) ? (float)shown_gate(g, g->value[at]) : 0;
}

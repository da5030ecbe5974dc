/* learning_rate.c - computes the learning rate of each step: linear warm-up, then a cosine from the peak rate to the
 * floor. Steps that train only the gates are not counted. */
#include "base/struct_size.h"
#include "math/pi.h"
#include "train/trainer_struct.h"
#include <math.h>

int64_t mha__train_own_step(const mha_train_options *o, int64_t step)
{
    const mha_train_gates *g = &o->gates;
    if (!g->first || step <= g->start) return step;
    return step <= g->end ? 0 : step - (g->end - g->start);
}

double mha_train_rate(const mha_train_options *options, int64_t step)
{
    mha_train_options o;
    if (mha__options_need(&o, sizeof o, options, "mha_train_options", NULL) != MHA_OK) return 0;
    const double rate = o.rate != 0 ? o.rate : MHA__TRAIN_RATE;
    const int64_t own = mha__train_own_step(&o, step),
                  steps = o.steps - (o.gates.first ? o.gates.end - o.gates.start : 0);
    if (!own || own < o.warmup) return own ? rate * (double)own / (double)o.warmup : 0;
    if (!o.steps) return rate;
    if (own >= steps) return o.floor;
    const double done = (double)(own - o.warmup) / (double)(steps - o.warmup);
    return o.floor + (rate - o.floor) * 0.5 * (1 + cos(MHA__PI * done));
}

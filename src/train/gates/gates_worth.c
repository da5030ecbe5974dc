/* gates_worth.c - updates L0 gates with a target head count: the more a head's worth exceeds the price of a head, the
 * further its gate opens.
 *
 * A hard concrete gate z is a function of its log-alpha a and of u, uniform in (0, 1). The mean of dL/dz dz/du over
 * samples equals the change in the loss from z = 0 to z = 1 for any a. Therefore every sample estimates, without an
 * extra pass, how much the loss would rise if the gate were closed and the other gates kept their sampled values: the
 * worth of the head. Gradient descent is not needed, because a is computed from the worth and the price, and the price
 * from the target head count. */
#include "train/gates/trainer_gates.h"
#include "train/trainer_struct.h"
#include <math.h>

static const double DECAY = 0.9; /* decay of the running mean of worth */
/* width of a gate's transition from closed to open, in units of the price */
static const double BLUR = 0.25;
/* range of log-alpha during training: within it, a gate can still change, and a nearly closed gate is sometimes sampled
 * open */
static const double LOWEST = -4, HIGHEST = 2.5;
static const double CLOSED = -32; /* log-alpha of a permanently closed gate */
static const int64_t wait = 10;   /* steps until the worth is accurate enough to set a price or close a gate */

bool mha__gates_priced(const mha__gates *g)
{
    return g->o.penalty == MHA_GATES_L0 && g->o.heads > 0;
}

static bool is_open(const mha__gates *g, int64_t at)
{
    return at % g->heads < g->layer[at / g->heads].heads && g->value[at] > CLOSED;
}

/* Returns the number of open gates in a layer (-1 = in all layers). */
static int64_t count_open(const mha__gates *g, int64_t layer)
{
    int64_t open = 0;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        open += is_open(g, at) && (layer < 0 || at / g->heads == layer);
    return open;
}

/* Returns the open gate with the least worth, excluding the only open gate of a layer; on ties, the last of them; -1 if
 * there is none. */
static int64_t find_least(const mha__gates *g)
{
    int64_t least = -1;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (is_open(g, at) && count_open(g, at / g->heads) > 1 && (least < 0 || g->mean[at] >= g->mean[least]))
            least = at;
    return least;
}

/* Closes the gates with the least worth until the target is reached. Later steps measure the worth of the other heads
 * without the closed heads. */
static void close_beyond(mha__gates *g, double target)
{
    for (int64_t open = count_open(g, -1); open > g->o.heads && (double)open - target > 1 - 1e-9; open--) {
        const int64_t at = find_least(g);
        if (at < 0) return;
        g->value[at] = CLOSED;
    }
}

static void set_price(mha__gates *g, double price)
{
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (is_open(g, at)) g->value[at] = fmin(fmax((-g->mean[at] / price - 1) / BLUR, LOWEST), HIGHEST);
}

/* Returns the price at which the expected number of open gates is `target`. Bisection finds the price, because this
 * number falls as the price rises. */
static double find_price(mha__gates *g, double target)
{
    double low = log(1e-6), high = log(1e3);
    for (int halving = 0; halving < 60; halving++) {
        const double middle = (low + high) / 2;
        set_price(g, exp(middle));
        if (mha__gates_expected(g) > target)
            low = middle;
        else
            high = middle;
    }
    return exp(high);
}

double mha__gates_move_priced(mha__gates *g, double target, double scale)
{
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        g->mean[at] += (1 - DECAY) * (g->gradient[at] * scale - g->mean[at]);
    if (g->control[MHA__GATES_TAKEN] <= (double)wait) return 0;
    close_beyond(g, target);
    return find_price(g, target);
}

/* gates_worth.c - L0 gates of which a given number is to stay: as open as each is worth the price of a head.
 *
 * A hard concrete gate z is a function of its log-alpha a and of u, drawn evenly in (0, 1). The mean of dL/dz dz/du
 * over draws is what the loss changes from z = 0 to z = 1, whatever a is: so every drawn gate says, without a pass of
 * its own, by how much the loss would rise if it closed, beside the others as they are drawn. That is its worth. There
 * is nothing to descend then: a follows from worth and price, and the price from how many gates are to be open. */
#include "train/trainer.h"
#include <math.h>

static const double memory = 0.9;               /* of the running mean of worth */
static const double blur = 0.25;                /* of a gate, in prices: how little worth still opens it */
static const double lowest = -4, highest = 2.5; /* while it learns: from there it finds back, and is drawn closed too */
static const double closed = -32;               /* for good */
static const int64_t wait = 10; /* steps before worth is known well enough to close one, or for a price */

bool mha__gates_priced(const mha__gates *g)
{
    return g->o.penalty == MHA_GATES_L0 && g->o.heads > 0;
}

static bool is_open(const mha__gates *g, int64_t at)
{
    return at % g->heads < g->layer[at / g->heads].heads && g->value[at] > closed;
}

/* Of one layer, or of all (-1). */
static int64_t count_open(const mha__gates *g, int64_t layer)
{
    int64_t open = 0;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        open += is_open(g, at) && (layer < 0 || at / g->heads == layer);
    return open;
}

/* The open gate of least worth that is not the last of its layer; of equal ones the last. */
static int64_t find_least(const mha__gates *g)
{
    int64_t least = -1;
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (is_open(g, at) && count_open(g, at / g->heads) > 1 && (least < 0 || g->mean[at] >= g->mean[least]))
            least = at;
    return least;
}

/* Gates that the target has no place for: closed one by one, so that the others are measured without them. */
static void close_beyond(mha__gates *g, double target)
{
    for (int64_t open = count_open(g, -1); open > g->o.heads && (double)open - target > 1 - 1e-9; open--) {
        const int64_t at = find_least(g);
        if (at < 0) return;
        g->value[at] = closed;
    }
}

static void set_price(mha__gates *g, double price)
{
    for (int64_t at = 0; at < g->layers * g->heads; at++)
        if (is_open(g, at)) g->value[at] = fmin(fmax((-g->mean[at] / price - 1) / blur, lowest), highest);
}

/* The expected number falls with the price. */
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
        g->mean[at] += (1 - memory) * (g->gradient[at] * scale - g->mean[at]);
    if (g->control[MHA__GATES_TAKEN] <= (double)wait) return 0;
    close_beyond(g, target);
    return find_price(g, target);
}

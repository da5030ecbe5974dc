/* hard_concrete.c - the formulas of hard concrete gates (Louizos, Welling, Kingma 2018, with their constants): a
 * stretched logistic sample clamped to 0..1. The values 0 and 1 have nonzero probability, and the values between them
 * have a gradient. */
#include "train/gates/trainer_gates.h"
#include <math.h>

static const double BETA = 2.0 / 3, LOW = -0.1, HIGH = 1.1;

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double cut(double s)
{
    return fmin(1, fmax(0, s * (HIGH - LOW) + LOW));
}

double mha__gate_open(double a)
{
    return sigmoid(a - BETA * log(-LOW / HIGH));
}

double mha__gate_mean(double a)
{
    return cut(sigmoid(a));
}

double mha__gate_sampled(double a, double u, double *slope)
{
    const double s = sigmoid((log(u) - log1p(-u) + a) / BETA), z = cut(s);
    *slope = z > 0 && z < 1 ? (HIGH - LOW) * s * (1 - s) / BETA : 0;
    return z;
}

/* rng.h - PyTorch's random numbers on the CPU, bit for bit: a seed gives the tensors, layers and dropout masks here
 * that it gives there, so that published walk-throughs print the same digits.
 *
 *     mha_rng rng;
 *     mha_rng_manual_seed(&rng, 123);              torch.manual_seed(123)
 *     mha_rng_randn(&rng, x, 2 * 5 * 6, NULL);     x = torch.randn(2, 5, 6)
 *     mha_rng_linear(&rng, 6, 3, w, NULL, NULL);   nn.Linear(6, 3, bias=False).weight
 *
 * The engine is MT19937 (Matsumoto, Nishimura 1998). Each call takes from the stream what PyTorch's call takes, in its
 * order; tensors are filled row-major. Checked against PyTorch 2.13, float32 and float64, x86-64.
 *
 * Which bits depend on the machine: those that come from the C library's log, log1p, sin and cos in double
 * (mha_rng_exponential, mha_rng_randn_f64, mha_rng_randn of fewer than 16 numbers: equal wherever PyTorch runs with
 * the same C library, elsewhere but for a last bit in rare cases), and mha_rng_randn with MHA_RNG_SCALAR. No others.
 *
 * All functions here fail only for wrong arguments (MHA_ERR_ARG: nothing is drawn or written), allocate nothing
 * and may be called from any thread; one mha_rng belongs to one thread at a time. Cost: a few nanoseconds a number.
 */
#ifndef MHA_RNG_H
#define MHA_RNG_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PyTorch rounds uniform_ and normal_ (16 numbers and more) in one of two ways, by the CPU it runs on. About half of
 * the numbers differ in the last bit. */
typedef enum mha_rng_kernels {
    MHA_RNG_VECTOR = 0, /* AVX2 and AVX-512: any current x86-64 machine */
    MHA_RNG_SCALAR      /* ATEN_CPU_CAPABILITY=default; normal_ follows this machine's logf, sinf and cosf */
} mha_rng_kernels;

/* How a mask of one probability is drawn. */
typedef enum mha_rng_route {
    MHA_RNG_ROUTE_DEFAULT = 0, /* PyTorch since 2025; before, without MKL: ARM, AMD, macOS */
    MHA_RNG_ROUTE_MKL          /* PyTorch before 2025 with MKL on Intel's CPUs: one draw seeds a 31-bit generator */
} mha_rng_route;

/* A place in the stream. Plain memory: copy it to come back to this place, free nothing. All fields but `kernels` are
 * the library's. Before mha_rng_manual_seed it is no generator. */
typedef struct mha_rng {
    uint32_t state[624];
    int32_t used;            /* words of `state` already given out */
    int32_t has_spare;       /* a call for fewer than 16 normal numbers can leave one, for the next such call */
    double spare;            /* that number */
    mha_rng_kernels kernels; /* mha_rng_manual_seed sets it to MHA_RNG_VECTOR; set it after that for the other */
} mha_rng;

/* torch.manual_seed(seed). Only the low 32 bits count, as there. */
MHA_API void mha_rng_manual_seed(mha_rng *rng, uint64_t seed);
/* The next 32 bits as they are. */
MHA_API uint32_t mha_rng_next(mha_rng *rng);

/* torch.rand(n): [0, 1) in steps of 2^-24, of 2^-53 for float64. */
MHA_API mha_status mha_rng_rand(mha_rng *rng, float *x, int64_t n, mha_error *err);
MHA_API mha_status mha_rng_rand_f64(mha_rng *rng, double *x, int64_t n, mha_error *err);

/* x.uniform_(low, high): low <= x < high; low where rounding would give high. Errors: low > high, or one of them or
 * their difference not finite in float32. */
MHA_API mha_status mha_rng_uniform(mha_rng *rng, double low, double high, float *x, int64_t n, mha_error *err);

/* torch.randn(n), and x.normal_(mean, std), after Box and Muller 1958. Fewer than 16 numbers come in pairs, whose
 * second one is kept for the next such call, of either type; more come in blocks of 16, and a rest takes 16 more draws.
 * So n is the size of a whole tensor: two calls for 20 do not give what one for 40 gives. Errors: std negative, mean or
 * std not finite. */
MHA_API mha_status mha_rng_randn(mha_rng *rng, float *x, int64_t n, mha_error *err);
MHA_API mha_status mha_rng_normal(mha_rng *rng, double mean, double std, float *x, int64_t n, mha_error *err);
MHA_API mha_status mha_rng_randn_f64(mha_rng *rng, double *x, int64_t n, mha_error *err);

/* x.exponential_(), of rate 1. */
MHA_API mha_status mha_rng_exponential(mha_rng *rng, float *x, int64_t n, mha_error *err);

/* torch.randint(low, high, (n,)): low <= x < high. Errors: low >= high. */
MHA_API mha_status mha_rng_randint(mha_rng *rng, int64_t low, int64_t high, int64_t *x, int64_t n, mha_error *err);

/* torch.randperm(n): 0 .. n-1 in random order. Errors: n > 214748363, where PyTorch goes another way. */
MHA_API mha_status mha_rng_randperm(mha_rng *rng, int64_t *x, int64_t n, mha_error *err);

/* torch.multinomial(weights, n, replacement) of `count` weights: indices, n of them. Without replacement (and for n =
 * 1) each index comes at most once. `work` [count] is scratch. Errors: a weight negative or not finite, all of them
 * zero, or without replacement n more than the weights that are not zero. */
MHA_API mha_status mha_rng_multinomial(mha_rng *rng, const float *weights, int64_t count, int replacement, float *work,
                                       int64_t *x, int64_t n, mha_error *err);

/* x.bernoulli_(p): 1 with probability p, else 0. Errors: p outside [0, 1]. */
MHA_API mha_status mha_rng_bernoulli(mha_rng *rng, double p, mha_rng_route route, uint8_t *x, int64_t n,
                                     mha_error *err);

/* The mask of dropout(x, p) in training: 1 = kept, 0 = dropped, with probability p. As the `dropout_keep` of attn.h it
 * runs over [B, H, Lq, Lk]. p = 0 and p = 1 draw nothing. Errors: p outside [0, 1]. */
MHA_API mha_status mha_rng_dropout_mask(mha_rng *rng, double p, mha_rng_route route, uint8_t *keep, int64_t n,
                                        mha_error *err);
/* y = dropout(x, p) in training: x / (1 - p) where kept, x * 0 elsewhere (so a dropped infinity is NaN). y may be x. */
MHA_API mha_status mha_rng_dropout(mha_rng *rng, double p, mha_rng_route route, const float *x, float *y, int64_t n,
                                   mha_error *err);

/* ---- layers as PyTorch's constructors fill them; draws come in the order of construction ---- */

/* init.kaiming_uniform_(weight, a) and init.xavier_uniform_(weight, gain) of a weight [out, in]; He et al. 2015, Glorot
 * and Bengio 2010. Errors: in or out below 1, their product too large, a or gain not finite. */
MHA_API mha_status mha_rng_kaiming_uniform(mha_rng *rng, int64_t in, int64_t out, double a, float *weight,
                                           mha_error *err);
MHA_API mha_status mha_rng_xavier_uniform(mha_rng *rng, int64_t in, int64_t out, double gain, float *weight,
                                          mha_error *err);

/* nn.Linear(in, out): weight [out, in], then bias [out], both uniform in +-1/sqrt(in). NULL as bias: bias=False. */
MHA_API mha_status mha_rng_linear(mha_rng *rng, int64_t in, int64_t out, float *weight, float *bias, mha_error *err);

/* nn.Embedding(rows, width, padding_idx): weight [rows, width] normal; row `padding` is 0 though drawn; -1 = none. */
MHA_API mha_status mha_rng_embedding(mha_rng *rng, int64_t rows, int64_t width, int64_t padding, float *weight,
                                     mha_error *err);

/* nn.MultiheadAttention(width, heads) of equal widths: in_weight [3 width, width], out_weight [width, width], and
 * in_bias [3 width], out_bias [width], which become 0; both NULL: bias=False. Errors: only one of them NULL. */
MHA_API mha_status mha_rng_multihead(mha_rng *rng, int64_t width, float *in_weight, float *in_bias, float *out_weight,
                                     float *out_bias, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

/* rng.h - PyTorch's CPU random numbers, bit-exact: the same seed gives the same tensors, layers and dropout masks, so
 * that published walk-throughs print the same values.
 *
 *     mha_rng rng;
 *     mha_rng_manual_seed(&rng, 123);              torch.manual_seed(123)
 *     mha_rng_randn(&rng, x, 2 * 5 * 6, NULL);     x = torch.randn(2, 5, 6)
 *     mha_rng_linear(&rng, 6, 3, w, NULL, NULL);   nn.Linear(6, 3, bias=False).weight
 *
 * The generator is MT19937 (Matsumoto, Nishimura 1998). Each call consumes the stream exactly as PyTorch's call does;
 * tensors are filled in row-major order. Checked against PyTorch 2.13, float32 and float64, x86-64.
 *
 * Platform dependence: mha_rng_exponential, mha_rng_randn_f64, and mha_rng_randn of fewer than 16 elements use the C
 * library's log, log1p, sin and cos in double. They may rarely differ in the last bit from PyTorch built with another C
 * library. The same applies to mha_rng_randn with MHA_RNG_SCALAR. All other results are the same everywhere.
 *
 * All functions fail only for invalid arguments (MHA_ERR_ARG: nothing is sampled or written) and allocate nothing. They
 * may be called from any thread, but two threads must not use the same mha_rng at the same time. Cost: a few
 * nanoseconds per element. */
#ifndef MHA_RNG_H
#define MHA_RNG_H

#include "mha/types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PyTorch rounds uniform_ and normal_ (16 elements and more) in one of two ways, depending on the CPU. About half of
 * the elements differ in the last bit. */
typedef enum mha_rng_kernels {
    MHA_RNG_VECTOR = 0, /* AVX2 and AVX-512: any current x86-64 machine */
    MHA_RNG_SCALAR      /* ATEN_CPU_CAPABILITY=default; normal_ follows this machine's logf, sinf and cosf */
} mha_rng_kernels;

/* The algorithm that samples a dropout mask. */
typedef enum mha_rng_route {
    MHA_RNG_ROUTE_DEFAULT = 0, /* as PyTorch since 2025, and as earlier versions without MKL (ARM, AMD, macOS) */
    MHA_RNG_ROUTE_MKL          /* as PyTorch before 2025 with MKL on Intel CPUs: one sample seeds a 31-bit generator */
} mha_rng_route;

/* The state of the generator. Plain data: copy it to return to this state later; there is nothing to free. All fields
 * except `kernels` are private. Undefined before mha_rng_manual_seed. */
typedef struct mha_rng {
    uint32_t state[624];
    int32_t used;            /* elements of `state` already consumed */
    int32_t has_spare;       /* 1 = a call for fewer than 16 normal elements kept one element for the next such call */
    double spare;            /* the kept element */
    mha_rng_kernels kernels; /* mha_rng_manual_seed sets MHA_RNG_VECTOR; change it afterwards if needed */
} mha_rng;

/* torch.manual_seed(seed): initializes the generator. As in PyTorch, only the low 32 bits are used. */
MHA_API void mha_rng_manual_seed(mha_rng *rng, uint64_t seed);
/* Returns the next 32 random bits of the generator. */
MHA_API uint32_t mha_rng_next(mha_rng *rng);

/* torch.rand(n): uniform in [0, 1), in steps of 2^-24, or 2^-53 for float64. */
MHA_API mha_status mha_rng_rand(mha_rng *rng, float *x, int64_t n, mha_error *err);
MHA_API mha_status mha_rng_rand_f64(mha_rng *rng, double *x, int64_t n, mha_error *err);

/* x.uniform_(low, high): low <= x < high; low where rounding would give high. Errors: low > high, or low, high or
 * their difference not finite in float32. */
MHA_API mha_status mha_rng_uniform(mha_rng *rng, double low, double high, float *x, int64_t n, mha_error *err);

/* torch.randn(n), and x.normal_(mean, std), after Box and Muller 1958. Fewer than 16 elements are sampled in pairs,
 * whose second element is kept for the next such call of either type. Larger tensors are sampled in blocks of 16, and a
 * remainder consumes 16 more samples. Therefore n must be the size of a whole tensor: two calls for 20 elements differ
 * from one call for 40. Errors: std negative, mean or std not finite. */
MHA_API mha_status mha_rng_randn(mha_rng *rng, float *x, int64_t n, mha_error *err);
MHA_API mha_status mha_rng_normal(mha_rng *rng, double mean, double std, float *x, int64_t n, mha_error *err);
MHA_API mha_status mha_rng_randn_f64(mha_rng *rng, double *x, int64_t n, mha_error *err);

/* x.exponential_(): samples the exponential distribution with rate 1. */
MHA_API mha_status mha_rng_exponential(mha_rng *rng, float *x, int64_t n, mha_error *err);

/* torch.randint(low, high, (n,)): low <= x < high. Errors: low >= high. */
MHA_API mha_status mha_rng_randint(mha_rng *rng, int64_t low, int64_t high, int64_t *x, int64_t n, mha_error *err);

/* torch.randperm(n): 0 .. n-1 in random order. Errors: n > 214748363, where PyTorch uses another algorithm. */
MHA_API mha_status mha_rng_randperm(mha_rng *rng, int64_t *x, int64_t n, mha_error *err);

/* torch.multinomial(weights, n, replacement) of `count` weights: n indices. Without replacement (and for n = 1) each
 * index occurs at most once. `work` [count] is scratch. Errors: a weight that is negative or not finite, only zero
 * weights, or without replacement n greater than the number of non-zero weights. */
MHA_API mha_status mha_rng_multinomial(mha_rng *rng, const float *weights, int64_t count, int replacement, float *work,
                                       int64_t *x, int64_t n, mha_error *err);

/* x.bernoulli_(p): 1 with probability p, else 0. Errors: p outside [0, 1]. */
MHA_API mha_status mha_rng_bernoulli(mha_rng *rng, double p, mha_rng_route route, uint8_t *x, int64_t n,
                                     mha_error *err);

/* The mask of dropout(x, p) in training: 1 = kept, 0 = dropped with probability p. As `dropout_keep` of attn.h, it
 * covers [B, H, Lq, Lk]. p = 0 and p = 1 sample nothing. Errors: p outside [0, 1]. */
MHA_API mha_status mha_rng_dropout_mask(mha_rng *rng, double p, mha_rng_route route, uint8_t *keep, int64_t n,
                                        mha_error *err);
/* y = dropout(x, p) in training: x / (1 - p) if kept, x * 0 if dropped (a dropped infinity becomes NaN). y may be
 * exactly x. */
MHA_API mha_status mha_rng_dropout(mha_rng *rng, double p, mha_rng_route route, const float *x, float *y, int64_t n,
                                   mha_error *err);

/* ---- layers, initialized as by PyTorch's constructors and in their order ---- */

/* init.kaiming_uniform_(weight, a) and init.xavier_uniform_(weight, gain) for a weight [out, in]; He et al. 2015,
 * Glorot and Bengio 2010. Errors: in or out below 1, their product too large, a or gain not finite. */
MHA_API mha_status mha_rng_kaiming_uniform(mha_rng *rng, int64_t in, int64_t out, double a, float *weight,
                                           mha_error *err);
MHA_API mha_status mha_rng_xavier_uniform(mha_rng *rng, int64_t in, int64_t out, double gain, float *weight,
                                          mha_error *err);

/* nn.Linear(in, out): weight [out, in], then bias [out], both uniform in +-1/sqrt(in). `bias` NULL means bias=False. */
MHA_API mha_status mha_rng_linear(mha_rng *rng, int64_t in, int64_t out, float *weight, float *bias, mha_error *err);

/* nn.Embedding(rows, width, padding_idx): normal weight [rows, width]; row `padding` is sampled, then set to 0; -1 =
 * no padding row. */
MHA_API mha_status mha_rng_embedding(mha_rng *rng, int64_t rows, int64_t width, int64_t padding, float *weight,
                                     mha_error *err);

/* nn.MultiheadAttention(width, heads) with equal widths: in_weight [3 width, width], out_weight [width, width], and
 * in_bias [3 width], out_bias [width], which are set to 0; both NULL means bias=False. Errors: only one of the
 * biases NULL. */
MHA_API mha_status mha_rng_multihead(mha_rng *rng, int64_t width, float *in_weight, float *in_bias, float *out_weight,
                                     float *out_bias, mha_error *err);

#ifdef __cplusplus
}
#endif
#endif

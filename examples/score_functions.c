/* score_functions.c - the published examples of FlexAttention as user functions of scores and masks: ALiBi, softcap,
 * sliding window, documents, prefix-LM, and a two-dimensional neighborhood. Each result is compared with the built-in
 * option of the operator, or with a mask of bytes. */
#include <math.h>
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

enum { HEADS = 2, SIDE = 16, L = SIDE * SIDE, D = 32, WINDOW = 40, PREFIX = 50, REACH = 3 };
static const float cap = 2, slopes[HEADS] = {0.25F, 0.0625F};
static float q[HEADS][L][D], k[HEADS][L][D], v[HEADS][L][D], out[HEADS][L][D], want[HEADS][L][D];
static uint8_t mask[L][L];

/* ---- scores ---- */

static void alibi(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, void *scores)
{
    float *s = scores;
    (void)user, (void)b;
    for (int64_t n = 0; n < count; n++)
        s[n] -= slopes[h] * fabsf((float)(i - j0 - n));
}

static void softcap(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, void *scores)
{
    float *s = scores;
    (void)user, (void)b, (void)h, (void)i, (void)j0;
    for (int64_t n = 0; n < count; n++)
        s[n] = cap * tanhf(s[n] / cap);
}

/* ---- masks: each function states whether row i may attend to key j ---- */

static int in_window(int64_t i, int64_t j)
{
    return j <= i && i - j <= WINDOW;
}

static int same_document(int64_t i, int64_t j)
{
    static const int ends[] = {37, 101, 190, L};
    int a = 0, b = 0;
    while (i >= ends[a])
        a++;
    while (j >= ends[b])
        b++;
    return a == b;
}

static int prefix(int64_t i, int64_t j)
{
    return j <= i || j < PREFIX;
}

/* Pixels i and j of a SIDE x SIDE image are neighbors if they are at most REACH rows and columns apart. */
static int neighbors(int64_t i, int64_t j)
{
    const int64_t rows = i / SIDE - j / SIDE, columns = i % SIDE - j % SIDE;
    return rows >= -REACH && rows <= REACH && columns >= -REACH && columns <= REACH;
}

/* A mask, and the largest distance of a key that a row attends to, on both sides. */
typedef struct rule {
    int (*sees)(int64_t i, int64_t j);
    int64_t left, right;
} rule;

static void keep(void *user, int64_t b, int64_t h, int64_t i, int64_t j0, int64_t count, uint8_t *to)
{
    const rule *r = user;
    (void)b, (void)h;
    for (int64_t n = 0; n < count; n++)
        to[n] = (uint8_t)r->sees(i, j0 + n);
}

/* Skips blocks that are too far from the diagonal. */
static mha_attn_block block(void *user, int64_t b, int64_t h, int64_t i0, int64_t rows, int64_t j0, int64_t keys)
{
    const rule *r = user;
    (void)b, (void)h;
    const int too_far = j0 + keys - 1 < i0 - r->left || j0 > i0 + rows - 1 + r->right;
    return too_far ? MHA_ATTN_BLOCK_NONE : MHA_ATTN_BLOCK_SOME;
}

/* ---- comparison ---- */

static mha_status attend(mha_attn_desc desc, mha_attn_args args, float to[HEADS][L][D], mha_error *err)
{
    desc.size = sizeof desc, desc.batch = 1, desc.heads = HEADS, desc.q_len = desc.kv_len = L, desc.head_dim = D;
    args.size = sizeof args, args.q.data = q, args.k.data = k, args.v.data = v, args.out.data = to;
    return mha_attention(NULL, &desc, &args, err);
}

/* Computes the attention with user functions and the built-in equivalent, and prints their largest difference. */
static mha_status compare(const char *name, const mha_attn_functions *functions, mha_attn_desc desc,
                          const mha_attn_args *args, mha_error *err)
{
    float worst = 0;
    mha_status status =
        attend((mha_attn_desc){.inputs = MHA_ATTN_FUNCTIONS}, (mha_attn_args){.functions = functions}, out, err);
    if (status == MHA_OK) status = attend(desc, *args, want, err);
    if (status != MHA_OK) return status;
    for (int n = 0; n < HEADS * L * D; n++)
        worst = fmaxf(worst, fabsf((&out[0][0][0])[n] - (&want[0][0][0])[n]));
    printf("%s: %s\n", name,
           memcmp(out, want, sizeof out) == 0 ? "bitwise identical"
           : worst < 1e-6F                    ? "equal within rounding"
                                              : "different");
    return MHA_OK;
}

static mha_status compare_mask(const char *name, rule r, mha_error *err)
{
    const mha_attn_functions functions = {.size = sizeof functions, .user = &r, .keep = keep, .block = block};
    const mha_attn_args masked = {.keep = {mask, {0, 0, L, 1}}};
    for (int64_t i = 0; i < L; i++)
        keep(&r, 0, 0, i, 0, L, mask[i]);
    return compare(name, &functions, (mha_attn_desc){.inputs = MHA_ATTN_KEEP}, &masked, err);
}

int main(void)
{
    mha_rng rng;
    mha_error err;
    rule windowed = {in_window, WINDOW, 0}, prefixed = {prefix, L, PREFIX};
    const int64_t prefix_lens[] = {PREFIX};
    const mha_attn_functions add = {.size = sizeof add, .score = alibi, .score_added = 1};
    const mha_attn_functions capped = {.size = sizeof capped, .score = softcap};
    const mha_attn_functions window = {.size = sizeof window, .user = &windowed, .keep = keep, .block = block};
    const mha_attn_functions lm = {.size = sizeof lm, .user = &prefixed, .keep = keep, .block = block};
    const mha_attn_args none = {0}, sloped = {.slopes = {slopes, {0, 1, 0, 0}}}, led = {.prefix_lens = prefix_lens};

    mha_rng_manual_seed(&rng, 1);
    mha_status status = mha_rng_randn(&rng, &q[0][0][0], HEADS * L * D, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, &k[0][0][0], HEADS * L * D, &err);
    if (status == MHA_OK) status = mha_rng_randn(&rng, &v[0][0][0], HEADS * L * D, &err);
    if (status == MHA_OK) status = compare("ALiBi", &add, (mha_attn_desc){.inputs = MHA_ATTN_SLOPES}, &sloped, &err);
    if (status == MHA_OK) status = compare("softcap", &capped, (mha_attn_desc){.softcap = (double)cap}, &none, &err);
    if (status == MHA_OK)
        status =
            compare("sliding window", &window, (mha_attn_desc){.causal = 1, .window = {1, WINDOW, 0}}, &none, &err);
    if (status == MHA_OK)
        status = compare("prefix-LM", &lm, (mha_attn_desc){.causal = 1, .inputs = MHA_ATTN_PREFIX_LENS}, &led, &err);
    if (status == MHA_OK) status = compare_mask("documents", (rule){same_document, L, L}, &err);
    if (status == MHA_OK)
        status = compare_mask("neighborhood", (rule){neighbors, (SIDE + 1) * REACH, (SIDE + 1) * REACH}, &err);
    if (status != MHA_OK) fprintf(stderr, "%s\n", err.message);
    return status == MHA_OK ? 0 : 1;
}

/* patch_sites.c - where the parts of each site are: their heads, columns and recorded rows. */
#include "base/error.h"
#include "circuits/prompt_pair.h"
#include <string.h>

static const char *const site_names[MHA_SITES] = {"resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out",
                                                  "q",         "k",         "v",          "z",        "pattern"};

const char *mha_site_name(mha_site site)
{
    return (int)site >= 0 && site < MHA_SITES ? site_names[site] : "unknown";
}

static bool has_heads(mha_site site)
{
    return site >= MHA_SITE_Q && site <= MHA_SITE_PATTERN;
}

int64_t mha__site_heads(const mha_prompt_pair *pair, mha_site site, int64_t layer)
{
    const mha_model_info *m = pair->info;
    if (!has_heads(site)) return 0;
    return site == MHA_SITE_K   ? m->key_heads_per_layer[layer]
           : site == MHA_SITE_V ? m->value_heads_per_layer[layer]
                                : m->heads_per_layer[layer];
}

int64_t mha__site_max_heads(const mha_prompt_pair *pair, mha_site site)
{
    int64_t max = site == MHA_SITE_K || site == MHA_SITE_V ? pair->info->kv_heads : pair->info->heads;
    for (int64_t layer = 0; layer < pair->info->layers; layer++)
        max = mha__max64(max, mha__site_heads(pair, site, layer));
    return has_heads(site) ? max : 0;
}

mha_status mha__site_check(const mha_prompt_pair *pair, mha_site site, mha_error *err)
{
    if ((int)site < 0 || site >= MHA_SITES)
        return mha__fail(err, MHA_ERR_ARG, "site must be a value of mha_site (got %d)", (int)site);
    if (site == MHA_SITE_RESID_MID && pair->model->config.parallel)
        return mha__fail(
            err, MHA_ERR_UNSUPPORTED,
            "site must not be resid_mid for %s: its layers compute attention and feed-forward from the same input",
            pair->info->family);
    return MHA_OK;
}

mha_status mha__by_fail(mha_site site, mha_patch_by by, mha_error *err)
{
    return mha__fail(err, MHA_ERR_ARG, "by must be %s for %s (got %d)",
                     has_heads(site) ? "MHA_BY_HEAD or MHA_BY_HEAD_POSITION" : "MHA_BY_POSITION", mha_site_name(site),
                     (int)by);
}

/* Returns the columns of a head, or of all heads if it is -1, of which each has `width` columns. */
static mha__part_span of_head(int64_t start, int64_t heads, int64_t head, int64_t width)
{
    return head < 0 ? (mha__part_span){start, heads * width} : (mha__part_span){start + head * width, width};
}

mha__part_span mha__part_columns(const mha_prompt_pair *pair, const mha_patch_part *part)
{
    const mha_attn_layer *attn = mha__pair_attn(pair, part->layer);
    const mha_attn_layer_options *o = &attn->options;
    const int64_t D = o->head_dim, keys = o->kv_heads / attn->k_heads, values = o->kv_heads / attn->v_heads;
    switch (part->site) {
    case MHA_SITE_Q:
        return of_head(0, o->heads, part->head, D);
    /* a key/value head is repeated where keys and values have different counts; the copies are adjacent */
    case MHA_SITE_K:
        return of_head(o->heads * D, attn->k_heads, part->head, keys * D);
    case MHA_SITE_V:
        return of_head((o->heads + o->kv_heads) * D, attn->v_heads, part->head, values * D);
    case MHA_SITE_Z:
        return of_head(0, o->heads, part->head, D);
    case MHA_SITE_PATTERN:
        return (mha__part_span){0, pair->length};
    default:
        return (mha__part_span){0, pair->width};
    }
}

/* Returns the recorded rows of all tokens at a site of a layer. */
static const float *rows_of(const mha_prompt_pair *pair, const mha__run_record *r, const mha_patch_part *part,
                            int64_t *stride)
{
    const int64_t at = part->layer * pair->length;
    *stride = pair->width;
    switch (part->site) {
    case MHA_SITE_RESID_PRE:
        return r->resid + at * pair->width;
    case MHA_SITE_RESID_POST:
        return r->resid + (at + pair->length) * pair->width;
    case MHA_SITE_RESID_MID:
        return r->mid + at * pair->width;
    case MHA_SITE_ATTN_OUT:
        return r->attn_out + at * pair->width;
    case MHA_SITE_MLP_OUT:
        return r->mlp_out + at * pair->width;
    case MHA_SITE_Z:
        *stride = pair->z_width;
        return r->z + at * pair->z_width;
    case MHA_SITE_PATTERN:
        *stride = pair->length;
        return r->maps + (part->layer * pair->info->heads + part->head) * pair->length * pair->length;
    default:
        *stride = pair->qkv_width;
        return r->qkv + at * pair->qkv_width;
    }
}

const float *mha__part_rows(const mha_prompt_pair *pair, const mha__run_record *record, const mha_patch_part *part,
                            int64_t *stride)
{
    const float *rows = rows_of(pair, record, part, stride);
    return rows + mha__max64(part->position, 0) * *stride + mha__part_columns(pair, part).offset;
}

bool mha__part_equal(const mha_prompt_pair *pair, const mha_patch_part *part)
{
    int64_t stride = 0;
    const float *clean = mha__part_rows(pair, &pair->run[MHA_RUN_CLEAN], part, &stride);
    const float *corrupted = mha__part_rows(pair, &pair->run[MHA_RUN_CORRUPTED], part, &stride);
    const size_t bytes = (size_t)mha__part_columns(pair, part).width * sizeof *clean;
    const int64_t rows = part->position < 0 ? pair->length : 1;
    for (int64_t t = 0; t < rows; t++)
        if (memcmp(clean + t * stride, corrupted + t * stride, bytes) != 0) return false;
    return true;
}

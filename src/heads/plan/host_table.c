/* host_table.c - lists the supported layouts of a job over hosts, and selects the smallest that fits. */
#include "base/error.h"
#include "base/size.h"
#include "heads/plan/host_cost.h"
#include "math/types/element.h"
#include "mha/attn.h"
#include <math.h>

/* ---- one layout ---- */

static bool divides_tokens(mha_host_job job)
{
    return job == MHA_HOSTS_SCORE || job == MHA_HOSTS_GENERATE;
}

/* Returns the reason why mha-mpi does not support a layout; NULL if it does. */
static const char *refusal(const mha__host_job *job)
{
    const mha_host_options *o = job->o;
    if (divides_tokens(o->job) && job->dp > 1) return "dp must be 1 for score and generate";
    if (!divides_tokens(o->job) && job->tp > 1) return "tp must be 1 for heads and train";
    if (!divides_tokens(o->job) && job->cp > 1) return "cp must be 1 for heads and train";
    if (job->tp > MHA__TP_GROUPS) return "tp must be at most 8";
    if (job->tp > 1 && job->model->undivided)
        return "tp must be 1, because the weights of this model cannot be divided";
    if (job->tp > job->model->heads) return "tp must be at most the head count of the model";
    if (job->cp > 1 && o->seq <= MHA_ATTN_CHUNK) return "cp must be 1 for texts of at most 1024 tokens";
    if (job->cp > 1 && o->job == MHA_HOSTS_GENERATE && o->kv_dtype != mha__attention_dtype(o->dtype))
        return "cp must be 1 if kv_dtype differs from the type of the computed keys";
    if (o->job == MHA_HOSTS_TRAIN && !mha__is_power_of_two(job->dp)) return "dp must be a power of two for train";
    if (o->job == MHA_HOSTS_TRAIN && job->dp > o->workers) return "dp must be at most the number of virtual workers";
    return NULL;
}

static void predict(const mha_host_model *model, const mha_host_options *o, int64_t tp, int64_t cp, int64_t dp,
                    mha_host_layout *row)
{
    const mha__host_job job = mha__host_divide(model, o, tp, cp, dp);
    *row = (mha_host_layout){.tp = tp, .cp = cp, .dp = dp, .refused = refusal(&job)};
    mha__host_memory(&job, row);
    mha__host_time(&job, row);
    row->fits = row->bytes <= (double)o->memory;
}

static mha_status check(const mha_host_model *given_model, const mha_host_options *given, mha_host_model *model,
                        mha_host_options *o, mha_error *err)
{
    MHA__TRY(mha__host_model_check(given_model, model, err));
    MHA__TRY(mha__host_options_check(given, o, err));
    if (o->job != MHA_HOSTS_GENERATE || !model->bidirectional) return MHA_OK;
    return mha__fail(err, MHA_ERR_ARG, "job must not be generate for an encoder");
}

mha_status mha_host_layout_predict(const mha_host_model *model, const mha_host_options *options, int64_t tp, int64_t cp,
                                   int64_t dp, mha_host_layout *layout, mha_error *err)
{
    mha_host_model m;
    mha_host_options o;
    if (!layout) return mha__fail(err, MHA_ERR_ARG, "mha_host_layout_predict: layout must not be NULL");
    MHA__TRY(check(model, options, &m, &o, err));
    if (tp < 1 || cp < 1 || dp < 1 || tp > o.hosts || cp > o.hosts / tp || dp > o.hosts / (tp * cp))
        return mha__fail(err, MHA_ERR_ARG, "tp * cp * dp must be from 1 to hosts = %lld (got %lld * %lld * %lld)",
                         (long long)o.hosts, (long long)tp, (long long)cp, (long long)dp);
    predict(&m, &o, tp, cp, dp, layout);
    return MHA_OK;
}

/* ---- list of layouts ---- */

typedef struct list {
    const mha_host_model *model;
    const mha_host_options *o;
    mha_host_layout *rows;
    int count;
} list;

static int64_t hosts_of(const mha_host_layout *row)
{
    return row->tp * row->cp * row->dp;
}

/* Inserts a layout unless it is already listed or is not supported. The list is sorted by the number of hosts, then by
 * tp. */
static void insert(list *l, int64_t tp, int64_t cp, int64_t dp)
{
    mha_host_layout row;
    predict(l->model, l->o, tp, cp, dp, &row);
    if (row.refused || l->count == MHA_HOST_LAYOUTS) return;
    const int64_t hosts = hosts_of(&row);
    int at = l->count;
    for (; at > 0; at--) {
        const mha_host_layout *before = &l->rows[at - 1];
        if (before->tp == tp && before->cp == cp && before->dp == dp) return;
        if (hosts_of(before) < hosts || (hosts_of(before) == hosts && before->tp < tp)) break;
    }
    for (int n = l->count; n > at; n--)
        l->rows[n] = l->rows[n - 1];
    l->rows[at] = row;
    l->count++;
}

/* Returns true if each of tp ranks stores less than each of tp - 1 ranks. */
static bool divides_further(int64_t tp)
{
    return tp == 1 || mha__ceil_div(MHA__TP_GROUPS, tp) < mha__ceil_div(MHA__TP_GROUPS, tp - 1);
}

/* Inserts the layout with the smallest cp that fits, for this tp. Memory use may grow with cp, because more partial
 * results are stored before they are merged. */
static void insert_smallest(list *l, int64_t tp, int64_t max)
{
    mha_host_layout row = {.fits = 0};
    for (int64_t cp = 1; cp <= max && !row.fits; cp++)
        predict(l->model, l->o, tp, cp, 1, &row);
    if (row.fits) insert(l, tp, row.cp, 1);
}

static void list_token_layouts(list *l)
{
    for (int64_t tp = 1; tp <= mha__min64(MHA__TP_GROUPS, l->o->hosts); tp++) {
        if (!divides_further(tp)) continue;
        const int64_t max = l->o->hosts / tp;
        insert(l, tp, max, 1);
        for (int64_t cp = 1; cp <= max; cp *= 2)
            insert(l, tp, cp, 1);
        insert_smallest(l, tp, max);
    }
}

static void list_text_layouts(list *l)
{
    insert(l, 1, 1, l->o->hosts);
    for (int64_t dp = 1; dp <= l->o->hosts; dp *= 2)
        insert(l, 1, 1, dp);
}

/* ---- choice of a layout ---- */

static bool is_smaller(const mha_host_layout *a, const mha_host_layout *b)
{
    const int64_t x = hosts_of(a), y = hosts_of(b);
    return x < y || (x == y && a->tokens_per_second > b->tokens_per_second);
}

static void choose(const list *l, mha_host_choice *choice)
{
    *choice = (mha_host_choice){.count = l->count, .smallest = -1, .fastest = -1};
    for (int n = 0; n < l->count; n++) {
        const mha_host_layout *row = &l->rows[n];
        if (!row->fits) continue;
        if (choice->smallest < 0 || is_smaller(row, &l->rows[choice->smallest])) choice->smallest = n;
        if (choice->fastest < 0 || row->tokens_per_second > l->rows[choice->fastest].tokens_per_second)
            choice->fastest = n;
    }
    if (l->o->job != MHA_HOSTS_SCORE || l->o->hosts == 1) return;
    const double group = (double)l->model->heads / (double)l->model->kv_heads * (l->model->bidirectional ? 2 : 1);
    choice->hiding_tokens = mha__host_key_bytes(l->o) * l->o->speed.flops / (group * l->o->network.bandwidth);
}

mha_status mha_host_layouts(const mha_host_model *model, const mha_host_options *options,
                            mha_host_layout rows[MHA_HOST_LAYOUTS], mha_host_choice *choice, mha_error *err)
{
    mha_host_model m;
    mha_host_options o;
    if (!rows || !choice)
        return mha__fail(err, MHA_ERR_ARG, "mha_host_layouts: %s must not be NULL", rows ? "choice" : "rows");
    MHA__TRY(check(model, options, &m, &o, err));
    list l = {.model = &m, .o = &o, .rows = rows};
    if (divides_tokens(o.job))
        list_token_layouts(&l);
    else
        list_text_layouts(&l);
    choose(&l, choice);
    return MHA_OK;
}

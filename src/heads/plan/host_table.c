/* host_table.c - the layouts of a job over hosts: which are supported, and the smallest that fits. */
#include "base/error.h"
#include "base/size.h"
#include "heads/plan/host_cost.h"
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
    if (divides_tokens(o->job) && job->dp > 1) return "score and generate do not divide texts among hosts";
    if (!divides_tokens(o->job) && job->tp > 1) return "heads and train do not divide the heads of a layer";
    if (!divides_tokens(o->job) && job->cp > 1) return "heads and train do not divide the tokens of a text";
    if (job->tp > MHA__TP_GROUPS) return "the heads of a layer are divided among at most 8 hosts";
    if (job->tp > 1 && job->model->undivided) return "the weights of the model are not divided among hosts";
    if (job->tp > job->model->heads) return "the model has fewer heads";
    if (job->cp > 1 && o->seq <= MHA_ATTN_CHUNK) return "texts of at most 1024 tokens are not divided";
    if (job->cp > 1 && o->job == MHA_HOSTS_GENERATE && o->kv_dtype != (o->dtype == MHA_BF16 ? MHA_BF16 : MHA_F32))
        return "cached keys of another type than those of the model are not divided";
    if (o->job == MHA_HOSTS_TRAIN && !mha__is_power_of_two(job->dp)) return "train requires a power of two";
    if (o->job == MHA_HOSTS_TRAIN && job->dp > o->workers) return "train requires a virtual worker per host";
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

/* ---- the list ---- */

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

/* Inserts a layout before those with more hosts, or with as many and a larger tp, unless it is listed or refused. */
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

/* Returns true if tp ranks store less each than tp - 1 ranks. */
static bool divides_further(int64_t tp)
{
    return tp == 1 || mha__ceil_div(MHA__TP_GROUPS, tp) < mha__ceil_div(MHA__TP_GROUPS, tp - 1);
}

/* Inserts the smallest number of cp ranks that fits with tp. Memory may grow with cp, because more partial results
 * wait. */
static void insert_smallest(list *l, int64_t tp, int64_t most)
{
    mha_host_layout row = {.fits = 0};
    for (int64_t cp = 1; cp <= most && !row.fits; cp++)
        predict(l->model, l->o, tp, cp, 1, &row);
    if (row.fits) insert(l, tp, row.cp, 1);
}

static void list_token_layouts(list *l)
{
    for (int64_t tp = 1; tp <= mha__min64(MHA__TP_GROUPS, l->o->hosts); tp++) {
        if (!divides_further(tp)) continue;
        const int64_t most = l->o->hosts / tp;
        insert(l, tp, most, 1);
        for (int64_t cp = 1; cp <= most; cp *= 2)
            insert(l, tp, cp, 1);
        insert_smallest(l, tp, most);
    }
}

static void list_text_layouts(list *l)
{
    insert(l, 1, 1, l->o->hosts);
    for (int64_t dp = 1; dp <= l->o->hosts; dp *= 2)
        insert(l, 1, 1, dp);
}

/* ---- the choice ---- */

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

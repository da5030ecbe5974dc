/* cached_program.c - implements cached_program.h. Bytes past the end of the program are 0. */
#include "support/attn/cached_program.h"

#include "support/alloc.h"
#include "support/attn/cached_attend.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_MAX = 120, OPERATIONS_MAX = 120 };

typedef struct run {
    const uint8_t *bytes, *end;
    counting memory;
    mha_ctx *ctx;
    mha_cache *cache;
    cached_model model;
    int64_t next_id;
    bool starved;
    mha_status status; /* status of the current operation */
} run;

static int64_t below(run *r, int64_t limit)
{
    return r->bytes < r->end ? *r->bytes++ % limit : 0;
}

static void make_desc(run *r, mha_cache_desc *d)
{
    static const mha_dtype types[] = {MHA_F32, MHA_F64, MHA_BF16, MHA_F16, MHA_Q8_0};
    static const mha_dtype small_types[] = {MHA_Q4_0, MHA_F8_E4M3};
    static const int64_t widths[] = {1, 5, 9, 33}, v_widths[] = {0, 3, 8, 34}, pages[] = {16, 16, 32, 0};
    const int64_t type = below(r, 256);
    *d = (mha_cache_desc){.size = sizeof *d, .dtype = type < 205 ? types[type % 5] : small_types[type % 2]};
    d->batch = 1 + below(r, CACHED_B_MAX);
    d->kv_heads = 1 + below(r, 2);
    d->head_dim = widths[below(r, 4)];
    d->v_head_dim = v_widths[below(r, 4)];
    if (d->dtype == MHA_Q4_0) { /* whole blocks */
        d->head_dim = (d->head_dim + 31) / 32 * 32;
        d->v_head_dim = (d->v_head_dim + 31) / 32 * 32;
    }
    d->page_size = pages[below(r, 4)];
    d->window = below(r, 4) ? 1 + below(r, below(r, 2) ? 90 : 20) : 0;
    d->keep_first = d->window > 0 && below(r, 2) ? below(r, 40) : 0;
    d->capacity = below(r, 3) ? 0 : 1 + 4 * below(r, 256);
}

/* ---- append operations ---- */

/* Returns true if an append must succeed: the pages of all sequences are within the capacity, even if no page is shared
 * between sequences. */
static bool must_fit(const run *r, const int64_t *counts, int64_t first, int64_t n)
{
    cached_model m = r->model;
    const int64_t size = m.desc.page_size, capacity = (m.desc.capacity + size - 1) / size;
    int64_t pages = 0;
    for (int64_t b = first; b < first + n; b++)
        cached_note(&m, b, counts[b - first], 0);
    for (int64_t b = 0; b < m.desc.batch; b++)
        for (int64_t page = 0; page * size < m.length[b]; page++)
            pages += !m.gone[b][page];
    return pages <= capacity;
}

static mha_dtype source_type(run *r)
{
    const mha_dtype stored = r->model.desc.dtype;
    const bool halves = stored == MHA_BF16 || stored == MHA_F16;
    const bool small = stored == MHA_Q8_0 || stored == MHA_Q4_0 || stored == MHA_F8_E4M3;
    return small || (halves && below(r, 2)) ? MHA_F32 : stored;
}

static void send_tokens(run *r, int64_t sequence, int64_t n, int64_t count, const int64_t *counts)
{
    const mha_cache_desc *d = &r->model.desc;
    const int64_t shape[] = {n, count};
    const mha_dtype type = source_type(r);
    rng random = rng_make((uint64_t)below(r, 256), 0);
    const tensor_layout layouts[] = {tensor_layout_random(&random, false), tensor_layout_random(&random, false)};
    mha_error err = {0};
    tensor k, v;
    cached_tokens(&k, d, false, shape, type, &layouts[0], r->next_id);
    cached_tokens(&v, d, true, shape, type, &layouts[1], r->next_id);
    const mha_cache_tokens tokens = {.size = sizeof tokens,
                                     .count = count,
                                     .counts = counts,
                                     .dtype = type,
                                     .k = tensor_cview(&k),
                                     .v = tensor_cview(&v)};
    r->status = mha_cache_append(r->cache, sequence, &tokens, &err);
    tensor_free(&k);
    tensor_free(&v);
}

static const char *append(run *r, int64_t sequence)
{
    const bool all = sequence == MHA_CACHE_ALL;
    const int64_t first = all ? 0 : sequence, n = all ? r->model.desc.batch : 1, count = below(r, 40);
    int64_t counts[CACHED_B_MAX] = {0};
    for (int64_t m = 0; m < n; m++) {
        counts[m] = all ? below(r, count + 1) : count;
        if (r->model.length[first + m] + counts[m] > LENGTH_MAX) counts[m] = 0;
    }
    send_tokens(r, sequence, n, count, counts);
    for (int64_t m = 0; m < n && r->status == MHA_OK; m++)
        cached_note(&r->model, first + m, counts[m], r->next_id + m * count);
    r->next_id += n * count;
    if (r->status == MHA_OK || (r->status == MHA_ERR_MEMORY && r->starved)) return NULL;
    if (r->status != MHA_ERR_MEMORY || r->model.desc.capacity == 0)
        return "an append must succeed if memory is available";
    return must_fit(r, counts, first, n) ? "an append must fail only if the pages exceed the capacity" : NULL;
}

static const char *append_one(run *r)
{
    return append(r, below(r, r->model.desc.batch));
}

static const char *append_all(run *r)
{
    return append(r, MHA_CACHE_ALL);
}

/* ---- truncate, fork and clear operations ---- */

/* Checks the status of truncating sequence b to `length`. Returns NULL, or the violated invariant. */
static const char *check_cut(const run *r, int64_t b, int64_t length)
{
    const bool may =
        length <= r->model.length[b] && (length <= cached_pinned(&r->model) || cached_seen(&r->model, b, length));
    if ((r->status == MHA_OK) != may)
        return "truncation must fail if and only if a key to which the next row attends is missing";
    return may || r->status == MHA_ERR_ARG ? NULL : "a failed truncation must return MHA_ERR_ARG";
}

/* Returns a valid length of sequence b or, rarely, a length that is too large by one. */
static int64_t some_length(run *r, int64_t b)
{
    const int64_t from_end = below(r, below(r, 4) ? 24 : 256) - 1;
    return from_end > r->model.length[b] ? 0 : r->model.length[b] - from_end;
}

static const char *truncate_one(run *r)
{
    mha_error err = {0};
    const int64_t b = below(r, r->model.desc.batch), length = some_length(r, b);
    r->status = mha_cache_truncate(r->cache, b, length, &err);
    const char *law = check_cut(r, b, length);
    if (r->status == MHA_OK) cached_note_length(&r->model, b, length);
    return law;
}

static const char *fork_one(run *r)
{
    mha_error err = {0};
    const int64_t from = below(r, r->model.desc.batch), to = below(r, r->model.desc.batch);
    const int64_t length = some_length(r, from);
    r->status = mha_cache_fork(r->cache, from, to, length, &err);
    if (from == to) return r->status == MHA_ERR_ARG ? NULL : "forking a sequence to itself must return MHA_ERR_ARG";
    const char *law = check_cut(r, from, length);
    if (r->status == MHA_OK) cached_note_fork(&r->model, from, to, length);
    return law;
}

static const char *clear(run *r)
{
    mha_error err = {0};
    const int64_t b = below(r, r->model.desc.batch + 2) -
                      1; /* MHA_CACHE_ALL, a sequence, or the invalid number after the last sequence */
    r->status = mha_cache_clear(r->cache, b, &err);
    if (b == r->model.desc.batch)
        return r->status == MHA_ERR_ARG ? NULL : "clear must return MHA_ERR_ARG for an invalid sequence";
    for (int64_t n = 0; n < r->model.desc.batch; n++)
        if (b == MHA_CACHE_ALL || b == n) cached_note_length(&r->model, n, 0);
    return r->status == MHA_OK ? NULL : "clear must succeed";
}

/* ---- save and load operations ---- */

/* Saves the cache and copies the data of its tensors to separate, unaligned memory. */
static void copy_tensors(const mha_cache *cache, mha_named_tensor t[MHA_CACHE_TENSORS], char *memory[MHA_CACHE_TENSORS])
{
    mha_cache_save(cache, t);
    for (int n = 0; n < MHA_CACHE_TENSORS; n++) {
        size_t bytes = mha_dtype_size(t[n].dtype);
        for (int axis = 0; axis < t[n].rank; axis++)
            bytes *= (size_t)t[n].shape[axis];
        memory[n] = malloc(bytes + 1);
        if (!memory[n]) abort();
        if (bytes > 0) memcpy(memory[n] + 1, t[n].data, bytes);
        t[n].data = memory[n] + 1;
    }
}

/* Changes at most a few bytes of the tensors "lengths" and "pages". Returns true if a byte was changed. */
static bool spoil(run *r, const mha_named_tensor t[MHA_CACHE_TENSORS], char *memory[MHA_CACHE_TENSORS])
{
    const size_t sizes[] = {(size_t)t[0].shape[0] * sizeof(int64_t),
                            (size_t)(t[1].shape[0] * t[1].shape[1]) * sizeof(int32_t)};
    int64_t edits = below(r, 4);
    const bool any = edits > 0;
    for (; edits > 0; edits--) {
        const int64_t which = below(r, 2), at = below(r, 256), value = below(r, 256);
        if (sizes[which] > 0) memory[which][1 + (size_t)at % sizes[which]] = (char)value;
    }
    return any;
}

/* Appends to a cache that was loaded from modified tensors, and clears it. Returns NULL, or the violated invariant. */
static const char *use_up(run *r, mha_cache *cache)
{
    mha_error err = {0};
    const mha_status status =
        cached_append(cache, &r->model.desc, MHA_CACHE_ALL, r->model.desc.batch, 3, NULL, r->next_id, &err);
    if (status != MHA_OK && status != MHA_ERR_MEMORY && status != MHA_ERR_ARG)
        return "an append must return one of its documented statuses";
    if (mha_cache_clear(cache, MHA_CACHE_ALL, &err) != MHA_OK) return "clear must succeed";
    return mha_cache_pages(cache) == 0 ? NULL : "an empty cache must have no pages in use";
}

/* Loads the tensors into a new cache. Replaces r->cache with the new cache, unless the tensors were modified. Returns
 * NULL, or the violated invariant. */
static const char *load_copy(run *r, const mha_named_tensor t[MHA_CACHE_TENSORS], bool spoiled)
{
    mha_error err = {0};
    mha_cache *copy = NULL;
    const char *law = NULL;
    r->status = mha_cache_create(r->ctx, &r->model.desc, &copy, &err);
    if (r->status == MHA_OK) r->status = mha_cache_load(copy, t, MHA_CACHE_TENSORS, &err);
    if (r->status == MHA_OK && !spoiled) {
        mha_cache_free(r->cache);
        r->cache = copy;
        return NULL;
    }
    if (spoiled)
        law = copy && r->model.desc.dtype != MHA_F64 ? use_up(r, copy) : NULL;
    else if (!r->starved || r->status != MHA_ERR_MEMORY)
        law = "loading a saved cache must succeed";
    mha_cache_free(copy);
    return law;
}

static const char *reload(run *r)
{
    mha_named_tensor t[MHA_CACHE_TENSORS];
    char *memory[MHA_CACHE_TENSORS];
    copy_tensors(r->cache, t, memory);
    const char *law = load_copy(r, t, spoil(r, t, memory));
    for (int n = 0; n < MHA_CACHE_TENSORS; n++)
        free(memory[n]);
    return law;
}

/* ---- attention ---- */

static const char *attend(run *r)
{
    const int64_t batch = r->model.desc.batch, sequence = below(r, batch + 1) - 1;
    const cached_rows way = (cached_rows)below(r, CACHED_ROWS_WAYS);
    const int64_t group = 1 + below(r, 3), first = sequence == MHA_CACHE_ALL ? 0 : sequence;
    int64_t rows[CACHED_B_MAX] = {0};
    for (int64_t n = 0; n < (sequence == MHA_CACHE_ALL ? batch : 1); n++) {
        rows[n] = below(r, CACHED_ROWS_MAX + 1);
        if (rows[n] > r->model.length[first + n] && below(r, 4)) rows[n] = r->model.length[first + n];
    }
    const char *law = cached_attend(r->ctx, r->cache, &r->model, sequence, way, rows, group, &r->status);
    if (!law && r->status == MHA_ERR_MEMORY && !r->starved) return "attention must succeed if memory is available";
    return law;
}

/* ---- random operations ---- */

static const char *(*const operations[])(run *) = {append_one, append_all, truncate_one, fork_one,
                                                   clear,      reload,     attend};

/* Selects a random operation; appends, forks and attention are more frequent than other operations. */
static cached_operation choose(run *r)
{
    static const cached_operation often[] = {CACHED_APPEND_ONE, CACHED_APPEND_ALL, CACHED_APPEND_ALL,
                                             CACHED_FORK,       CACHED_TRUNCATE,   CACHED_ATTEND};
    const int64_t n = below(r, CACHED_OPERATIONS + (int64_t)(sizeof often / sizeof *often));
    return n < CACHED_OPERATIONS ? (cached_operation)n : often[n - CACHED_OPERATIONS];
}

static const char *step(run *r, cached_tally *tally)
{
    const cached_operation which = choose(r);
    if (which == CACHED_STARVE) {
        atomic_store(&r->memory.budget, atomic_load(&r->memory.calls) + below(r, 7));
        r->starved = true;
        tally->done[which]++;
        return NULL;
    }
    const char *law = operations[which](r);
    atomic_store(&r->memory.budget, -1);
    r->starved = false;
    int64_t *counts = r->status == MHA_OK ? tally->done : r->status == MHA_ERR_MEMORY ? tally->starved : tally->refused;
    counts[which]++;
    return law ? law : cached_broken(r->cache, &r->model);
}

static const char *start(run *r)
{
    const mha_ctx_options options = {.size = sizeof options, .threads = 1, .allocator = counting_allocator(&r->memory)};
    mha_cache_desc d;
    mha_error err = {0};
    atomic_store(&r->memory.budget, -1);
    make_desc(r, &d);
    cached_start(&r->model, &d);
    if (mha_ctx_create(&options, &r->ctx, &err) != MHA_OK) return "mha_ctx_create must succeed";
    return mha_cache_create(r->ctx, &d, &r->cache, &err) == MHA_OK ? NULL : "mha_cache_create must succeed";
}

const char *cached_program(const uint8_t *bytes, size_t n, cached_tally *tally)
{
    static run r; /* static, because it contains the large reference model */
    memset(&r, 0, sizeof r);
    r.bytes = bytes, r.end = bytes + n, r.next_id = 1;
    const char *law = start(&r);
    for (int done = 0; done < OPERATIONS_MAX && r.bytes < r.end && !law; done++)
        law = step(&r, tally);
    mha_cache_free(r.cache);
    mha_ctx_free(r.ctx);
    return law || atomic_load(&r.memory.live) == 0 ? law : "all memory must be freed";
}

/* weight_memory.c - memory of elements that differ from those in the file: converted, reordered or computed tensors. */
#include "base/ctx.h"
#include "base/error.h"
#include "base/size.h"
#include "model/weights/weights.h"
#include <string.h>

/* The allocation begins with a pointer to the previous allocation. */
float *mha__weights_keep(mha__weights *w, size_t bytes)
{
    enum { HEADER = 64 }; /* keeps the alignment */
    size_t all = 0;
    char *memory = mha__add(bytes, HEADER, &all) ? mha__alloc(w->ctx, all) : NULL;
    if (!memory) return NULL;
    memcpy(memory, &w->converted, sizeof w->converted);
    w->converted = memory;
    return (float *)(memory + HEADER);
}

mha_status mha__weights_zeros(mha__weights *w, int64_t count, const float **bias, mha_error *err)
{
    const size_t bytes = (size_t)count * sizeof(float);
    if (w->check_only) return MHA_OK;
    float *zeros = mha__weights_keep(w, bytes);
    if (!zeros) return mha__no_memory(err, bytes, "the bias of a norm");
    *bias = memset(zeros, 0, bytes);
    return MHA_OK;
}

mha_status mha__weights_add_one(mha__weights *w, int64_t count, const float **weight, mha_error *err)
{
    const size_t bytes = (size_t)count * sizeof(float);
    if (w->check_only) return MHA_OK;
    float *copy = mha__weights_keep(w, bytes);
    if (!copy) return mha__no_memory(err, bytes, "the weights of a norm");
    for (int64_t i = 0; i < count; i++)
        copy[i] = 1 + (*weight)[i];
    *weight = copy;
    return MHA_OK;
}

void mha__weights_release_after(mha__weights *weights, const void *kept)
{
    while (weights->converted != kept) {
        void *memory = weights->converted;
        memcpy(&weights->converted, memory, sizeof weights->converted);
        mha__free(weights->ctx, memory);
    }
}

void mha__weights_release(mha__weights *weights)
{
    mha__weights_release_after(weights, NULL);
}

/* tours.h - the table of tours, in the order of `mha tour`: from one head to what a checkpoint has. */
#ifndef CLI_TOURS_H
#define CLI_TOURS_H

#include "tour.h"

/* X(name, walk, summary). Names of layers are those of docs/layers. */
#define TOUR_MAP(X)                                                                                                   \
    X("self-attention", tour_self_attention, "words, q k v, scores, softmax, output: one head by hand")               \
    X("causal-attention", tour_causal_attention, "the causal mask: no word sees the words after it")                  \
    X("dropout", tour_dropout, "weights dropped at random, the rest scaled up")                                       \
    X("stacked-heads", tour_stacked_heads, "several heads as a list, their outputs beside each other")                \
    X("batched-product", tour_batched_product, "one product for all heads")                                           \
    X("reshape", tour_reshape, "how a row is cut into heads and put together again")                                  \
    X("weight-split", tour_weight_split, "one matrix for all heads, and an output projection")                        \
    X("qkv-attention", tour_qkv_attention, "queries, keys and values from three inputs, and a padding mask")          \
    X("standard-mha", tour_standard_mha, "the layer that the improved ones are compared with, and a mask of 0 and 1") \
    X("grouped-query", tour_grouped_query, "query heads share keys and values")                                       \
    X("moe-heads", tour_moe_heads, "heads as experts, of which a router takes two")                                   \
    X("head-pruning", tour_head_pruning, "each sequence keeps its best heads, the others are not computed")           \
    X("adaptive-heads", tour_adaptive_heads, "each sequence has its own number of heads")                             \
    X("llama-attention", tour_llama_attention, "rotary positions, and keys and values kept from token to token")      \
    X("variants", tour_variants, "parameters and flops of all of them next to plain multi-head attention")

#define TOUR__X(name, walk, summary) void walk(tour *t);
TOUR_MAP(TOUR__X)
#undef TOUR__X

#endif

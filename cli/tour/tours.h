/* tours.h - the table of tours, in the order of `mha tour`: from one head to the attention of a checkpoint. */
#ifndef CLI_TOUR_TOURS_H
#define CLI_TOUR_TOURS_H

#include "tour/tour.h"

/* X(name, walk, example, options that it accepts, summary). Layers are named as in docs/layers; the example is an
 * equivalent program in examples/. */
#define TOUR_MAP(X)                                                                                                    \
    X("self-attention", tour_self_attention, "one_head.c",                                                             \
      TOUR_TEXT | TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_WEIGHTS | TOUR_LAYER | TOUR_HEAD,                               \
      "one head step by step: words, q k v, scores, softmax, output")                                                  \
    X("causal-attention", tour_causal_attention, "mask_and_dropout.c",                                                 \
      TOUR_TEXT | TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_WEIGHTS | TOUR_LAYER | TOUR_HEAD,                               \
      "the causal mask: no word attends to later words")                                                               \
    X("dropout", tour_dropout, "mask_and_dropout.c", TOUR_TEXT | TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_WEIGHTS,         \
      "dropout: random weights are set to 0, all others are scaled up")                                                \
    X("stacked-heads", tour_stacked_heads, "many_heads.c",                                                             \
      TOUR_TEXT | TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS,                                    \
      "several heads as a list, their outputs concatenated")                                                           \
    X("batched-product", tour_batched_product, "batched_product.c", TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS,        \
      "one product for all heads")                                                                                     \
    X("reshape", tour_reshape, "split_heads.c", TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS,                            \
      "a row is split into heads and merged again")                                                                    \
    X("weight-split", tour_weight_split, "many_heads.c",                                                               \
      TOUR_TEXT | TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS | TOUR_LAYER,                       \
      "one matrix for all heads, and an output projection")                                                            \
    X("qkv-attention", tour_qkv_attention, "three_inputs.c",                                                           \
      TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS,                                                \
      "queries, keys and values from three inputs, and a padding mask")                                                \
    X("standard-mha", tour_standard_mha, "standard_mha.c",                                                             \
      TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS | TOUR_LAYER,                                   \
      "the baseline of all other variants, with a boolean mask")                                                       \
    X("grouped-query", tour_grouped_query, "grouped_query.c",                                                          \
      TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS | TOUR_LAYER,                                   \
      "query heads share keys and values")                                                                             \
    X("moe-heads", tour_moe_heads, "chosen_heads.c", TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS, \
      "heads as experts, two of which a router chooses")                                                               \
    X("head-pruning", tour_head_pruning, "chosen_heads.c",                                                             \
      TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS,                                                \
      "each sequence keeps its highest-scoring heads; the others are not computed")                                    \
    X("adaptive-heads", tour_adaptive_heads, "chosen_heads.c", TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_WEIGHTS,           \
      "the number of heads depends on the sequence")                                                                   \
    X("llama-attention", tour_llama_attention, "token_by_token.c",                                                     \
      TOUR_TEXT | TOUR_SEED | TOUR_WIDTH | TOUR_CHOICE_HEADS | TOUR_CHOICE_WEIGHTS | TOUR_LAYER,                       \
      "rotary position embeddings, and a cache of keys and values")                                                    \
    X("induction", tour_induction, "train_induction.c", TOUR_TEXT | TOUR_MODEL,                                        \
      "how the built-in model copies: a previous-token head and induction heads cooperate")                            \
    X("variants", tour_variants, "variants.c", TOUR_SEED,                                                              \
      "parameters and flops of every variant compared with plain multi-head attention")

#define TOUR__X(name, walk, example, accepts, summary) void walk(tour *t);
TOUR_MAP(TOUR__X)
#undef TOUR__X

#endif

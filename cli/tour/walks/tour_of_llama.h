/* tour_of_llama.h - what the parts of the tour of LLaMA share. */
#ifndef CLI_TOUR_WALKS_TOUR_OF_LLAMA_H
#define CLI_TOUR_WALKS_TOUR_OF_LLAMA_H

#include "tour/tour_choice.h"

enum { LLAMA_BATCH = 2, LLAMA_TOKENS = 6 };

/* Sizes, and the tokens x and outputs [LLAMA_BATCH, tokens, width]. */
typedef struct llama_walk {
    tour *t;
    int64_t tokens, past, width, heads, D; /* past: tokens - 1; D: width of a head */
    tour_words words;                      /* the chosen text */
    float *x, *output;
} llama_walk;

/* Shows a cache of the keys and values of all tokens but the last, and the last token alone. */
void llama_show_cache(llama_walk *w);
/* Shows a cache with pages, to which tokens are appended one by one. */
void llama_show_pages(llama_walk *w);

#endif

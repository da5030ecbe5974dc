/* tour.h - the walk-throughs as data: what every step of `mha tour` says, and the tensors that it shows.
 *
 * A tour is a list of steps. tour_text.c, tour_json.c and tour_page.c show that list, each in its own way, and know
 * nothing of attention. The steps are made by tour_of_*.c, which know nothing of printing: they see the library by its
 * public headers alone, and are the tutorial of its C interface. Each names its program in examples/.
 *
 * A call that fails ends the walk: its sentence is in tour.error, where every library call of a walk puts it.
 */
#ifndef CLI_TOUR_TOUR_H
#define CLI_TOUR_TOUR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "mha/mha.h"

enum { TOUR_STEPS = 16, TOUR_TENSORS = 6, TOUR_COUNTS = 8 }; /* at most */

/* How a page draws a tensor. */
typedef enum tour_look {
    TOUR_NUMBERS = 0, /* a map of any numbers, zero in the middle of the scale */
    TOUR_WEIGHTS,     /* a map of numbers in [0, 1], a colour for each */
    TOUR_HEADS,       /* cells with their numbers, coloured by the head they belong to */
    TOUR_CURVE,       /* [n, 2]: a line through the points (x, y) */
    TOUR_ROWS,        /* no picture */
    TOUR_WHOLE        /* no picture; whole numbers, printed without a point */
} tour_look;

typedef struct tour_tensor {
    const char *name; /* a tour has it once */
    tour_look look;
    int64_t head_step, heads; /* TOUR_HEADS: number n belongs to head n / head_step % heads */
    int rank;                 /* 0..4; 0 is one number */
    int64_t shape[4], count;
    float *values; /* [count] row-major */
    char **words;  /* [word_count] of the rows, and of the columns where there are as many; NULL: rows are numbered */
    int64_t word_count;
} tour_tensor;

/* What a layer has and did. */
typedef struct tour_count {
    const char *name;
    int64_t parameters, flops; /* flops: multiplications and additions of one forward call's matrix products */
} tour_count;

typedef struct tour_step {
    const char *title;
    const char *call; /* the functions and fields that compute it */
    char *text;       /* what happens */
    tour_tensor tensors[TOUR_TENSORS];
    tour_count counts[TOUR_COUNTS]; /* the first one is what the others are compared with */
    int tensors_used, counts_used;
} tour_step;

typedef struct tour {
    const char *name, *summary, *example;
    const char *model; /* folder of the built-in model */
    mha_ctx *ctx;
    mha_variant *layer; /* the layer at work, by tour_layer */
    mha_trace *trace;   /* of its last forward call */
    mha_error error;
    tour_tensor nowhere; /* what a failed tour_show gives */
    tour_step steps[TOUR_STEPS];
    int step_count;
} tour;

/* Which tours there are, ended by a NULL name. */
typedef struct tour_entry {
    const char *name, *example, *summary;
    void (*walk)(tour *t);
} tour_entry;
extern const tour_entry tour_entries[];

/* NULL when memory is short. Look at ->error: a walk that failed has only the steps before. */
tour *tour_make(mha_ctx *ctx, const tour_entry *entry, const char *model);
void tour_free(tour *t);

/* ---- for the walks; after a failure they do nothing ---- */

/* Ends the walk if a library call failed. */
#define TOUR_TRY(call)                \
    do {                              \
        if ((call) != MHA_OK) return; \
    } while (0)

/* A new step; `format` as of printf. */
void tour_say(tour *t, const char *title, const char *call, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* A copy of a row-major tensor, for the last step: tour_show(t, "q", q, TOUR_SHAPE(5, 4)). The result is that copy, to
 * change how it looks; never NULL. */
#define TOUR_SHAPE(...)                                                    \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }
tour_tensor *tour_show(tour *t, const char *name, const float *values, int rank, const int64_t *shape);
tour_tensor *tour_show_weights(tour *t, const char *name, const float *values, int rank, const int64_t *shape);
/* Copies the words that the last two axes of a tensor stand for, as many as its last axis has entries. */
void tour_name_words(tour *t, tour_tensor *tensor, const char *const *words);
/* Makes it one whose colours tell `heads` heads apart, which change every `head_step` numbers. */
void tour_colour_heads(tour_tensor *tensor, int64_t heads, int64_t head_step);
/* One number. */
void tour_show_number(tour *t, const char *name, double value);
/* A step of the trace; the look of weights where it holds weights. */
tour_tensor *tour_show_trace(tour *t, const char *name, mha_step step);
/* Queries, keys and values of the trace, by head. */
void tour_show_qkv(tour *t);
/* A parameter of the layer. */
void tour_show_parameter(tour *t, const char *name);

/* Where a constructor puts the layer at work; the one before is freed. */
mha_variant **tour_layer(tour *t);
/* Parameters of the layer and flops of its last forward call. */
tour_count tour_counted(const tour *t, const char *name);
/* Adds a count to the last step: a given one, or that of the layer. */
void tour_count_given(tour *t, tour_count count);
void tour_count_layer(tour *t, const char *name);

/* ---- for the printers ---- */

/* The tensor as PyTorch prints it, in lines of about `columns`; summarised beyond 200 numbers. */
void tour_tensor_print(FILE *out, const tour_tensor *tensor, int columns);

#endif

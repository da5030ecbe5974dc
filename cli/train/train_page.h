/* train_page.h - writes the self-contained HTML page of a training run: loss, learning rate, gradient norm, samples and
 * settings. */
#ifndef CLI_TRAIN_TRAIN_PAGE_H
#define CLI_TRAIN_TRAIN_PAGE_H

#include "train/train_run.h"
#include <stdio.h>

/* The parts of the page before and after its data, generated at build time from cli/train/ (cmake/embed_page.cmake). */
extern const unsigned char train_page_before[], train_page_after[]; /* both terminated by NUL */

/* Writes the page to `out`. Returns 0, with an incomplete page, if memory is exhausted. */
int train_page_write(const train_run *run, FILE *out);

#endif

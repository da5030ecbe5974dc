/* train_digest.h - a hash of what a training reads (after Fowler, Noll and Vo): is it the same again? */
#ifndef CLI_TRAIN_TRAIN_DIGEST_H
#define CLI_TRAIN_TRAIN_DIGEST_H

#include <stddef.h>
#include <stdint.h>

typedef struct train_digest {
    uint64_t lane[4]; /* that do not wait for each other; all 0 at first */
} train_digest;

/* Bytes, in fours; how they are cut counts. Then a number, such as how many there were. */
void train_digest_put(train_digest *digest, const void *data, size_t bytes);
void train_digest_number(train_digest *digest, uint64_t number);
/* As 16 hexadecimal digits. */
void train_digest_print(const train_digest *digest, char to[17]);

#endif

/* json_number.h - real numbers as text, whatever the locale of the caller. */
#ifndef MHA_IO_JSON_JSON_NUMBER_H
#define MHA_IO_JSON_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number as JSON writes it, taken apart. */
typedef struct mha__json_decimal {
    uint64_t digits;          /* the first 19 or 20 significant ones */
    int64_t exponent;         /* of 10 */
    bool negative, real, cut; /* real: it has a point or an exponent; cut: there are more digits */
    size_t n;                 /* bytes of the number; 0: it is none */
} mha__json_decimal;

/* Takes apart the number at `text`, which a byte that belongs to no number ends. */
mha__json_decimal mha__json_decimal_of(const char *text);

/* The nearest double; infinite if the number is too large. */
double mha__json_real_of(const char *text, const mha__json_decimal *d);

/* Writes a finite number with 17 significant digits, and so that it stays real: 2.0, 1e-5. There is room for a decimal
 * point of 16 bytes. */
enum { MHA__JSON_REAL_BYTES = 48 };
void mha__json_real_text(double real, char to[MHA__JSON_REAL_BYTES]);

#endif

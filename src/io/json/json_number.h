/* json_number.h - converts real numbers from and to text, independently of the locale. */
#ifndef MHA_IO_JSON_JSON_NUMBER_H
#define MHA_IO_JSON_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A parsed JSON number in decimal. */
typedef struct mha__json_decimal {
    uint64_t digits;          /* the first 19 or 20 significant digits */
    int64_t exponent;         /* exponent of the power of 10 by which `digits` is multiplied */
    bool negative, real, cut; /* real: has a decimal point or an exponent; cut: digits were dropped */
    size_t n;                 /* length of the number [bytes]; 0 = not a number */
} mha__json_decimal;

/* Parses the number at `text`. The next byte after the number must not be part of a number. */
mha__json_decimal mha__json_decimal_of(const char *text);

/* Returns the nearest double; infinity if the number is too large. */
double mha__json_real_of(const char *text, const mha__json_decimal *d);

/* Writes a finite number as a real, such as 2.0 or 1e-5, with up to `digits` significant digits; 17 digits are exact.
 * The size allows for a decimal point of 16 bytes. */
enum { MHA__JSON_REAL_BYTES = 48, MHA__JSON_EXACT = 17 };
void mha__json_real_text(double real, int digits, char to[MHA__JSON_REAL_BYTES]);

#endif

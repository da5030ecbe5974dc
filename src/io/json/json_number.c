/* json_number.c - converts numbers between decimal text and double.
 *
 * Most numbers in files have few digits and a small exponent, so that the digits and the power of ten are exact
 * doubles and a single operation gives the rounded result. All other numbers are converted by strtod. The decimal
 * point depends on the locale, so the text for strtod has no decimal point, and the point that snprintf writes is
 * replaced. */
#include "io/json/json_number.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- reading ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Appends the digits from `at` on to d->digits, adjusts the exponent, and returns the end of the digits. Digits that do
 * not fit are dropped. */
static size_t take_digits(const char *text, size_t at, mha__json_decimal *d, bool fraction)
{
    static const uint64_t max = UINT64_MAX / 10 - 1; /* the largest value to which another digit can be appended
                                                       * without overflow */
    for (; is_digit(text[at]); at++) {
        if (d->digits <= max) {
            d->digits = 10 * d->digits + (uint64_t)(text[at] - '0');
            d->exponent -= fraction;
        } else {
            d->cut = true;
            d->exponent += !fraction;
        }
    }
    return at;
}

/* Reads the exponent at 'e'; returns 0 if it has no digits. Caps the exponent far beyond the range of a double. */
static size_t take_exponent(const char *text, size_t at, mha__json_decimal *d)
{
    const bool negative = text[at + 1] == '-';
    int64_t exponent = 0;
    at += 1 + (negative || text[at + 1] == '+');
    if (!is_digit(text[at])) return 0;
    for (; is_digit(text[at]); at++)
        if (exponent < INT32_MAX) exponent = 10 * exponent + (text[at] - '0');
    d->exponent += negative ? -exponent : exponent;
    return at;
}

mha__json_decimal mha__json_decimal_of(const char *text)
{
    static const mha__json_decimal none = {0};
    mha__json_decimal d = {.negative = text[0] == '-'};
    size_t at = d.negative;
    if (!is_digit(text[at]) || (text[at] == '0' && is_digit(text[at + 1]))) return none;
    at = take_digits(text, at, &d, false);
    if (text[at] == '.') {
        if (!is_digit(text[at + 1])) return none;
        d.real = true;
        at = take_digits(text, at + 1, &d, true);
    }
    if (text[at] == 'e' || text[at] == 'E') {
        d.real = true;
        at = take_exponent(text, at, &d);
    }
    d.n = at;
    return d;
}

/* Returns true if the digits and the power of ten are exact doubles; 10^22 is the largest exact power. */
static bool is_exact(const mha__json_decimal *d)
{
    return FLT_EVAL_METHOD == 0 && !d->cut && d->digits < (uint64_t)1 << 53 && d->exponent >= -22 && d->exponent <= 22;
}

/* Maximum number of digits passed to strtod, enough to round correctly: the midpoint of two doubles has at most 767
 * digits. The remaining digits only matter if one of them is not 0, so a single digit represents them. */
enum { DIGITS = 800 };

/* Copies the significant digits of `text`; returns their count. */
static size_t copy_digits(const char *text, char to[DIGITS])
{
    size_t n = 0;
    for (; is_digit(*text) || *text == '.'; text++) {
        if (*text == '.' || (n == 0 && *text == '0')) continue;
        if (n < DIGITS)
            to[n++] = *text;
        else if (*text != '0')
            to[DIGITS - 1] = '1'; /* this digit represents the remaining digits */
    }
    return n;
}

/* Returns the number of decimal digits in `digits`. */
static int count_digits(uint64_t digits)
{
    int n = 0;
    for (; digits; digits /= 10)
        n++;
    return n;
}

static void put_exponent(char *to, int64_t exponent)
{
    char reversed[24];
    size_t n = 0;
    uint64_t rest = exponent < 0 ? 0 - (uint64_t)exponent : (uint64_t)exponent;
    *to++ = 'e';
    if (exponent < 0) *to++ = '-';
    do
        reversed[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    while (n > 0)
        *to++ = reversed[--n];
    *to = '\0';
}

/* Calls strtod on digits and an exponent without a decimal point, so the result does not depend on the locale. */
static double nearest(const char *text, const mha__json_decimal *d)
{
    char number[DIGITS + 32];
    number[0] = '-';
    number[1] = '0';
    const size_t n = copy_digits(text + d->negative, number + 2);
    put_exponent(number + 2 + n, d->exponent - (d->cut ? (int64_t)n - count_digits(d->digits) : 0));
    return strtod(number + !d->negative, NULL);
}

double mha__json_real_of(const char *text, const mha__json_decimal *d)
{
    static const double power[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                   1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (!is_exact(d)) return nearest(text, d);
    const double x = (double)d->digits;
    const double y = d->exponent < 0 ? x / power[-d->exponent] : x * power[d->exponent];
    return d->negative ? -y : y;
}

/* ---- writing ---- */

/* Shortens 1e+05 to 1e5, and 1e-05 to 1e-5. */
static void shorten_exponent(char *text)
{
    char *at = strchr(text, 'e');
    if (!at) return;
    const char *from = at + 2;
    at += at[1] == '-' ? 2 : 1;
    while (*from == '0')
        from++;
    memmove(at, from, strlen(from) + 1);
}

/* Replaces the locale's decimal point, of any length, with '.'; appends ".0" if the number has none. */
static void plain_point(char *text)
{
    char *at = text + strspn(text, "-0123456789"), *from = at;
    if (*at == 'e') return;
    while (*from && !is_digit(*from))
        from++;
    memmove(at + 1, *from ? from : "0", *from ? strlen(from) + 1 : 2);
    *at = '.';
}

void mha__json_real_text(double real, int digits, char to[MHA__JSON_REAL_BYTES])
{
    snprintf(to, MHA__JSON_REAL_BYTES - 2, "%.*g", digits, real);
    plain_point(to);
    shorten_exponent(to);
}

/* check.h - cmocka with the headers that it wants to see first, and what is asked of sentences. */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* True if `word` stands in `text` as a number or name of its own: "1" does not count inside "-1", "0.1" or "16". */
bool check_has_word(const char *text, const char *word);

#endif

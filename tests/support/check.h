/* check.h - cmocka with the headers that must precede it, and checks of messages. */
#ifndef TEST_CHECK_H
#define TEST_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Returns true if `word` occurs in `text` as a separate number or name: "1" does not match inside "-1", "0.1" or
 * "16". */
bool check_has_word(const char *text, const char *word);

#endif

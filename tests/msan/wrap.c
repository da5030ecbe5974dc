/* wrap.c - marks memory written by uninstrumented libraries as initialized for the memory sanitizer.
 *
 * The sanitizer tracks only writes of instrumented code, and the packaged PCRE2, utf8proc and jansson are not
 * instrumented. With --wrap, the linker redirects their calls that write memory to this file. The preset msan excludes
 * tests that read JSON files with jansson itself, because no wrapper can mark jansson's own stack frames. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <sanitizer/msan_interface.h>
#include <stdlib.h>
#include <utf8proc.h>

int __real_pcre2_match_8(const pcre2_code *code, PCRE2_SPTR text, PCRE2_SIZE length, PCRE2_SIZE start, uint32_t options,
                         pcre2_match_data *data, pcre2_match_context *context);
pcre2_code *__real_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error,
                                   PCRE2_SIZE *offset, pcre2_compile_context *context);
utf8proc_ssize_t __real_utf8proc_decompose_char(utf8proc_int32_t code, utf8proc_int32_t *parts, utf8proc_ssize_t count,
                                                utf8proc_option_t options, int *last_class);
utf8proc_bool __real_utf8proc_grapheme_break_stateful(utf8proc_int32_t a, utf8proc_int32_t b, utf8proc_int32_t *state);
utf8proc_ssize_t __real_utf8proc_iterate(const utf8proc_uint8_t *text, utf8proc_ssize_t length, utf8proc_int32_t *code);

int __wrap_pcre2_match_8(const pcre2_code *code, PCRE2_SPTR text, PCRE2_SIZE length, PCRE2_SIZE start, uint32_t options,
                         pcre2_match_data *data, pcre2_match_context *context)
{
    __msan_check_mem_is_initialized(text, length);
    int found = __real_pcre2_match_8(code, text, length, start, options, data, context);
    __msan_unpoison(&found, sizeof found);
    __msan_unpoison(pcre2_get_ovector_pointer(data), 2 * pcre2_get_ovector_count(data) * sizeof(PCRE2_SIZE));
    return found;
}

pcre2_code *__wrap_pcre2_compile_8(PCRE2_SPTR pattern, PCRE2_SIZE length, uint32_t options, int *error,
                                   PCRE2_SIZE *offset, pcre2_compile_context *context)
{
    pcre2_code *code = __real_pcre2_compile_8(pattern, length, options, error, offset, context);
    __msan_unpoison(error, sizeof *error);
    __msan_unpoison(offset, sizeof *offset);
    __msan_unpoison(&code, sizeof code);
    return code;
}

utf8proc_ssize_t __wrap_utf8proc_decompose_char(utf8proc_int32_t code, utf8proc_int32_t *parts, utf8proc_ssize_t count,
                                                utf8proc_option_t options, int *last_class)
{
    __msan_check_mem_is_initialized(&code, sizeof code);
    utf8proc_ssize_t written = __real_utf8proc_decompose_char(code, parts, count, options, last_class);
    __msan_unpoison(&written, sizeof written);
    if (written > 0) __msan_unpoison(parts, (size_t)(written < count ? written : count) * sizeof *parts);
    __msan_unpoison(last_class, sizeof *last_class);
    return written;
}

utf8proc_bool __wrap_utf8proc_grapheme_break_stateful(utf8proc_int32_t a, utf8proc_int32_t b, utf8proc_int32_t *state)
{
    utf8proc_bool breaks = __real_utf8proc_grapheme_break_stateful(a, b, state);
    __msan_unpoison(&breaks, sizeof breaks);
    __msan_unpoison(state, sizeof *state);
    return breaks;
}

utf8proc_ssize_t __wrap_utf8proc_iterate(const utf8proc_uint8_t *text, utf8proc_ssize_t length, utf8proc_int32_t *code)
{
    utf8proc_ssize_t taken = __real_utf8proc_iterate(text, length, code);
    __msan_unpoison(&taken, sizeof taken);
    __msan_unpoison(code, sizeof *code);
    return taken;
}

/* Allocates zeroed memory for jansson, because its macros, in instrumented code, read its objects directly. */
static void *written_memory(size_t size)
{
    return calloc(1, size);
}

__attribute__((constructor)) static void give_jansson_written_memory(void)
{
    json_set_alloc_funcs(written_memory, free);
}

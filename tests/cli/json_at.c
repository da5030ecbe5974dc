/* json_at.c - a tool for the tests of the program: json_at PATH reads a JSON value from stdin and prints the value at a
 * path such as metrics.entropy.0.3. The path component "#" is the number of entries in an array or object. Exits with 1
 * if the input is not a JSON value or has no value at the path. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

static const json_t *step(const json_t *value, const char *key)
{
    if (json_is_array(value)) return json_array_get(value, strtoul(key, NULL, 10));
    return json_object_get(value, key);
}

static int print(const json_t *value)
{
    if (json_is_string(value)) return printf("%s\n", json_string_value(value)) < 0;
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    if (!text) return 1;
    puts(text);
    free(text);
    return 0;
}

int main(int argc, char **argv)
{
    json_error_t error;
    json_t *root = json_loadf(stdin, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &error);
    if (!root || argc != 2) {
        fprintf(stderr, "json_at: %s\n", root ? "usage: json_at PATH" : error.text);
        return 1;
    }
    const json_t *value = root;
    for (char *key = strtok(argv[1], "."); key && value; key = strtok(NULL, ".")) {
        if (strcmp(key, "#") == 0) {
            printf("%zu\n", json_is_array(value) ? json_array_size(value) : json_object_size(value));
            json_decref(root);
            return 0;
        }
        value = step(value, key);
    }
    int failed = value ? print(value) : 1;
    json_decref(root);
    return failed;
}

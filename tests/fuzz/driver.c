/* driver.c - replays a corpus without libFuzzer: fuzz_X FOLDER... [--unchanged FOLDER...]
 * Passes every file to the target unchanged and, unless its folder follows --unchanged, truncated at 16 positions and
 * 64 times with a few modified bytes. The seed of the modifications is fixed, so runs are repeatable. Prints the number
 * of inputs.
 */
#include "fuzz.h"
#include "support/files.h"
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUTS = 16, CHANGES = 64 };

/* Returns the next value of the random generator splitmix64. */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Passes a modified copy of the input to the target. The memory of the copy has exactly the size of the input, so that
 * a sanitizer detects reads past the end. */
static void try_copy(const char *bytes, size_t n, uint64_t *changes)
{
    uint8_t *copy = malloc(n + !n);
    memcpy(copy, bytes, n);
    for (uint64_t k = changes && n ? 1 + next(changes) % 3 : 0; k > 0; k--) {
        uint64_t r = next(changes);
        size_t at = (size_t)(r % n);
        copy[at] = r >> 62 ? copy[(size_t)((r >> 32) % n)] : (uint8_t)(r >> 40);
    }
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

static long replay(const char *path, bool unchanged)
{
    size_t n;
    char *bytes = files_read(path, &n);
    if (!bytes) return 0;
    uint64_t seed = n;
    try_copy(bytes, n, NULL);
    for (size_t i = 0; !unchanged && i < CUTS; i++)
        try_copy(bytes, n * i / CUTS, NULL);
    for (int i = 0; !unchanged && i < CHANGES; i++)
        try_copy(bytes, n, &seed);
    free(bytes);
    return unchanged ? 1 : 1 + CUTS + CHANGES;
}

static long replay_folder(const char *folder, bool unchanged)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    long inputs = 0;
    for (int i = 0; i < count; i++) {
        if (entries[i]->d_name[0] != '.') inputs += replay(files_path(folder, entries[i]->d_name), unchanged);
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return inputs;
}

int main(int argc, char **argv)
{
    /* use a folder in memory, because every input is written to a file */
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    bool unchanged = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--unchanged") == 0) {
            unchanged = true;
            continue;
        }
        long inputs = replay_folder(argv[i], unchanged);
        printf("%s: %ld inputs\n", argv[i], inputs);
        if (inputs == 0 && !unchanged) return 1;
    }
    return argc < 2;
}

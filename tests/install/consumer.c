/* consumer.c - a program outside the project; checks that its headers and the loaded library have the same version. */
#include <mha/mha.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    mha_error err = {0};
    mha_ctx *ctx;
    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", MHA_VERSION_MAJOR, MHA_VERSION_MINOR, MHA_VERSION_PATCH);
    if (strcmp(mha_version(), version) != 0) {
        fprintf(stderr, "header %s, library %s\n", version, mha_version());
        return 1;
    }
    if (mha_ctx_create(NULL, &ctx, &err) != MHA_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    mha_ctx_free(ctx);
    return 0;
}

/* fuzz_image.c - reads bytes as an image file. A rejected file must be named, and an accepted file must have pixels. */
#include "fuzz.h"
#include "mha/image.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    mha_error err = {0};
    mha_image image;
    const char *path = fuzz_file(bytes, n);
    const mha_status status = mha_image_read(fuzz_ctx(), path, &image, &err);
    fuzz_refusal(status, &err, path);
    int64_t sum = 0;
    for (int64_t i = 0; image.rgb && i < image.height * image.width * 3; i++)
        sum += image.rgb[i];
    fuzz_check((status == MHA_OK) == (image.rgb != NULL) && sum >= 0, "an accepted image must have pixels");
    mha_image_free(&image);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     What a backend that reads files itself says of one is checked before anybody goes by it; what it is told has no graph.
 * Method   The plug-in of lying_backend.c, argv[1], says what the file says.
 */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "runtime/variant.h"
#include "tests/runtime/fake_root.h"

static void
expect_with(const char *options, enum leat_status status, const char *text, const char *file)
{
    const struct leat_variant_source source = {
        .name = "m", .backend = "lying", .onnx = file, .onnx_bytes = strlen(file), .items_max = 2, .options_json = options};
    struct leat_loaded_variant loaded;

    const enum leat_status got = leat_variant_load(&source, &loaded);
    if (got != status || strstr(leat_error_text(), text) == NULL) {
        (void)fprintf(stderr, "'%s': %d, '%s', not %d, '%s'\n", file, got, leat_error_text(), status, text);
        EXPECT(!"what a backend says is checked");
    }
}

static void
expect(enum leat_status status, const char *text, const char *file)
{
    expect_with(NULL, status, text, file);
}

int
main(int argc, char **argv)
{
    static const char *const impossible[] = {
        "1 1 0 2 -1 4 16",                   /* no element type */
        "1 1 99 2 -1 4 16",
        "1 1 1 0 -1 4 4",                    /* no batch */
        "1 1 1 9 -1 4 16",                   /* too many axes */
        "1 1 1 2 1 4 16",                    /* the batch is not free */
        "1 1 1 2 -1 0 0",                    /* nothing in it */
        "1 1 1 2 -1 -1 16",                  /* free inside */
        "1 1 1 2 -1 4 15",                   /* bytes that are none of its shape's */
        "1 1 1 2 -1 4611686018427387904 0",  /* and that overflow */
        "1 1 1 2 -1 1099511627776 4398046511104",
        "1 1 1 2 -1 4 16 2",                 /* a dimension varies that is none */
        "1 1 1 2 -1 4 16 4294967295",
        "1 1 1 2 -1 4 16 1 all",             /* an input does */
        "1 1 1 2 -1 65536 262144 1",         /* more than can be told */
    };
    static const char *const counts[] = {"0 1 1 2 -1 4 16", "1 0 1 2 -1 4 16", "64 1 1 2 -1 4 16", "1 4294967295 1 2 -1 4 16",
                                         "4294967295 1 1 2 -1 4 16", "4294967295 4294967295 1 2 -1 4 16"};
    struct fake_root root;
    char path[256], command[1024];

    EXPECT(argc == 2);
    fake_root_init(&root); /* a copy, with a mode that is right whatever the umask was */
    (void)snprintf(path, sizeof(path), "%s/lying.so", root.path);
    (void)snprintf(command, sizeof(command), "install -m 644 '%s' '%s'", argv[1], path);
    EXPECT(system(command) == 0);
    const enum leat_status status = leat_backend_load("lying", path, "");
    if (status != LEAT_OK) {
        (void)fprintf(stderr, "%s\n", leat_error_text());
    }
    EXPECT(status == LEAT_OK);
    expect(LEAT_ERR_DEVICE, "believed: 1 and 2, without a graph", "1 2 1 2 -1 4 16");
    expect(LEAT_ERR_DEVICE, "believed: 5 and 1, without a graph", "5 1 1 1 -1 0 4");
    expect(LEAT_ERR_DEVICE, "believed: 1 and 4, without a graph", "1 4 1 2 -1 65535 262140 1");
    expect(LEAT_ERR_UNSUPPORTED, "more than 4 outputs vary", "1 5 1 2 -1 4 16 1");
    expect(LEAT_ERR_PROTO, "model 'm': seven numbers", "1 2");
    expect_with("{\"constants\":{\"x\":1}}", LEAT_ERR_UNSUPPORTED,
                "model 'm': backend 'lying' reads files by itself, and has no constants for their inputs: cpu and reference do",
                "1 2 1 2 -1 4 16");
    for (size_t i = 0; i < LEAT_COUNT_OF(impossible); i++) {
        expect(LEAT_ERR_SHAPE, "backend 'lying' says of tensor 'tensor' what cannot be", impossible[i]);
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(counts); i++) {
        expect(LEAT_ERR_UNSUPPORTED, "at least one of each, and up to 64 in all", counts[i]);
    }
    fake_root_fini(&root);
    return 0;
}

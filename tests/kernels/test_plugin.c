/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     A plug-in is loaded from a file that is only its owner's to write, and refused, with the reason, where it has no
 *          symbol, another ABI, a name that is taken, or lacks what a backend needs; nothing of one of another ABI runs.
 * Method   Libraries of tests/kernels/plugins.c in the folder argv[1], copied where modes are to be changed.
 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/align.h"
#include "kernels/backend.h"
#include "kernels/team.h"
#include "tests/runtime/fake_root.h"

static const char *folder;
static struct fake_root root;

static void
copy_file(const char *from, const char *to)
{
    char bytes[4096];
    size_t got;
    FILE *in = fopen(from, "r"), *out = fopen(to, "w");

    EXPECT(in != NULL && out != NULL);
    while ((got = fread(bytes, 1, sizeof(bytes), in)) > 0) {
        EXPECT(fwrite(bytes, 1, got, out) == got);
    }
    EXPECT(ferror(in) == 0 && fclose(in) == 0 && fclose(out) == 0);
}

/* A library, with a mode that is right whatever the umask was when it was built. */
static const char *
path_of(const char *name)
{
    static char paths[2][256];
    static unsigned calls;
    char *path = paths[calls++ % 2], built[512];

    (void)snprintf(built, sizeof(built), "%s/plugin_%s.so", folder, name);
    (void)snprintf(path, sizeof(paths[0]), "%s/%s.so", root.path, name);
    if (access(path, F_OK) != 0) {
        copy_file(built, path);
        EXPECT(chmod(path, 0644) == 0);
    }
    return path;
}

static void
expect(enum leat_status status, const char *text, const char *name, const char *path, const char *options)
{
    const enum leat_status got = leat_backend_load(name, path, options);
    if (got != status || (status != LEAT_OK && strstr(leat_error_text(), text) == NULL)) {
        (void)fprintf(stderr, "loading %s: %d with '%s', not %d with '%s'\n", path, got, leat_error_text(), status, text);
        EXPECT(!"a plug-in is loaded as expected");
    }
}

static void
test_refusals(void)
{
    expect(LEAT_ERR_NOT_FOUND, "there is no file /nowhere/x.so", "x", "/nowhere/x.so", "");
    expect(LEAT_ERR_PROTO, "is no regular file", "x", "/dev/null", "");
    expect(LEAT_ERR_PROTO, "no symbol leat_backend_plugin", "x", path_of("no_symbol"), "");
    expect(LEAT_ERR_VERSION, "version 77", "x", path_of("other_abi"), "");
    expect(LEAT_ERR_VERSION, "version 4294967295", "x", path_of("backend_abi"), "");
    expect(LEAT_ERR_INVALID, "lacks functions", "x", path_of("half"), "");
    expect(LEAT_ERR_INVALID, "does not run models as they are", "x", path_of("no_f32"), "");
    expect(LEAT_ERR_INVALID, "returned no backend", "x", path_of("nothing"), "");
    expect(LEAT_ERR_EXISTS, "there is a backend 'cpu'", "cpu", path_of("good"), "");
    expect(LEAT_ERR_INVALID, "no backend's name", "", path_of("good"), "");
    expect(LEAT_ERR_INVALID, "no backend's name", "a2345678901234567890123456789012", path_of("good"), "");
    EXPECT(leat_backend_find("x") == NULL);
}

/* Where others could write, they could have anything run as us. */
static void
test_who_may_write(void)
{
    static const mode_t wrong[] = {0664, 0646, 0666, 0777, 0775};
    char path[512], text[64];

    (void)snprintf(path, sizeof(path), "%s/copy.so", root.path);
    copy_file(path_of("good"), path);
    for (size_t m = 0; m < LEAT_COUNT_OF(wrong); m++) {
        EXPECT(chmod(path, wrong[m]) == 0);
        (void)snprintf(text, sizeof(text), "mode %04o", (unsigned)wrong[m]);
        expect(LEAT_ERR_ACCESS, text, "x", path, "");
        expect(LEAT_ERR_ACCESS, text, "x", path_of("good"), path); /* nor may a library that a plug-in needs */
    }
    EXPECT(chmod(path, 0644) == 0 && chmod(root.path, 0777) == 0); /* nor may the folder be exchanged */
    (void)snprintf(text, sizeof(text), "%s has mode 0777", root.path);
    expect(LEAT_ERR_ACCESS, text, "x", path, "");
    EXPECT(chmod(root.path, 01777) == 0);
    expect(LEAT_ERR_INVALID, "returned no backend", "x", path_of("nothing"), "");
    EXPECT(chmod(root.path, 0700) == 0);
    if (geteuid() == 0) {
        EXPECT(chmod(path, 0644) == 0 && chown(path, 1234, 0) == 0);
        expect(LEAT_ERR_ACCESS, "belongs to user 1234", "x", path, "");
        EXPECT(chown(path, 0, 0) == 0);
    }
    FILE *out = fopen(path, "w");
    EXPECT(out != NULL && fputs("not a library", out) >= 0 && fclose(out) == 0 && chmod(path, 0600) == 0);
    expect(LEAT_ERR_PROTO, path, "x", path, "");
    EXPECT(unlink(path) == 0);
    expect(LEAT_ERR_NOT_FOUND, "libleat-does-not-exist", "x", path_of("good"), "libleat-does-not-exist.so");
}

static void
count_one(void *context)
{
    ++*(uint32_t *)context;
}

static void
test_loading(void)
{
    const struct leat_team_options options = {.size = 1};
    struct leat_team *team;
    uint32_t yields = 0;
    char names[256];
    struct leat_plan *plan = NULL;

    expect(LEAT_OK, "", "mine", path_of("good"), path_of("no_symbol"));
    const struct leat_backend *backend = leat_backend_find("mine");
    EXPECT(backend != NULL && strcmp(backend->name, "mine") == 0);
    EXPECT(leat_backend_precisions(backend) == LEAT_PRECISION_BIT(LEAT_PRECISION_F32));
    EXPECT(backend->plan_run(plan, NULL, 0, NULL, NULL) == LEAT_ERR_BUSY);
    EXPECT(strcmp(leat_error_text(), "the host was asked 3 times") == 0);
    EXPECT(leat_team_create(&options, &team) == LEAT_OK);
    leat_team_set_yield(team, count_one, &yields);
    EXPECT(backend->plan_run(plan, NULL, 0, NULL, team) == LEAT_ERR_BUSY && yields == 1);
    leat_team_destroy(team);
    expect(LEAT_ERR_EXISTS, "there is a backend 'mine'", "mine", path_of("good"), "");
    expect(LEAT_ERR_EXISTS, "loaded already, as backend 'mine'", "other", path_of("good"), "");
    EXPECT(strcmp(leat_backend_names(names, sizeof(names)), "cpu, reference, synthetic, mine") == 0);
    EXPECT(strcmp(leat_backend_names(names, 6), "cpu, ") == 0);
}

int
main(int argc, char **argv)
{
    EXPECT(argc == 2);
    folder = argv[1];
    fake_root_init(&root);
    test_refusals();
    test_who_may_write();
    test_loading();
    fake_root_fini(&root);
    return 0;
}

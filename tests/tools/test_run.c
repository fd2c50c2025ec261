/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: `leat run` takes files of the input's type and shape only, and says what it needs otherwise; what a refusal tells of costs. */
#include <signal.h>
#include "tests/system/leatd.h"
#include "tests/tools/command.h"
#include "base/npy.h"

static struct leatd leatd;

/* Runs `leat run` with a file of u8 in this shape; returns its exit code. */
static int
run(struct command *command, const int64_t *dims, uint32_t rank, const char *items)
{
    struct npy_array array = {.dtype = LEAT_DTYPE_U8, .rank = rank, .elements = 1};
    char path[160];

    for (uint32_t d = 0; d < rank; d++) {
        array.dims[d] = dims[d];
        array.elements *= (uint64_t)dims[d];
    }
    array.data = calloc(array.elements + 1, 1);
    EXPECT(array.data != NULL);
    (void)snprintf(path, sizeof(path), "%s/in.npy", leatd.root.path);
    EXPECT(npy_write(path, &array) == LEAT_OK);
    npy_free(&array);
    const char *const arguments[] = {"run",      "shaped", "--input", path, "--json", items != NULL ? "--items" : NULL,
                                     items, NULL};
    return command_run(command, leatd.socket_path, arguments);
}

int
main(void)
{
    static struct command command;

    leat_test_init();
    leatd_init(&leatd);
    leatd_start(&leatd, "classes: [{name: paid, price: 1000000}, {name: free}]\n"
                      "workers: [{count: 1, class: paid}, {count: 1, class: free}]\n"
                      "models:\n"
                      "  - name: shaped\n"
                      "    backend: synthetic\n"
                      "    synthetic: {latency: 5ms, inputs: [{name: image, dtype: u8, dims: [1, 4, 4]}]}\n");
    EXPECT(run(&command, (int64_t[]){1, 1, 4, 4}, 4, NULL) == 0);
    EXPECT(run(&command, (int64_t[]){3, 1, 4, 4}, 4, NULL) == 0 && strstr(command.out, "\"outcome\":\"ok\"") != NULL);
    EXPECT(run(&command, (int64_t[]){3, 1, 4, 4}, 4, "2") == 0);
    EXPECT(run(&command, (int64_t[]){3, 1, 4, 4}, 4, "4") == 1);
    EXPECT(strstr(command.err, "in.npy holds u8[3,1,4,4], but input 'image' needs u8[4,1,4,4]") != NULL);
    EXPECT(run(&command, (int64_t[]){16}, 1, NULL) == 1);
    EXPECT(strstr(command.err, "in.npy holds u8[16], but input 'image' needs u8[N,1,4,4]") != NULL);
    EXPECT(run(&command, (int64_t[]){1, 4, 4, 1}, 4, NULL) == 1);
    EXPECT(run(&command, (int64_t[]){0, 1, 4, 4}, 4, NULL) == 1);
    static const char *const capped[] = {"run", "shaped", "--cost-cap", "1", NULL};
    EXPECT(command_run(&command, leatd.socket_path, capped) == 3);
    EXPECT(strstr(command.out, "has no price, and no other is cheap enough (set a price for class 'free')") != NULL);
    EXPECT(strstr(command.out, "closest is 'shaped', would cost ") != NULL); /* where there is a price */
    EXPECT(strstr(command.out, ", execution would be ") != NULL);
    static const char *const lost[] = {"run", "shaped", "--output", "nothing=answer.npy", NULL};
    EXPECT(command_run(&command, leatd.socket_path, lost) == 2 && command.out[0] == '\0'); /* nobody was asked */
    EXPECT(strstr(command.err, "'shaped' has no output for 'nothing=answer.npy', but output\n") != NULL);
    static const char *const dear[] = {"run", "dear", "--cost-cap", "0.000001", NULL};
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    leatd_init(&leatd);
    leatd_start(&leatd, "classes: [{name: cpu, price: 3.6}]\n"
                        "models: [{name: dear, backend: synthetic, accuracy: 0.75, synthetic: {latency: 10ms}}]\n");
    EXPECT(command_run(&command, leatd.socket_path, dear) == 3);
    EXPECT(strstr(command.out, "closest is 'dear', accuracy 75.00 %, would cost 0.00001") != NULL);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
    return 0;
}

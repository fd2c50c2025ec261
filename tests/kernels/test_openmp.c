/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     oneDNN's parallel regions run on the worker's team, and on nothing else: libgomp starts no thread.
 * Method   A convolution large enough to be split is made for three threads and run on a team of three: the
 *          count of regions must rise, the process must have exactly the team's threads, and the result must
 *          equal that of one thread; so must it in parts, of which a team runs several for each member. Regions and
 *          barriers called directly, as a compiler would emit them.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdbool.h>
#include <string.h>

#include "base/align.h"
#include "kernels/cpu/cxx_heap.h"
#include "kernels/cpu/openmp.h"
#include "kernels/team.h"
#include "tests/leat_test.h"

enum { TEAM = 3, PARTS = 4, CHANNELS = 64, SIDE = 28, ELEMENTS = CHANNELS * SIDE * SIDE };

extern void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
extern void GOMP_barrier(void);
extern int omp_get_thread_num(void);
extern int omp_get_num_threads(void);
extern int omp_get_max_threads(void);
extern int omp_in_parallel(void);

static unsigned
thread_count(void)
{
    unsigned count = 0;
    DIR *tasks = opendir("/proc/self/task");
    EXPECT(tasks != NULL);
    for (const struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks)) {
        count += entry->d_name[0] != '.';
    }
    (void)closedir(tasks);
    return count;
}

/* What oneDNN calls must be the functions of this executable, as its own dynamic linking would find them. */
static void
test_symbols(void)
{
    static const char *const names[] = {"GOMP_parallel", "GOMP_barrier", "omp_get_thread_num", "omp_get_num_threads",
                                        "omp_get_max_threads", "omp_in_parallel", "_Znwm", "_ZdlPv"};
    Dl_info of_main, of_symbol;

    EXPECT(dladdr((void *)(uintptr_t)leat_openmp_enter, &of_main) != 0);
    for (size_t i = 0; i < LEAT_COUNT_OF(names); i++) {
        const void *symbol = dlsym(RTLD_DEFAULT, names[i]);
        EXPECT(symbol != NULL && dladdr(symbol, &of_symbol) != 0);
        EXPECT(of_symbol.dli_fbase == of_main.dli_fbase);
    }
}

struct seen {
    uint32_t arrived[TEAM], after[TEAM];
    int number[TEAM], threads[TEAM], most[TEAM], inside[TEAM];
    uint32_t nested[TEAM];
};

static void
nested(void *context)
{
    uint32_t *calls = context;
    EXPECT(omp_get_thread_num() == 0 && omp_get_num_threads() == 1);
    (*calls)++;
}

static void
look(void *context)
{
    struct seen *seen = context;
    const int me = omp_get_thread_num();

    seen->number[me]++;
    seen->threads[me] = omp_get_num_threads();
    seen->most[me] = omp_get_max_threads();
    seen->inside[me] = omp_in_parallel();
    seen->arrived[me] = 1;
    GOMP_barrier();
    for (int i = 0; i < omp_get_num_threads(); i++) {
        seen->after[me] += seen->arrived[i];
    }
    GOMP_parallel(nested, &seen->nested[me], 0, 0);
    EXPECT(omp_get_thread_num() == me); /* a nested region leaves no trace */
}

static void
test_regions(struct leat_team *team)
{
    for (unsigned asked = 0; asked <= TEAM + 1; asked++) {
        const uint32_t members = asked == 0 || asked > TEAM ? TEAM : asked;
        struct seen seen = {.arrived = {0}};
        leat_openmp_enter(team, TEAM);
        EXPECT(omp_get_max_threads() == TEAM && omp_get_num_threads() == 1 && !omp_in_parallel());
        GOMP_parallel(look, &seen, asked, 0);
        leat_openmp_leave();
        for (uint32_t m = 0; m < TEAM; m++) {
            const bool in = m < members;
            EXPECT(seen.number[m] == (int)in && seen.threads[m] == (in ? (int)members : 0));
            EXPECT(seen.after[m] == (in ? members : 0) && seen.nested[m] == in);
            EXPECT(!in || (seen.inside[m] != 0) == (members > 1));
        }
    }
    /* Without a team, and with a program for fewer threads than the team has. */
    struct seen alone = {.arrived = {0}}, fewer = {.arrived = {0}};
    GOMP_parallel(look, &alone, TEAM, 0);
    EXPECT(alone.number[0] == 1 && alone.number[1] == 0 && omp_get_max_threads() == 1);
    leat_openmp_enter(team, 2);
    GOMP_parallel(look, &fewer, 0, 0);
    leat_openmp_leave();
    EXPECT(fewer.after[0] == 2 && fewer.after[1] == 2 && fewer.after[2] == 0);
    EXPECT(leat_openmp_pretend(TEAM) == 0 && omp_get_max_threads() == TEAM);
    EXPECT(leat_openmp_pretend(0) == TEAM && omp_get_max_threads() == 1);
}

struct parts {
    int count, seen[PARTS * TEAM];
    uint32_t nested[PARTS * TEAM];
};

static void
look_at_part(void *context)
{
    struct parts *parts = context;
    const int me = omp_get_thread_num();

    EXPECT(me < parts->count && omp_get_num_threads() == parts->count &&
           omp_in_parallel() == (parts->count > 1));
    parts->seen[me]++;
    GOMP_parallel(nested, &parts->nested[me], 0, 0);
    EXPECT(omp_get_thread_num() == me && omp_get_num_threads() == parts->count);
}

/* As many threads as there are parts, by their numbers; fewer where fewer are asked for. */
static void
test_parts(struct leat_team *team)
{
    for (uint32_t threads = 1; threads <= TEAM; threads++) {
        const int most = threads == 1 ? 1 : (int)threads * PARTS;
        for (int asked = 0; asked <= most + 1; asked++) {
            struct parts parts = {.count = asked == 0 || asked > most ? most : asked};
            leat_openmp_enter(team, threads);
            leat_openmp_divide(PARTS);
            EXPECT(omp_get_max_threads() == most);
            GOMP_parallel(look_at_part, &parts, (unsigned)asked, 0);
            leat_openmp_divide(1);
            EXPECT(omp_get_max_threads() == (int)threads);
            leat_openmp_leave();
            for (int p = 0; p < PARTS * TEAM; p++) {
                EXPECT(parts.seen[p] == (p < parts.count) && parts.nested[p] == (p < parts.count));
            }
        }
    }
}

static float x[ELEMENTS], w[CHANNELS * CHANNELS * 9], y[2][ELEMENTS];

#define MUST(call) EXPECT((call) == dnnl_success)

static void
convolve(struct leat_team *team, uint32_t threads, uint32_t parts, float *out)
{
    const dnnl_dims_t x_dims = {1, CHANNELS, SIDE, SIDE}, w_dims = {CHANNELS, CHANNELS, 3, 3}, ones = {1, 1}, none = {0, 0};
    dnnl_memory_desc_t x_md, w_md;
    dnnl_convolution_desc_t conv;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t memories[3];

    MUST(dnnl_engine_create(&engine, dnnl_cpu, 0));
    MUST(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags));
    MUST(dnnl_memory_desc_init_by_tag(&x_md, 4, x_dims, dnnl_f32, dnnl_nhwc));
    MUST(dnnl_memory_desc_init_by_tag(&w_md, 4, w_dims, dnnl_f32, dnnl_hwio));
    MUST(dnnl_dilated_convolution_forward_desc_init(&conv, dnnl_forward_inference, dnnl_convolution_direct, &x_md, &w_md,
                                                    NULL, &x_md, ones, none, ones, ones));
    (void)leat_openmp_pretend(threads);
    leat_openmp_divide(parts);
    MUST(dnnl_primitive_desc_create(&pd, &conv, NULL, engine, NULL));
    MUST(dnnl_primitive_create(&primitive, pd));
    leat_openmp_divide(1);
    (void)leat_openmp_pretend(0);
    MUST(dnnl_memory_create(&memories[0], &x_md, engine, x));
    MUST(dnnl_memory_create(&memories[1], &w_md, engine, w));
    MUST(dnnl_memory_create(&memories[2], &x_md, engine, out));
    const dnnl_exec_arg_t args[3] = {
        {DNNL_ARG_SRC, memories[0]}, {DNNL_ARG_WEIGHTS, memories[1]}, {DNNL_ARG_DST, memories[2]}};
    leat_openmp_enter(team, threads);
    leat_openmp_divide(parts);
    leat_cxx_heap_enter();
    const uint64_t before = leat_openmp_regions();
    for (int i = 0; i < 10; i++) {
        MUST(dnnl_primitive_execute(primitive, stream, 3, args));
    }
    EXPECT((leat_openmp_regions() > before) == (threads > 1));
    leat_cxx_heap_leave();
    leat_openmp_divide(1);
    leat_openmp_leave();
    for (int i = 0; i < 3; i++) {
        MUST(dnnl_memory_destroy(memories[i]));
    }
    MUST(dnnl_primitive_destroy(primitive));
    MUST(dnnl_primitive_desc_destroy(pd));
    MUST(dnnl_stream_destroy(stream));
    MUST(dnnl_engine_destroy(engine));
}

static void
test_library_runs_on_the_team(struct leat_team *team, unsigned threads_before)
{
    uint64_t random = leat_test_seed;

    for (size_t i = 0; i < LEAT_COUNT_OF(x); i++) {
        x[i] = (float)(leat_test_random(&random) % 17) - 8.0f; /* whole numbers: any order of adding is exact */
    }
    for (size_t i = 0; i < LEAT_COUNT_OF(w); i++) {
        w[i] = (float)(leat_test_random(&random) % 5) - 2.0f;
    }
    convolve(NULL, 1, 1, y[0]);
    for (uint32_t parts = 1; parts <= PARTS; parts++) {
        memset(y[1], 0xff, sizeof(y[1]));
        convolve(team, TEAM, parts, y[1]);
        EXPECT(memcmp(y[0], y[1], sizeof(y[0])) == 0);
    }
    EXPECT(thread_count() == threads_before);
}

int
main(void)
{
    struct leat_team *team;

    leat_test_init();
    const unsigned alone = thread_count();
    test_symbols();
    EXPECT(leat_team_create(&(struct leat_team_options){.size = TEAM, .spin_ns = 20000}, &team) == LEAT_OK);
    EXPECT(thread_count() == alone + TEAM - 1);
    test_regions(team);
    test_parts(team);
    test_library_runs_on_the_team(team, alone + TEAM - 1);
    leat_team_destroy(team);
    return 0;
}

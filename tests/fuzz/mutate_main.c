/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target on mutations of files, without libFuzzer: --rounds N --case FILE MODEL...
 *
 * Each round starts from one of the files, or from the last case. What is being run lies in --case FILE, which stays
 * there when the target dies. A case may take 60 s of processor time and the process 2 GiB of memory.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/align.h"
#include "tests/leat_test.h"

#define CASE_BYTES_MAX ((size_t)512 << 10)
#define CASE_CPU_S     60
#define MEMORY_KIB_MAX (2L << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t max_size, unsigned seed);

static size_t
load(const char *path, uint8_t *to)
{
    FILE *file = fopen(path, "rb");
    EXPECT(file != NULL);
    const size_t size = fread(to, 1, CASE_BYTES_MAX, file);
    EXPECT(fclose(file) == 0);
    return size;
}

/* The file stays open: closing one that was emptied and written anew makes the file system go to the disk. */
static void
run_guarded(int file, const uint8_t *data, size_t size)
{
    const struct itimerval limit = {.it_value = {.tv_sec = CASE_CPU_S}}, none = {0};
    struct rusage usage;

    EXPECT(pwrite(file, data, size, 0) == (ssize_t)size && ftruncate(file, (off_t)size) == 0);
    EXPECT(setitimer(ITIMER_PROF, &limit, NULL) == 0); /* SIGPROF ends the process */
    (void)LLVMFuzzerTestOneInput(data, size);
    EXPECT(setitimer(ITIMER_PROF, &none, NULL) == 0);
    EXPECT(getrusage(RUSAGE_SELF, &usage) == 0 && usage.ru_maxrss <= MEMORY_KIB_MAX);
}

int
main(int argc, char **argv)
{
    static uint8_t data[CASE_BYTES_MAX];
    size_t size = 0;

    leat_test_init();
    EXPECT(argc > 5 && strcmp(argv[1], "--rounds") == 0 && strcmp(argv[3], "--case") == 0);
    const unsigned long rounds = strtoul(argv[2], NULL, 10);
    (void)printf("seed %llu, %lu rounds\n", (unsigned long long)leat_test_seed, rounds);
    const int file = open(argv[4], O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666);
    EXPECT(file >= 0);
    uint64_t random = leat_test_seed;
    for (unsigned long round = 0; round < rounds; round++) {
        if (size == 0 || leat_test_random(&random) % 4 != 0) {
            size = load(argv[5 + leat_test_random(&random) % (uint64_t)(argc - 5)], data);
        }
        size = LLVMFuzzerCustomMutator(data, size, sizeof(data), (unsigned)leat_test_random(&random));
        run_guarded(file, data, size);
    }
    EXPECT(close(file) == 0 && remove(argv[4]) == 0);
    return 0;
}

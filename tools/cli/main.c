/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tools/cli/cli.h"

static const struct verb verbs[] = {
    {"serve", "run the daemon in the foreground", verb_serve},
    {"run", "ask one model, application or pipeline one question", verb_run},
    {"status", "what the daemon is doing", verb_status},
    {"topology", "cores, memory nodes and who gets them", verb_topology},
    {"model", "add, list, measure and remove models", verb_model},
    {"app", "applications over models: add, change, show, remove, import, export", verb_app},
    {"pipeline", "several applications behind one query: add, list, show, remove", verb_pipeline},
    {"offline", "folders of items, answered when nobody waits", verb_offline},
    {"bench", "open-loop load and latency measurement", verb_bench},
    {"simulate", "routers and mixes of workers on a virtual clock", verb_simulate},
    {"policy", "which variant and batch, solved ahead by load and slack", verb_policy},
    {"scale", "cores of workers: show them, change them while they run, plan them for a rate", verb_scale},
    {"pool", "which mix of workers a budget should buy", verb_pool},
    {"version", "versions of this program and the daemon", verb_version},
};

static void
print_help(FILE *file)
{
    (void)fprintf(file, "leat - serve machine-learning models to processes on this machine\n\n"
                        "usage: leat VERB [OPTION...]\n\nverbs:\n");
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        (void)fprintf(file, "  %-10s %s\n", verbs[i].name, verbs[i].summary);
    }
    (void)fprintf(file, "\n'leat VERB --help' explains one. The daemon's socket is --socket PATH, else\n"
                        "$LEAT_SOCKET, else /run/leat/leat.sock.\n\n"
                        "exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by the daemon\n");
}

int
main(int argc, char **argv)
{
    static char help[] = "--help";

    (void)signal(SIGPIPE, SIG_IGN); /* a closed pipe is reported by the write that meets it */
    if (argc < 2) {
        print_help(stderr);
        return EXIT_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 && argc > 2) {
        argv[1] = argv[2];
        argv[2] = help;
        argc = 3;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        return verb_version(1, argv + 1);
    }
    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(argv[1], verbs[i].name) == 0) {
            return verbs[i].main(argc - 1, argv + 1);
        }
    }
    (void)fprintf(stderr, "leat: there is no verb '%s'. Try 'leat --help'.\n", argv[1]);
    return EXIT_USAGE;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* tests/tools/command.h - runs `leat` as a process and keeps what it prints. What goes wrong ends the test. */
#ifndef LEAT_TESTS_COMMAND_H
#define LEAT_TESTS_COMMAND_H

#include <sys/types.h>

#include "tests/runtime/fake_root.h"

struct command {
    pid_t pid;
    FILE *out_file, *err_file;
    int exit_code;
    char out[1 << 20], err[4096];
};

/* Starts `leat` with these arguments, NULL behind the last; $LEAT_SOCKET is the socket. It dies with the test. */
void command_start(struct command *command, const char *socket_path, const char *const *arguments);
/* Waits for its end and fills in what it printed. */
void command_finish(struct command *command);

/* Both; returns the exit code. */
int command_run(struct command *command, const char *socket_path, const char *const *arguments);

/* Runs it and expects the exit code, and the text on either of its outputs. */
void command_expect(struct command *command, const char *socket_path, int exit_code, const char *text, const char *const *arguments);

#endif /* LEAT_TESTS_COMMAND_H */

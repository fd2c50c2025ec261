/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/tools/command.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { ARGUMENTS_MAX = 30 };

void
command_start(struct command *command, const char *socket_path, const char *const *arguments)
{
    const pid_t parent = getpid();
    char *argv[ARGUMENTS_MAX + 2] = {(char *)(uintptr_t)"leat"};

    for (size_t i = 0; arguments[i] != NULL; i++) {
        EXPECT(i < ARGUMENTS_MAX);
        argv[i + 1] = (char *)(uintptr_t)arguments[i];
    }
    command->out_file = tmpfile();
    command->err_file = tmpfile();
    EXPECT(command->out_file != NULL && command->err_file != NULL);
    (void)fflush(NULL);
    command->pid = fork();
    EXPECT(command->pid >= 0);
    if (command->pid == 0) {
        if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && setenv("LEAT_SOCKET", socket_path, 1) == 0 &&
            dup2(fileno(command->out_file), STDOUT_FILENO) >= 0 && dup2(fileno(command->err_file), STDERR_FILENO) >= 0) {
            (void)execv(LEAT_PATH, argv);
        }
        _exit(127);
    }
}

static void
read_back(FILE *file, char *text, size_t room)
{
    rewind(file);
    const size_t length = fread(text, 1, room, file);
    EXPECT(length < room);
    text[length] = '\0';
    EXPECT(fclose(file) == 0);
}

void
command_finish(struct command *command)
{
    int ended = -1;

    EXPECT(waitpid(command->pid, &ended, 0) == command->pid && WIFEXITED(ended));
    command->exit_code = WEXITSTATUS(ended);
    read_back(command->out_file, command->out, sizeof(command->out));
    read_back(command->err_file, command->err, sizeof(command->err));
}

int
command_run(struct command *command, const char *socket_path, const char *const *arguments)
{
    command_start(command, socket_path, arguments);
    command_finish(command);
    return command->exit_code;
}

void
command_expect(struct command *command, const char *socket_path, int exit_code, const char *text, const char *const *arguments)
{
    const int got = command_run(command, socket_path, arguments);
    if (got != exit_code || (strstr(command->out, text) == NULL && strstr(command->err, text) == NULL)) {
        (void)fprintf(stderr, "leat");
        for (size_t i = 0; arguments[i] != NULL; i++) {
            (void)fprintf(stderr, " %s", arguments[i]);
        }
        (void)fprintf(stderr, "\nexit code %d, not %d with '%s':\n%s%s", got, exit_code, text, command->out, command->err);
        EXPECT(!"leat does as it is told");
    }
}

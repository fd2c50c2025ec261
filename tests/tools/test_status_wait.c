/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     `leat status --wait` outlasts a daemon that is not there yet, or turns it away because it is going, and gives up
 *          in the end.
 * Method   A listener of our own that hangs up plays the daemon that goes: when it has taken a connection, a try has failed
 *          for certain. Only then does leatd start.
 */
#include <signal.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "tests/system/leatd.h"
#include "tests/tools/command.h"

static void
test_daemon_comes(void)
{
    static const char *const arguments[] = {"status", "--wait=3600s", "--json", NULL};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    static struct command command;
    struct leatd leatd;

    leatd_init(&leatd);
    const int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    EXPECT(strlen(leatd.socket_path) < sizeof(address.sun_path));
    (void)strcpy(address.sun_path, leatd.socket_path);
    EXPECT(listener >= 0 && bind(listener, (const struct sockaddr *)&address, sizeof(address)) == 0);
    EXPECT(listen(listener, 1) == 0);
    command_start(&command, leatd.socket_path, arguments);
    struct pollfd either[2] = {{.fd = listener, .events = POLLIN}, {.events = POLLIN}};
    either[1].fd = (int)syscall(SYS_pidfd_open, command.pid, 0);
    EXPECT(poll(either, 2, -1) > 0 && (either[1].revents == 0 || !"it gave up at once"));
    EXPECT(close(either[1].fd) == 0);
    const int connection = accept(listener, NULL, NULL);
    EXPECT(connection >= 0 && close(connection) == 0 && close(listener) == 0 && unlink(leatd.socket_path) == 0);
    leatd_start(&leatd, "");
    command_finish(&command);
    EXPECT(command.exit_code == 0);
    json_t *status = json_loads(command.out, 0, NULL);
    EXPECT(json_is_array(json_object_get(status, "applications")));
    json_decref(status);
    leatd_signal(&leatd, SIGTERM);
    EXPECT(leatd_await_end(&leatd) == 0);
    leatd_fini(&leatd);
}

static void
test_nobody_comes(void)
{
    static const char *const patient[] = {"status", "--wait=1ms", NULL}, *const wrong[] = {"status", "--wait=soon", NULL};
    static struct command command;

    EXPECT(command_run(&command, "/nonexistent/leat.sock", patient) == 1);
    EXPECT(strstr(command.err, "no daemon listens on /nonexistent/leat.sock") != NULL);
    EXPECT(command_run(&command, "/nonexistent/leat.sock", wrong) == 2);
    EXPECT(strstr(command.err, "--wait=soon") != NULL);
}

int
main(void)
{
    leat_test_init();
    test_nobody_comes();
    test_daemon_comes();
    return 0;
}

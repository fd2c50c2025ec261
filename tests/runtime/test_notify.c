/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: systemd's socket gets the datagrams of sd_notify(3); without one, every call does nothing. */
#include "runtime/notify.h"
#include "tests/runtime/fake_root.h"

#include <sys/socket.h>
#include <sys/un.h>

static void
expect_datagram(int fd, const char *expected)
{
    char text[512];
    const ssize_t bytes = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
    EXPECT(bytes >= 0);
    text[bytes] = '\0';
    EXPECT(strcmp(text, expected) == 0);
}

int
main(void)
{
    struct fake_root root;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char byte;

    leat_test_init();
    EXPECT(unsetenv("NOTIFY_SOCKET") == 0);
    leat_notify_ready("nobody listens");
    leat_notify_watchdog();
    leat_notify_stopping();

    fake_root_init(&root);
    EXPECT(strlen(root.path) + 8 < sizeof(address.sun_path));
    memcpy(address.sun_path, root.path, strlen(root.path));
    memcpy(address.sun_path + strlen(root.path), "/notify", 8);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    EXPECT(fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0);
    EXPECT(setenv("NOTIFY_SOCKET", address.sun_path, 1) == 0);
    leat_notify_ready("2 workers, 3 models");
    expect_datagram(fd, "READY=1\nSTATUS=2 workers, 3 models");
    leat_notify_watchdog();
    expect_datagram(fd, "WATCHDOG=1");
    leat_notify_stopping();
    expect_datagram(fd, "STOPPING=1");
    EXPECT(recv(fd, &byte, 1, MSG_DONTWAIT) < 0); /* one datagram a call */
    EXPECT(close(fd) == 0);
    fake_root_fini(&root);
    return 0;
}

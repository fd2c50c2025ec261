/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/session.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/doorbell.h"
#include "runtime/memory.h"

/* A sealed memfd of `bytes`, mapped. The reasons for anything short of the best pages go to `notes`. */
static enum leat_status
make_memory(const char *name, size_t bytes, uint32_t near_node, int *ret_fd, void **ret_memory,
            struct leat_notes *notes)
{
    enum leat_page_kind pages;
    enum leat_status status = leat_memory_create(name, bytes, ret_fd, ret_memory, &pages, notes);

    if (status != LEAT_OK) {
        return status;
    }
    if (fcntl(*ret_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot seal %s memory", name);
    } else if (near_node != 0) {
        (void)leat_memory_bind(*ret_memory, bytes, near_node - 1, notes);
    }
    if (status != LEAT_OK) {
        (void)munmap(*ret_memory, bytes);
        (void)close(*ret_fd);
        *ret_memory = NULL;
        *ret_fd = -1;
    }
    return status;
}

enum leat_status
leat_daemon_session_begin(const struct leat_session_options *options, struct leat_daemon_session **ret_session,
                          char ret_note[160])
{
    LEAT_ASSERT(leat_is_power_of_two(options->slots) && options->slots >= LEAT_SLOTS_MIN &&
                options->slots <= LEAT_SLOTS_MAX);
    LEAT_ASSERT(options->lane_count >= 1 && options->lane_count <= LEAT_LANES_MAX);
    LEAT_ASSERT(options->arena_bytes > 0 && options->arena_bytes % LEAT_TENSOR_ALIGN == 0);

    const size_t slots_offset = leat_round_up(
        sizeof(struct leat_daemon_session) + options->lane_count * sizeof(struct leat_lane_position), LEAT_ISOLATE);
    const size_t size =
        leat_round_up(slots_offset + options->slots * sizeof(struct leat_waiting_slot), LEAT_ISOLATE);
    struct leat_daemon_session *session = aligned_alloc(LEAT_ISOLATE, size);
    if (session == NULL) {
        return LEAT_FAIL(LEAT_ERR_NOMEM, "no memory for a session");
    }
    memset(session, 0, size);
    session->rings_fd = session->arena_fd = session->wake_fd = session->pipe_read = session->pipe_write = -1;
    session->slots = options->slots;
    session->dispatcher.slots = (void *)((unsigned char *)session + slots_offset);
    session->lane_count = options->lane_count;
    session->rings_bytes = leat_wire_rings_bytes(options->slots, options->lane_count);
    atomic_init(&session->dead, false);

    void *memory = NULL;
    int pipe_fds[2];
    struct leat_notes notes = {0};
    enum leat_status status =
        make_memory("leat-rings", session->rings_bytes, options->near_node, &session->rings_fd, &memory, &notes);
    if (status != LEAT_OK) {
        goto err_destroy;
    }
    session->rings = memory;
    status = leat_memory_prefault(memory, session->rings_bytes);
    if (status != LEAT_OK) {
        goto err_destroy;
    }
    session->submit_cells = (void *)((unsigned char *)memory + leat_wire_submit_offset());
    session->lanes = (void *)((unsigned char *)memory + leat_wire_lane_offset(options->slots, 0));
    session->lists = (void *)((unsigned char *)memory + leat_wire_lists_offset(options->slots, options->lane_count));
    notes.count = 0; /* the rings are small: only the arena's pages matter to anybody */
    status = make_memory("leat-arena", options->arena_bytes, options->near_node, &session->arena_fd, &memory, &notes);
    if (status != LEAT_OK) {
        goto err_destroy;
    }
    session->arena = memory;
    session->arena_bytes = options->arena_bytes;
    ret_note[0] = '\0';
    for (uint32_t i = 0; i < notes.count; i++) {
        const size_t used = strlen(ret_note);
        (void)snprintf(ret_note + used, 160 - used, "%s%s", i > 0 ? "; " : "", notes.items[i].text);
    }
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->wake_fd < 0 || pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) {
        status = LEAT_FAIL(LEAT_ERR_SYS, "cannot make wake-up descriptors");
        goto err_destroy;
    }
    session->pipe_read = pipe_fds[0];
    session->pipe_write = pipe_fds[1];
    *ret_session = session;
    return LEAT_OK;

err_destroy:
    leat_daemon_session_destroy(session);
    return status;
}

/* Every page must be present: without memory a later store would kill the daemon with SIGBUS. */
enum leat_status
leat_daemon_session_populate(struct leat_daemon_session *session, uint64_t bytes)
{
    const uint64_t left = session->arena_bytes - session->arena_present;
    const uint64_t part = bytes < left ? bytes : left;
    const enum leat_status status = leat_memory_prefault(session->arena + session->arena_present, part);

    if (status == LEAT_OK) {
        session->arena_present += part;
    }
    return status;
}

enum leat_status
leat_daemon_session_create(const struct leat_session_options *options, struct leat_daemon_session **ret_session,
                           char ret_note[160])
{
    struct leat_daemon_session *session;
    enum leat_status status = leat_daemon_session_begin(options, &session, ret_note);

    if (status != LEAT_OK) {
        return status;
    }
    status = leat_daemon_session_populate(session, session->arena_bytes);
    if (status != LEAT_OK) {
        leat_daemon_session_destroy(session);
        return status;
    }
    *ret_session = session;
    return LEAT_OK;
}

enum leat_status
leat_daemon_session_take_back(struct leat_daemon_session *session, uint64_t bytes)
{
    const size_t kept = leat_wire_submit_offset();
    const uint64_t part = bytes < session->arena_present ? bytes : session->arena_present;
    enum leat_status status = LEAT_OK;

    if (session->arena_present == session->arena_bytes) {
        status = leat_memory_take_back((unsigned char *)session->rings + kept, session->rings_bytes - kept);
    }
    if (status == LEAT_OK) {
        status = leat_memory_take_back(session->arena + session->arena_present - part, part);
    }
    session->arena_present -= part;
    return status;
}

void
leat_daemon_session_destroy(struct leat_daemon_session *session)
{
    if (session == NULL) {
        return;
    }
    if (session->rings != NULL) {
        LEAT_MUST(munmap(session->rings, session->rings_bytes) == 0);
    }
    if (session->arena != NULL) {
        LEAT_MUST(munmap(session->arena, session->arena_bytes) == 0);
    }
    const int fds[] = {session->rings_fd, session->arena_fd, session->wake_fd, session->pipe_read,
                       session->pipe_write};
    for (size_t i = 0; i < LEAT_COUNT_OF(fds); i++) {
        if (fds[i] >= 0) {
            (void)close(fds[i]);
        }
    }
    free(session);
}

void
leat_daemon_session_ring(struct leat_daemon_session *session)
{
    const uint32_t how = leat_bell_ring(&session->rings->client_bell);
    if (LEAT_LIKELY(how == LEAT_BELL_AWAKE)) {
        return;
    }
    if (how == LEAT_BELL_EVENT) {
        /* Our end is non-blocking and ours alone. Full means awake; EPIPE means that the client is gone. */
        const ssize_t written = write(session->pipe_write, "", 1);
        (void)written;
    } else {
        leat_bell_futex_wake(&session->rings->client_bell, true);
    }
}

/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ipc/wire.h - what the two processes of a session agree on, byte by byte; docs/shared-memory.md explains it.
 *
 * Role     A session has two memfds, made and sealed by the daemon: the *rings* (this layout) and the *arena*
 *          (tensor bytes only). Set-up messages travel over a SOCK_SEQPACKET socket, one struct a packet.
 * Trust    The daemon believes nothing that it reads here: it copies a request cell once, then checks the copy.
 *          It never reads back geometry, positions or lanes. A list of tensors it copies and checks whenever it needs
 *          one. The client may break its own session only.
 * Flow     No ring has a consumer index in shared memory. A session has `slots` slots; a query holds one
 *          from submission until its completion was collected. The submission ring has 4 * slots cells and each
 *          lane `slots` cells, and the argument in docs/shared-memory.md shows that a conforming client can
 *          then never overwrite an unread cell, nor the daemon one that a conforming client has not read.
 *
 * Ordering S0 client stores request.sequence, release -> S1 dispatcher loads it, acquire: the cell's other
 *             bytes, and the tensors written before, are visible.
 *          C0 daemon stores response.sequence, release -> C1 client loads it, acquire: the cell and
 *             the outputs are visible; the daemon has stopped touching the query's tensors.
 *          The doorbells (ipc/doorbell.h) close the store-load races between publishing and sleeping.
 *          A cell's position p is published as sequence p + 1, so zeroed memory reads as empty, and a cell
 *          is re-read only a lap later.
 */
#ifndef LEAT_IPC_WIRE_H
#define LEAT_IPC_WIRE_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <leat/leat.h>

#include "base/align.h"
#include "base/clock.h"

#define LEAT_WIRE_MAGIC     UINT32_C(0x7461656c) /* "leat" */
#define LEAT_WIRE_VERSION   4u                   /* bump on any change below */
#define LEAT_SLOTS_MIN      2u
#define LEAT_SLOTS_MAX      8192u
#define LEAT_LANES_MAX      257u /* lane 0: the dispatcher; lane 1 + w: worker w */
#define LEAT_TENSOR_ALIGN   64u  /* arena offsets are counted in this unit */
#define LEAT_SUBMIT_CELLS_PER_SLOT 4u
#define LEAT_WIRE_UNITS     6u   /* that a request has room for */

/* ---- Rings memfd ------------------------------------------------------------------------------ */

/* flags of struct leat_wire_request; others are refused, so that new ones can be told from noise */
#define LEAT_WIRE_CANCEL  1u /* not a query: cancel the one that `ticket_low` names in `slot` */
#define LEAT_WIRE_OFFLINE 2u

#define LEAT_WIRE_ITEMS_MASK ((UINT32_C(1) << 17) - 1) /* what fits into `items`, which may be more than there can be */

struct leat_wire_request {
    _Atomic uint64_t sequence; /* W: client, S0  R: dispatcher, S1 */
    uint64_t submit_ns;        /* session clock */
    uint32_t latency_us;       /* 0: the application's */
    uint32_t accuracy_floor_ppm;
    uint32_t items : 17;
    uint32_t length : 15; /* of its sequences; 0: the longest that the application has */
    uint16_t slot; /* < slots */
    uint16_t target;
    uint16_t flags;
    uint16_t cost_cap; /* leat_wire_cost_code; what is above LEAT_WIRE_COST_MAX is refused */
    uint32_t ticket_low; /* low half of the ticket; comes back in the response */
    /*
     * Arena offset / 64 of inputs, then outputs. Where the target has more than LEAT_WIRE_UNITS of them, all are in the list of
     * the slot, which is the daemon's until the answer, as tensors are.
     */
    uint32_t units[LEAT_WIRE_UNITS];
};

struct leat_wire_response {
    _Atomic uint64_t sequence; /* W: the lane's producer, C0  R: client, C1 */
    uint64_t queue_ns;
    uint64_t exec_ns;
    uint64_t total_ns;
    uint32_t ticket_low;
    uint16_t slot;
    uint8_t outcome; /* enum leat_outcome */
    uint8_t reason;  /* enum leat_reason */
    uint32_t batch_items;
    uint32_t accuracy_ppm;
    uint16_t variant;
    uint16_t worker;
    uint32_t cost_nano;
    uint16_t sizes[LEAT_SIZES_MAX]; /* [items][outputs that vary] */
};

_Static_assert(sizeof(struct leat_wire_request) == LEAT_CACHE_LINE, "one request is one cache line");
_Static_assert(sizeof(struct leat_wire_response) == LEAT_CACHE_LINE, "one response is one cache line");
_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock inside shared memory would die with its owner");

struct leat_wire_list {
    uint32_t units[LEAT_TENSORS_MAX];
};

/*
 * A cap on costs in 11 bits: a mantissa of 6 bits and an exponent of 5, as in a float with denormals. The largest code at
 * most as dear, but never 0 (no cap) for a cap of 1 or more.
 */
#define LEAT_WIRE_COST_MAX 2047u
static inline uint16_t
leat_wire_cost_code(uint32_t nano)
{
    const int shift = nano < 128 ? 0 : 25 - __builtin_clz(nano);
    return (uint16_t)(nano < 64 ? nano : (uint32_t)(shift + 1) << 6 | (nano >> shift & 63u));
}

static inline uint32_t
leat_wire_cost_nano(uint16_t code)
{
    const uint64_t nano = code < 64 ? code : (uint64_t)(64u | (code & 63u)) << ((code >> 6) - 1);
    return nano < UINT32_MAX ? (uint32_t)nano : UINT32_MAX;
}

/* Who sleeps and how it wants to be woken; ipc/doorbell.h has the protocol. */
struct leat_bell {
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t asleep; /* enum leat_bell_mode. W: sleeper sets, waker clears */
    unsigned char pad[LEAT_ISOLATE - 4];
};
_Static_assert(sizeof(struct leat_bell) == LEAT_ISOLATE, "bells do not share lines");

enum leat_bell_mode {
    LEAT_BELL_AWAKE = 0,
    LEAT_BELL_FUTEX = 1, /* sleeps with FUTEX_WAIT on the word itself */
    LEAT_BELL_EVENT = 2, /* sleeps in poll or epoll on its descriptor */
};

struct leat_wire_rings {
    /* Written by the daemon. The client reads it, never trusting it for more than its own session. */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t spin_ns; /* what a waiting client should spin; 0: sleep at once */
    _Atomic uint32_t state; /* enum leat_wire_state */
    struct leat_bell daemon_bell; /* the dispatcher sleeps (EVENT); the client writes its eventfd */
    struct leat_bell client_bell; /* the client sleeps; a worker or the dispatcher wakes it */
    /* Then, at offsets computed by both sides from (slots, lanes): submission ring, lanes, lists. */
};

enum leat_wire_state {
    LEAT_WIRE_OPEN = 0,
    LEAT_WIRE_CLOSED = 1, /* the daemon has ended the session */
};

static inline size_t
leat_wire_submit_offset(void)
{
    return leat_round_up(sizeof(struct leat_wire_rings), 4096);
}

static inline size_t
leat_wire_lane_offset(uint32_t slots, uint32_t lane)
{
    return leat_wire_submit_offset() +
           (size_t)slots * LEAT_SUBMIT_CELLS_PER_SLOT * sizeof(struct leat_wire_request) +
           (size_t)lane * slots * sizeof(struct leat_wire_response);
}

/* One list a slot. */
static inline size_t
leat_wire_lists_offset(uint32_t slots, uint32_t lanes)
{
    return leat_wire_lane_offset(slots, lanes);
}

static inline size_t
leat_wire_rings_bytes(uint32_t slots, uint32_t lanes)
{
    return (size_t)leat_round_up(leat_wire_lists_offset(slots, lanes) + (size_t)slots * sizeof(struct leat_wire_list), 4096);
}

/* ---- Set-up messages -------------------------------------------------------------------------- */

#define LEAT_WIRE_PACKET_MAX (192u * 1024u)

/* Descriptors of WELCOME, in this order. */
enum leat_wire_fd {
    LEAT_WIRE_FD_RINGS = 0,
    LEAT_WIRE_FD_ARENA = 1,
    LEAT_WIRE_FD_DAEMON = 2, /* eventfd that the client writes to wake the dispatcher, which never reads it */
    LEAT_WIRE_FD_CLIENT = 3, /* read end of a pipe that the daemon writes; a pipe, because a client that holds
                                an eventfd could make the daemon's write block */
    LEAT_WIRE_FD_COUNT = 4,
};

enum leat_wire_type {
    LEAT_WIRE_HELLO = 1,   /* client -> daemon, first */
    LEAT_WIRE_WELCOME = 2, /* daemon -> client, with enum leat_wire_fd descriptors */
    LEAT_WIRE_FIND = 3,
    LEAT_WIRE_TARGET = 4,
    LEAT_WIRE_ADMIN = 5,       /* struct leat_wire_header, then JSON text; may carry one fd */
    LEAT_WIRE_ADMIN_REPLY = 6, /* struct leat_wire_header, then JSON text */
    LEAT_WIRE_ERROR = 7,       /* daemon -> client, in place of any answer */
};

struct leat_wire_header {
    uint32_t magic;
    uint16_t version; /* of the packet: what HELLO/WELCOME agreed on; 0 in HELLO */
    uint16_t type;    /* enum leat_wire_type */
};

struct leat_wire_hello {
    struct leat_wire_header header;
    uint16_t version_min, version_max; /* inclusive range that the client speaks */
    uint32_t slots;                    /* 0: default */
    uint64_t arena_bytes;              /* 0: default */
    uint64_t reserved_0;               /* 0 */
    char library_version[16];
    uint32_t near_node; /* 1 + NUMA node that the client runs on; 0: lay its memory anywhere */
    uint32_t reserved;  /* 0 */
};

struct leat_wire_welcome {
    struct leat_wire_header header;
    uint32_t slots; /* power of two */
    uint32_t lanes;
    uint64_t arena_bytes;
    uint64_t rings_bytes;
    uint64_t reserved; /* 0 */
    struct leat_clock clock;
    char daemon_version[16];
    char note[160]; /* what could not be given in full */
};

struct leat_wire_find {
    struct leat_wire_header header;
    char name[LEAT_NAME_MAX];
};

struct leat_wire_target {
    struct leat_wire_header header;
    struct leat_target target;
};

struct leat_wire_error {
    struct leat_wire_header header;
    int32_t status; /* enum leat_status, negative */
    char text[244];
};

/* The tables of docs/shared-memory.md. */
_Static_assert(sizeof(struct leat_wire_header) == 8, "wire ABI");
_Static_assert(sizeof(struct leat_wire_hello) == 56, "wire ABI");
_Static_assert(offsetof(struct leat_wire_hello, near_node) == 48, "wire ABI");
_Static_assert(sizeof(struct leat_wire_welcome) == 240, "wire ABI");
_Static_assert(offsetof(struct leat_wire_welcome, clock) == 40, "wire ABI");
_Static_assert(offsetof(struct leat_wire_welcome, note) == 80, "wire ABI");
_Static_assert(sizeof(struct leat_wire_find) == 72, "wire ABI");
_Static_assert(sizeof(struct leat_wire_target) == 9856, "wire ABI");
_Static_assert(sizeof(struct leat_wire_error) == 256, "wire ABI");
_Static_assert(sizeof(struct leat_tensor_info) == 152, "wire ABI");
_Static_assert(sizeof(struct leat_target) == 56 + LEAT_TENSORS_MAX * (1 + 152), "wire ABI");
_Static_assert(LEAT_ITEMS_MAX < 1u << 17 && LEAT_LENGTH_MAX < 1u << 15, "both fit into 32 bits of a request");

#endif /* LEAT_IPC_WIRE_H */

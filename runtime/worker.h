/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/worker.h - a pinned team that runs batches, fed by the dispatcher through its own two rings.
 *
 *      dispatcher --- work ring (one cell a query) ---> worker --- response lines ---> clients
 *                 <-- done ring (one cell a batch) ---
 *
 * Threads    [D] dispatcher only.  [W] the worker's leader only.  [C] control, before start and after stop.
 * Errands    Between two batches, when no third waits, control may have the worker run something on its own core, with its
 *            own team, scratch and heap: what a first query would find cold is warm then. A mutex orders all of it; a worker
 *            without an errand does not touch that.
 * Ownership  A query belongs to the worker from submit until the done cell of its batch is popped.
 * Pauses     A batch may give way: between the steps of its plan the worker runs what has come behind it, to its end, and
 *            then goes on with it. So it is reported behind others that were submitted later. There is one at a time; it needs
 *            an idle worker, a backend that yields, and no query of a stage, whose answers are taken in order. It keeps to the
 *            shape that it began in: once the worker is told of another, nothing passes it any more. Else whatever was handed
 *            over does: that it ends in bounded time is the dispatcher's to see to.
 * Hot path   No allocation, lock or system call on either side, except waking a sleeper.
 * Ordering   W0 dispatcher stores the first cell's sequence, release -> W1 worker loads it, acquire: all cells
 *               of the batch are whole (those after the first were written before W0).
 *            D0 worker stores a done cell's sequence, release -> D1 dispatcher loads it, acquire: the done cell is
 *               whole, and every read of the batch's work cells and every response came before.
 *            G0 control stores a larger scratch block, release -> G1 worker loads it at the start of a batch, acquire:
 *               the block is zeroed. A batch that needs it comes later still, by W0.
 *            Z0 control stores `stop`, release -> Z1 worker loads it before it ends, acquire: its team goes after control has
 *               moved members of it for the last time.
 *            Neither ring has a consumer index: the dispatcher counts what it has outstanding (bounded by
 *            LEAT_WORKER_QUEUE queries), and D1 is what lets it reuse a work cell.
 */
#ifndef LEAT_RUNTIME_WORKER_H
#define LEAT_RUNTIME_WORKER_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "ipc/doorbell.h"
#include "runtime/application.h"
#include "runtime/session.h"

#define LEAT_WORKER_QUEUE   1024u /* work cells; a power of two */
#define LEAT_WORKER_BATCHES 64u   /* done cells; a power of two; more batches are never outstanding */
#define LEAT_BATCH_QUERIES  256u  /* queries in one batch */
_Static_assert(LEAT_BATCH_QUERIES - 1 <= UINT8_MAX && LEAT_SCHED_VARIANTS_MAX - 1 <= UINT8_MAX, "both fit into a work cell");

struct leat_work_cell {
    _Atomic uint64_t sequence; /* W: dispatcher W0  R: worker W1 */
    uint64_t submit_ns;
    uint64_t deadline_ns; /* LEAT_NO_DEADLINE: run however late */
    uint32_t units[LEAT_WIRE_UNITS]; /* as the request has them */
    uint32_t ticket_low;
    uint16_t items_less_1;
    uint16_t session : 14;
    uint16_t offline : 1;         /* as all of its batch */
    uint16_t gives_way : 1;       /* the batch; meaningful in its first cell */
    uint16_t slot;
    uint16_t variant;             /* in the daemon's table */
    uint16_t length;              /* of its sequences; 0: the model has none */
    uint8_t application_variant;  /* the variant within its application, for the response */
    uint8_t queries_less_1;       /* in the batch; meaningful in its first cell */
};
_Static_assert(sizeof(struct leat_work_cell) == LEAT_CACHE_LINE, "one query is one line");

/* How many members a team has, and of which class the worker is then. */
struct leat_team_shape {
    uint16_t cores, worker_class;
};

struct leat_done_cell {
    _Atomic uint64_t sequence; /* W: worker D0  R: dispatcher D1 */
    uint64_t start_ns;
    uint64_t exec_ns;   /* without pauses */
    uint64_t paused_ns; /* since it started */
    uint32_t queries; /* all of the batch, in work ring order */
    uint32_t expired; /* of them, not run because too late or of a dead session */
    uint32_t refused; /* of them, not run because their list is not sound any more */
    uint32_t items;   /* that were run */
    uint32_t failed;  /* of those that were run */
    struct leat_team_shape shape; /* of the team that ran it */
    /* All of it ran well, and answers tell no sizes: what they could say is said here, and stages' queries have none. */
    bool tells_all;
    bool gave_way; /* it is the one that gives way, which others may have passed */
    uint16_t step_permille; /* of exec_ns its longest step took, where it gave way: so long did whoever came wait at the most */
    unsigned char pad[4];
};
_Static_assert(sizeof(struct leat_done_cell) == LEAT_CACHE_LINE, "one report is one line");

/*
 * What all workers share, constant while they run. Entries appear before the first batch that names them, and the
 * command that tells the dispatcher of them (K0) and the batch (W0) publish what they point to: all accesses are relaxed.
 */
struct leat_shared_tables {
    struct leat_clock clock;
    /* How long a thread of the daemon may spin before it sleeps. W: whoever makes the threads, then the server, relaxed. */
    _Atomic uint64_t spin_ns;
    struct { /* the session that was opened last, which may be gone: addresses to prefetch, not to read */
        _Atomic uint64_t count; /* sessions ever */
        struct leat_daemon_session *_Atomic session;
        struct leat_wire_response *_Atomic lanes;
        _Atomic uint32_t slots;
    } opened;
    struct leat_daemon_session *_Atomic sessions[LEAT_SESSIONS_MAX];
    struct leat_variant *_Atomic variants[UINT16_MAX + 1];
};

struct leat_worker_options {
    uint32_t index;          /* worker number; it answers on lane 1 + index */
    const uint32_t *cpus;    /* leader's CPU first; NULL: unpinned */
    uint32_t core_count;     /* >= 1 */
    uint32_t cores_max;      /* that its team can grow to; 0: core_count */
    uint32_t node;           /* NUMA node of the cpus: where its memory lies */
    uint32_t worker_class;   /* for backends whose times depend on it */
    uint32_t copy;           /* which of a variant's copies lies there */
    struct leat_shared_tables *tables;
    struct leat_bell *dispatcher_bell; /* rung after each done cell */
    int dispatcher_event;              /* eventfd that wakes a sleeping dispatcher */
};

struct leat_worker {
    struct leat_work_cell *work; /* [LEAT_WORKER_QUEUE] */
    struct leat_done_cell *done; /* [LEAT_WORKER_BATCHES] */
    struct leat_bell bell;       /* the worker sleeps, the dispatcher wakes it */
    _Atomic bool stop;           /* W: control, once */
    void *_Atomic scratch;       /* W: control (grows), G0  R: worker at the start of a batch, G1 */
    size_t scratch_bytes;        /* control's */
    pthread_mutex_t errand_mutex; /* of what follows, and of errands; held for a moment */
    struct leat_worker_errand *errand; /* W: control, and the worker as it takes it; NULL: none waits */
    bool on_errand;              /* it has taken one and is not through. W: the worker */
    _Atomic bool errand_waits;   /* the same, for who does not hold the mutex. W: whoever holds it, relaxed */
    struct leat_worker_options options;
    pthread_t thread;
    bool running;

    /*
     * W: dispatcher  R: worker at the start of a batch, and while it waits. Relaxed: W0 publishes it to the batches
     * that follow. Of those in the ring the ones behind the first that is not reported have it too: the dispatcher
     * writes it and looks for reports behind it, the worker reports and looks at it behind that, and a fence lies
     * between the two on each side, H0 and the B2 of the bell. Without either both could pass each other (store-load),
     * and a batch run in a shape that is taken to be gone.
     */
    _Alignas(LEAT_ISOLATE) _Atomic uint32_t shape;
    /* It begins what it is handed much later than is usual (sched/lag.h). W: dispatcher, seldom  R: anyone, relaxed. */
    _Atomic bool behind;

    struct { /* W: dispatcher */
        _Alignas(LEAT_ISOLATE) uint64_t work_position;
        uint64_t done_position;
        uint32_t queries; /* outstanding */
        uint32_t batches; /* outstanding */
        bool yielding;    /* one of them gives way */
        uint64_t free_at_ns;
    } dispatcher;

    struct leat_worker_run *run; /* the worker's own */

    struct { /* W: worker; R: anyone, for statistics only */
        _Alignas(LEAT_ISOLATE) _Atomic uint64_t batches;
        _Atomic uint64_t busy_ns;
        _Atomic uint64_t offline_ns; /* of that, with batches of offline queries */
        _Atomic uint64_t parks;
        _Atomic uint64_t pauses; /* of what gave way */
    } statistics;
};

/* How long a thread spins now that has learnt `budget_ns`: read anew whenever it looks at the clock. */
static inline uint64_t
leat_spin_budget(const struct leat_shared_tables *tables, uint64_t budget_ns)
{
    const uint64_t ceiling_ns = atomic_load_explicit(&tables->spin_ns, memory_order_relaxed);
    return budget_ns < ceiling_ns ? budget_ns : ceiling_ns;
}

#define LEAT_WORKER_PARKED UINT32_C(0x80000000) /* in `shape`, beside the last shape that it had */

static inline struct leat_team_shape
leat_worker_unpack_shape(uint32_t shape)
{
    return (struct leat_team_shape){.cores = (uint16_t)shape, .worker_class = (uint16_t)((shape & ~LEAT_WORKER_PARKED) >> 16)};
}

/* [C] Makes the rings, near the CPUs that use them. */
LEAT_MUST_CHECK enum leat_status leat_worker_create(const struct leat_worker_options *options,
                                                    struct leat_worker **ret_worker);
/* [C] Spawns and pins the team. Returns once the leader runs, or why it could not. */
LEAT_MUST_CHECK enum leat_status leat_worker_start(struct leat_worker *worker);
/* [C] Makes sure that a batch needing `bytes` of scratch can run. Old scratch is kept until destroy. */
LEAT_MUST_CHECK enum leat_status leat_worker_reserve(struct leat_worker *worker, size_t bytes);
/*
 * [C] Has a worker that runs find the plan warm: it runs it once on this segment, as soon as it has no batch to run, in the
 * shape that it has; a parked one does not. What comes meanwhile waits for that run, and the caller for its end. LEAT_AGAIN,
 * and it was not run: until until_ns, monotonic, there was always a batch, or the worker has another errand. Else what the
 * run came to. Scratch was reserved for it.
 */
LEAT_MUST_CHECK enum leat_status leat_worker_warm(struct leat_worker *worker, const struct leat_backend *backend,
                                                  const struct leat_plan *plan, const struct leat_segment *segment,
                                                  uint64_t until_ns);
/*
 * [C] Whether it runs an errand, of which the dispatcher knows nothing: so it may be on cores that it had before it was
 * told of a shape, though no batch is. One that begins later is in the shape that was set before the caller learned of it.
 */
bool leat_worker_on_errand(struct leat_worker *worker);
/*
 * [W] Runs the next batch if there is one. The thread's loop is made of it; where none was started, the caller is the
 * worker, without a team, so that a test can drive it step by step.
 */
bool leat_worker_step(struct leat_worker *worker);
/* [C] Asks the thread to end, which it does when it next finds its ring empty, and joins it. */
void leat_worker_stop(struct leat_worker *worker);
void leat_worker_destroy(struct leat_worker *worker); /* [C] accepts NULL */

/* [C] Moves a member of its team, the leader being 0, to a CPU, whatever it does. Nothing where the worker is not pinned. */
LEAT_MUST_CHECK enum leat_status leat_worker_pin(struct leat_worker *worker, uint32_t member, uint32_t cpu);

/* [C] The kernel's numbers of its threads, leader first, with room for LEAT_TEAM_MAX; returns how many. While it runs. */
uint32_t leat_worker_threads(struct leat_worker *worker, pid_t *threads);

/*
 * [D] For the batches that it begins from now on. What it has begun goes on as it is. Without cores it is parked: it
 * runs what it was handed before in the shape that it had, and no thread of it spins from then on. Returns how many
 * batches, the next ones to be reported, are to be awaited: once these are, none runs in a shape of before.
 */
uint32_t leat_worker_reshape(struct leat_worker *worker, struct leat_team_shape shape);

/* [D] Room for `queries` more in one batch? */
static inline bool
leat_worker_has_room(const struct leat_worker *worker, uint32_t queries)
{
    return worker->dispatcher.queries + queries <= LEAT_WORKER_QUEUE &&
           worker->dispatcher.batches < LEAT_WORKER_BATCHES;
}

/* [D] The next batch's i-th cell, to be filled except for `sequence` and `queries`. i < LEAT_BATCH_QUERIES. */
static inline struct leat_work_cell *
leat_worker_cell(struct leat_worker *worker, uint32_t i)
{
    return &worker->work[(worker->dispatcher.work_position + i) & (LEAT_WORKER_QUEUE - 1)];
}

/*
 * [D] Publishes the `queries` cells filled above as one batch and wakes the worker if it sleeps; whether it did. One that
 * gives way, with nothing outstanding alone.
 */
bool leat_worker_submit(struct leat_worker *worker, uint32_t queries);

/* [D] Copies the next report out; false when there is none. */
bool leat_worker_poll_done(struct leat_worker *worker, struct leat_done_cell *ret_done);

/* [D] True when a report waits. */
bool leat_worker_done_ready(const struct leat_worker *worker);

#endif /* LEAT_RUNTIME_WORKER_H */

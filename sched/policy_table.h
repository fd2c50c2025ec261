/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/policy_table.h - policies that were solved ahead of time, as one block of bytes: which variant and batch, by the
 * rate of arrivals, what waits and its slack.
 *
 * Role      Generators fill a block, a file keeps it, selectors look actions up in it: one dependent load, no loop, no
 *           division, nothing allocated. The block is its own file format and is used where it lies, mapped or read.
 * Kinds     QUEUE  one worker's own queue: RAMSIS (EuroSys 2024), as sched/mdp.h solves it.
 *           POOL   one queue before all workers, as sched/mdp_pool.h solves it.
 *           LOAD   one variant and largest batch for each rate: ModelSwitching.
 * Layout    Little-endian, fields at fixed offsets, in this order, without gaps but for the last:
 *             struct leat_policy                                               128 bytes
 *             struct leat_policy_rung    [rung_count], rising in rate          32 bytes each
 *             struct leat_policy_variant [variant_count]                       80 bytes each
 *             u64 latency_ns             [variant_count][latency_items]        of batches of 1, 2, ... items
 *             u16 actions                [rung_count][rows][slack_bins + 1]    each rung on the next 64 bytes
 *           Rows, queue_max + 2 + idle_levels * held_max of them: 0 is unused; n = 1..queue_max items wait; more than
 *           those wait; then, where two workers or more are idle, n = 1..held_max and more for each level of idleness. An
 *           action is (variant | items << 6): so many items, the oldest first, go to the variant, or are given up or held
 *           back where that is LEAT_POLICY_GIVE_UP or _HOLD. 20 rungs of RAMSIS' size, 32 items and 100 bins, are 134 KiB.
 * Units     Where queries have many items each, so many of them count as one, a power of two: then all items and rates in a
 *           block are of such units. Look-ups take and give items; what does not fill a unit counts as one.
 * Slack     Of the oldest query: bin j, 0..slack_bins, is for slacks from objective * j / slack_bins to below the next, the
 *           last for all that is longer. Without bins there is one column.
 * Idle      With i >= 2 of K workers idle, level (i - 2) * idle_levels / (K - 1), rounded down: the least idle first.
 * Rungs     The lowest that covers the rate, else the highest. With other than worker_count workers the rate for each
 *           worker counts.
 * Trust     Any bytes may come from a file: leat_policy_check reads all of them once. A block that another process may
 *           change afterwards is to be copied first; a look-up stays inside the block even then.
 * Ownership The caller's memory, aligned to 8 bytes. Readers never write; a sealed block may be shared by threads.
 */
#ifndef LEAT_SCHED_POLICY_TABLE_H
#define LEAT_SCHED_POLICY_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <leat/tensor.h>

#include "base/status.h"

#define LEAT_POLICY_VERSION 1u

#define LEAT_POLICY_RUNGS_MAX     256u
#define LEAT_POLICY_VARIANTS_MAX  62u
#define LEAT_POLICY_QUEUE_MAX     1022u
#define LEAT_POLICY_BINS_MAX      1023u
#define LEAT_POLICY_LEVELS_MAX    64u
#define LEAT_POLICY_HELD_MAX      64u
#define LEAT_POLICY_WORKERS_MAX   1024u
#define LEAT_POLICY_LATENCIES_MAX 1024u
#define LEAT_POLICY_OBJECTIVE_MIN_NS 1024u /* a bin is a nanosecond at least */
#define LEAT_POLICY_OBJECTIVE_MAX_NS (UINT64_C(1) << 40) /* 18 minutes */
#define LEAT_POLICY_LATENCY_MAX_NS   (UINT64_C(1) << 48)
#define LEAT_POLICY_DISPERSION_MAX_PERMILLE 1000000u
#define LEAT_POLICY_PENALTY_MAX_PERMILLE    1000000u
#define LEAT_POLICY_SPREAD_MAX_PERMILLE     10000u
#define LEAT_POLICY_UNIT_SHIFT_MAX          16u

#define LEAT_POLICY_HOLD    62u   /* in place of a variant: they wait for more, though a worker is idle */
#define LEAT_POLICY_GIVE_UP 63u   /* in place of a variant */
#define LEAT_POLICY_ALL     1023u /* in place of items: all that wait, in the row for more than queue_max */

enum leat_policy_kind { LEAT_POLICY_QUEUE = 1, LEAT_POLICY_POOL = 2, LEAT_POLICY_LOAD = 3 };

/* The beginning of a block; what follows is reached by the functions below. */
struct leat_policy {
    uint8_t magic[8];
    uint32_t version;
    uint32_t checksum;            /* CRC-32C of all bytes, these four being 0 */
    uint64_t bytes;               /* of the block */
    uint64_t objective_ns;        /* LEAT_POLICY_OBJECTIVE_MIN_NS..MAX_NS */
    uint32_t kind;                /* enum leat_policy_kind */
    uint32_t worker_count;        /* 1..LEAT_POLICY_WORKERS_MAX */
    uint32_t dispersion_permille; /* of arrivals: 1000 is Poisson; 0..LEAT_POLICY_DISPERSION_MAX_PERMILLE */
    uint32_t drops_late;          /* 1: made for queries that are dropped when they are late; 0: they are served */
    uint32_t rung_count;          /* 1..LEAT_POLICY_RUNGS_MAX */
    uint32_t variant_count;       /* 1..LEAT_POLICY_VARIANTS_MAX */
    uint32_t queue_max;           /* 1..LEAT_POLICY_QUEUE_MAX; LOAD: 0 */
    uint32_t slack_bins;          /* 1..LEAT_POLICY_BINS_MAX; LOAD: 0 */
    uint32_t idle_levels;         /* POOL: 0..LEAT_POLICY_LEVELS_MAX; others: 0 */
    uint32_t held_max;            /* 1..LEAT_POLICY_HELD_MAX, at most queue_max; without levels: 0 */
    uint32_t latency_items;       /* 1..LEAT_POLICY_LATENCIES_MAX */
    uint32_t shortest;            /* QUEUE: 1: made for queries that go to the shortest queue; 0: dealt. Others: 0 */
    uint32_t late_penalty_permille; /* what a late query was priced at, as accuracy; 0..LEAT_POLICY_PENALTY_MAX_PERMILLE */
    uint32_t spread_permille;       /* standard deviation of times it was made for, over these; POOL: 0..10000. Others: 0 */
    uint32_t unit_shift;            /* a unit is 1 << this items; 0..LEAT_POLICY_UNIT_SHIFT_MAX */
    uint32_t reserved[9];           /* 0 */
};

#define LEAT_POLICY_UNKNOWN      UINT32_MAX
#define LEAT_POLICY_GAIN_UNKNOWN INT32_MIN

struct leat_policy_rung {
    uint32_t rate_qps;      /* arrivals of the application that it was solved for */
    uint32_t accuracy_ppm;  /* expected, of queries in time; or LEAT_POLICY_UNKNOWN */
    uint32_t violation_ppb; /* expected share of queries that are late or dropped, 10^-9; or LEAT_POLICY_UNKNOWN */
    int32_t gain_ppm;       /* expected, of all queries: accuracy of those in time less penalties; or ..GAIN_UNKNOWN */
    int32_t bound_ppm;      /* no policy has a larger gain; or LEAT_POLICY_GAIN_UNKNOWN */
    uint32_t reserved[3];   /* 0 */
};

struct leat_policy_variant {
    char name[LEAT_NAME_MAX]; /* printable ASCII, closed and filled up with zeros; no two alike */
    uint32_t accuracy_ppm;    /* 0..1000000 */
    uint32_t reserved[3];     /* 0 */
};

struct leat_policy_action {
    uint32_t variant; /* below variant_count; LEAT_POLICY_GIVE_UP, not in LOAD; or LEAT_POLICY_HOLD, in POOL alone */
    uint32_t items;   /* 1..1022, in row n of the queue at most n; or LEAT_POLICY_ALL in the row for more than queue_max */
};

_Static_assert(sizeof(struct leat_policy) == 128 && sizeof(struct leat_policy_rung) == 32 &&
                   sizeof(struct leat_policy_variant) == 80,
               "a file has these sizes");

/* ---- A block ----------------------------------------------------------------------------------- */

/*
 * Are these bytes, aligned to 8, a policy? Then they are *ret_policy. LEAT_ERR_PROTO: no, and the text says what is wrong
 * with them; LEAT_ERR_VERSION: of another version.
 */
LEAT_MUST_CHECK enum leat_status leat_policy_check(const void *bytes, size_t size, const struct leat_policy **ret_policy);

/* The functions below assume a block that was checked, or that leat_policy_init made. */
const struct leat_policy_rung *leat_policy_rung(const struct leat_policy *policy, uint32_t rung);
const struct leat_policy_variant *leat_policy_variant(const struct leat_policy *policy, uint32_t variant);
const uint64_t *leat_policy_latency_ns(const struct leat_policy *policy, uint32_t variant); /* u64[latency_items] */
const uint16_t *leat_policy_actions(const struct leat_policy *policy, uint32_t rung);       /* u16[rows][slack_bins + 1] */

static inline uint32_t
leat_policy_row_count(const struct leat_policy *policy)
{
    return policy->queue_max + 2 + policy->idle_levels * policy->held_max;
}

static inline struct leat_policy_action
leat_policy_unpack(uint16_t action)
{
    return (struct leat_policy_action){.variant = action & 63u, .items = action >> 6};
}

static inline uint16_t
leat_policy_pack(struct leat_policy_action action)
{
    return (uint16_t)((action.variant & 63u) | action.items << 6);
}

/* "queue", "pool", "load". */
const char *leat_policy_kind_text(uint32_t kind);

/* ---- Making one -------------------------------------------------------------------------------- */

/*
 * Bytes of a block of this shape: `kind` to `latency_items` and the objective count, the rest is ignored. LEAT_ERR_INVALID:
 * a field out of its range.
 */
LEAT_MUST_CHECK enum leat_status leat_policy_bytes(const struct leat_policy *shape, size_t *ret_bytes);

/*
 * Makes a block of that shape in memory of so many bytes; shape is one that leat_policy_bytes accepts. Rungs are unknown
 * in all but their rate, which is 1, 2, ...; variants have no name yet and the actions are 0. Different rungs may be
 * filled by different threads.
 */
struct leat_policy *leat_policy_init(void *memory, const struct leat_policy *shape);
void leat_policy_set_rung(struct leat_policy *policy, uint32_t rung, const struct leat_policy_rung *values);
/* LEAT_ERR_INVALID: a name that is too long or empty. latency_ns[latency_items]. */
LEAT_MUST_CHECK enum leat_status leat_policy_set_variant(struct leat_policy *policy, uint32_t variant, const char *name,
                                                         uint32_t accuracy_ppm, const uint64_t *latency_ns);
void leat_policy_set_action(struct leat_policy *policy, uint32_t rung, uint32_t row, uint32_t bin,
                            struct leat_policy_action action);
/* All of a rung, row 0 included, which is 0: u16[rows][slack_bins + 1]. */
void leat_policy_set_actions(struct leat_policy *policy, uint32_t rung, const uint16_t *actions);

/* Computes the checksum, then checks all: what generators got wrong is an error here rather than at whoever reads it. */
LEAT_MUST_CHECK enum leat_status leat_policy_seal(struct leat_policy *policy);

/* ---- Looking up -------------------------------------------------------------------------------- */

/* What one reader keeps: the rung in force, and the block's geometry in the form that a look-up wants, never read again. */
struct leat_policy_lookup {
    const uint16_t *actions; /* of the rung in force */
    uint64_t objective_ns;
    uint64_t slack_multiplier; /* bin = slack * this >> 64 >> slack_shift */
    uint64_t idle_multiplier;  /* level = (idle - 2) * this >> 32 */
    uint32_t slack_shift;
    uint32_t columns;
    uint32_t full_row;        /* queue_max + 1 */
    uint32_t unit_shift;
    uint32_t held_max;
    uint32_t idle_least;      /* so many idle and more: levels of idleness; UINT32_MAX: never */
    uint32_t idle_levels;
    uint32_t rate_from_qps, rate_span_qps; /* where the rung in force stays it */
    uint32_t rung;                         /* in force */
    uint32_t rung_count, rung_actions;     /* actions from one rung to the next */
    uint32_t workers, made_for;            /* that there are, that the policy was made for */
    const struct leat_policy_rung *rungs;
    const uint16_t *first; /* actions of rung 0 */
};

/* For up to LEAT_POLICY_WORKERS_MAX workers; 0: as many as the policy was made for. The rung of rate 0 is in force. */
void leat_policy_lookup_init(struct leat_policy_lookup *lookup, const struct leat_policy *policy, uint32_t worker_count);

/* Puts the rung for that rate in force: what leat_policy_follow does where the rate has left the present one's range. */
void leat_policy_turn(struct leat_policy_lookup *lookup, uint32_t rate_qps);

/* There are so many workers from now on, 1..LEAT_POLICY_WORKERS_MAX: what leat_policy_staff does where it is another number. */
void leat_policy_lookup_staff(struct leat_policy_lookup *lookup, uint32_t worker_count);

/* 0: as many as before. */
static inline void
leat_policy_staff(struct leat_policy_lookup *lookup, uint32_t worker_count)
{
    if (LEAT_UNLIKELY(worker_count != lookup->workers && worker_count != 0)) {
        leat_policy_lookup_staff(lookup, worker_count);
    }
}

static inline void
leat_policy_follow(struct leat_policy_lookup *lookup, uint32_t rate_qps)
{
    if (LEAT_UNLIKELY(rate_qps - lookup->rate_from_qps > lookup->rate_span_qps)) {
        leat_policy_turn(lookup, rate_qps);
    }
}

static inline uint32_t
leat_policy_bin(const struct leat_policy_lookup *lookup, uint64_t slack_ns)
{
    const uint64_t clamped_ns = slack_ns < lookup->objective_ns ? slack_ns : lookup->objective_ns;
    __extension__ const unsigned __int128 product = (unsigned __int128)clamped_ns * lookup->slack_multiplier;
    return (uint32_t)((uint64_t)(product >> 64) >> lookup->slack_shift);
}

/*
 * What to do with `waiting_items` >= 1, the oldest of them with that much slack (0 when it is late), while idle_count
 * workers are idle, the one that asks included.
 */
static inline struct leat_policy_action
leat_policy_action(const struct leat_policy_lookup *lookup, uint32_t waiting_items, uint32_t idle_count, uint64_t slack_ns)
{
    const uint32_t waiting = ((waiting_items - 1) >> lookup->unit_shift) + 1;
    const uint32_t queued = waiting < lookup->full_row ? waiting : lookup->full_row;
    const uint32_t held = waiting < lookup->held_max ? waiting : lookup->held_max;
    const uint32_t idle = idle_count < lookup->workers ? idle_count : lookup->workers;
    const uint32_t level = (uint32_t)((idle - 2) * lookup->idle_multiplier >> 32);
    const uint32_t row = idle >= lookup->idle_least ? lookup->full_row + level * lookup->held_max + held : queued;
    struct leat_policy_action action =
        leat_policy_unpack(lookup->actions[row * lookup->columns + leat_policy_bin(lookup, slack_ns)]);
    action.items = action.items < LEAT_POLICY_ALL ? action.items << lookup->unit_shift : LEAT_POLICY_ALL;
    return action;
}

#endif /* LEAT_SCHED_POLICY_TABLE_H */

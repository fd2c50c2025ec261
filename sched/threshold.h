/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched/threshold.h - finds the threshold of router `threshold`, by climbing a list while throughput grows.
 *
 * Source    U. Gupta et al., "DeepRecSys: A System for Optimizing End-To-End At-scale Neural Recommendation Inference",
 *           ISCA 2020. There each value is measured by a search of its own for the rate that the objective bears;
 *           here the caller measures, by whatever gives a throughput.
 * Use       leat_threshold_search_init(&search, NULL, 0, items_max);
 *           while ((items = leat_threshold_search_next(&search)) != 0) {
 *               leat_threshold_search_report(&search, measure(items));
 *           }
 *           options.threshold_items = search.best_items;
 * Caution   It stops at the first value that serves less than the best, so it finds a local optimum.
 */
#ifndef LEAT_SCHED_THRESHOLD_H
#define LEAT_SCHED_THRESHOLD_H

#include <stdint.h>

struct leat_threshold_search {
    const uint32_t *items; /* values to try, in this order */
    uint32_t count;
    uint32_t at;         /* asked for */
    uint32_t best_items; /* 0 until a report is above 0: the router's own default */
    double best_qps;
};

/*
 * The values, each at least 1, stay the caller's and where they are. NULL: 96, 128, 192, 256, 384, 512, as in DeepRecSys,
 * and 640, 768, 1000, as far as they are below items_max, where they make a difference; there may be none.
 */
void leat_threshold_search_init(struct leat_threshold_search *search, const uint32_t *items, uint32_t count,
                                uint32_t items_max);

/* The value to measure, the same until it is reported; 0: the search is over, best_items is the answer. */
uint32_t leat_threshold_search_next(const struct leat_threshold_search *search);

/* Queries a second, at least 0, with the value asked for. One that equals the best goes on but does not replace it. */
void leat_threshold_search_report(struct leat_threshold_search *search, double qps);

#endif /* LEAT_SCHED_THRESHOLD_H */

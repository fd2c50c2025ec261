/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/sched/ramsis_excerpt.h - two tasks and a trace of RAMSIS (EuroSys 2024).
 *
 * Source  The paper's public artifact, github.com/dmmendo/RAMSIS, commit 9b74967, which names no licence: measured numbers
 *         only. Latencies are 95th percentiles in microseconds, rounded; sizes that were not measured are on a line
 *         through the others, then none is longer than that of a larger batch, as the artifact does. Those of more
 *         than 151 ms (image) and 101 ms (text) are left out: they miss the objective.
 */
#ifndef LEAT_TESTS_RAMSIS_EXCERPT_H
#define LEAT_TESTS_RAMSIS_EXCERPT_H

enum { RAMSIS_EXCERPT_VARIANTS = 9, RAMSIS_EXCERPT_BATCHES = 32, RAMSIS_EXCERPT_INTERVALS = 27 };

struct ramsis_excerpt {
    const char *name;
    unsigned variant_count, worker_count;
    double objective_us;
    double accuracy[RAMSIS_EXCERPT_VARIANTS];
    double latency_us[RAMSIS_EXCERPT_VARIANTS][RAMSIS_EXCERPT_BATCHES]; /* 0: left out */
};

static const struct ramsis_excerpt ramsis_image = {
    "image", 9, 60, 150000,
    {0.57972, 0.73004, 0.77692, 0.80608, 0.82008, 0.83384, 0.84228, 0.85112, 0.85808},
    {
         {21921, 38551, 56597, 69217, 82066, 97189, 113884, 126341, 141652}, /* shufflenet_v2_x0_5 */
         {31495, 46930, 63879, 79562, 97399, 115134, 132561, 149368}, /* mobilenet_v3_large */
         {54109, 80945, 141205, 148596}, /* efficientnet_b0 */
         {68324, 102564}, /* efficientnet_b2 */
         {81311, 128317}, /* efficientnet_b3 */
         {105917}, /* efficientnet_b4 */
         {117172}, /* efficientnet_v2_s */
         {0}, /* efficientnet_v2_m */
         {0}, /* efficientnet_v2_l */
    },
};

static const struct ramsis_excerpt ramsis_text = {
    "text", 5, 20, 100000,
    {0.702, 0.748, 0.776, 0.8, 0.8456},
    {
         {11351, 16759, 16759, 16759, 16759, 16759, 16759, 16759, 17390, 20242, 20242, 20825, 22389, 24218, 25146,
          26321, 27464, 29589, 29723, 31758, 31758, 33246, 33678, 36097, 36186, 37395, 39199, 39970, 41271, 42872,
          43766, 44930}, /* bert_tiny */
         {23660, 23660, 37247, 37247, 41847, 44977, 49868, 56128, 60457, 61405, 69985, 69985, 74064, 76496, 80514,
          82267, 90529, 92526}, /* bert_mini */
         {36184, 51336, 64123, 78209, 90456}, /* bert_small */
         {53978, 82637}, /* bert_medium */
         {0}, /* bert_base */
    },
};

/* Queries a second in 27 intervals of 10 s; only the first second of the last one counts, and then all begins anew. */
static const double ramsis_trace_qps[RAMSIS_EXCERPT_INTERVALS] = {
    1850, 1617, 1880, 1729, 1747, 1839, 1786, 2070, 1992, 2227, 2343, 2344, 2838, 2857,
    3191, 3248, 3418, 3613, 3596, 3875, 3778, 3905, 3738, 3512, 3495, 3459, 3295};

#endif /* LEAT_TESTS_RAMSIS_EXCERPT_H */

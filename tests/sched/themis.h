/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tests/sched/themis.h - the three pipelines of Themis: coefficients, objectives and largest batches from the authors' repository
 * (github.com/mehransi/Themis, commit b01017f, 2024-07-23).
 */
#ifndef LEAT_TESTS_SCHED_THEMIS_H
#define LEAT_TESTS_SCHED_THEMIS_H

#include "sched/scale_themis.h"

enum { THEMIS_VIDEO, THEMIS_SENTIMENT, THEMIS_NLP, THEMIS_PIPELINES };

static const struct leat_themis_pipeline themis_pipelines[THEMIS_PIPELINES] = {
    [THEMIS_VIDEO] = {.stages = {{{148.81709977526535, 37.49369666805188, 5.432908755854746, -15.475937098807677}, 8, 8},
                                 {{34.69333807478468, 2.058115261491216, 19.478793326347812, 14.259440042600422}, 8, 8}},
                      .stage_count = 2,
                      .objective_ms = 780},
    [THEMIS_SENTIMENT] = {.stages = {{{59.135401329025065, 38.20569791416921, 160.62814762316182, 62.94940507943755}, 8, 8},
                                     {{52.09085666977715, 5.927263430261823, 9.673022430669654, 2.9608878972217028}, 8, 8}},
                          .stage_count = 2,
                          .objective_ms = 1350},
    [THEMIS_NLP] = {.stages = {{{21.36871436832019, 1.5569641306191406, 53.785185960044615, 27.77545863159201}, 8, 4},
                               {{304.596066487657, 74.08666337647502, -13.468936326215587, 11.630634430011373}, 8, 4},
                               {{263.93594914585606, 83.63772165096029, -1.006786216767125, 23.573866180316415}, 8, 4}},
                    .stage_count = 3,
                    .objective_ms = 2550},
};

#endif /* LEAT_TESTS_SCHED_THEMIS_H */

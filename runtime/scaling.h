/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/scaling.h - how applications are scaled while they are served, as the configuration says.
 *
 * Modes     off         workers stay as they are, or as `leat scale set` has them.
 *           leat        cores of instances and instances, as sched/scaler.h decides.
 *           horizontal  instances alone, of as few cores as workers can have.
 *           vertical    cores alone: each application has as many workers as the others.
 * Units     Nanoseconds.
 */
#ifndef LEAT_RUNTIME_SCALING_H
#define LEAT_RUNTIME_SCALING_H

#include <leat/leat.h>

#include "sched/forecast.h"
#include "sched/scaler.h"

enum leat_scaling_mode {
    LEAT_SCALING_OFF,
    LEAT_SCALING_LEAT,
    LEAT_SCALING_HORIZONTAL,
    LEAT_SCALING_VERTICAL,
    LEAT_SCALING_MODES,
};
extern const char *const leat_scaling_modes[LEAT_SCALING_MODES];

#define LEAT_SCALING_DELAY_AUTO       UINT64_MAX
#define LEAT_SCALING_FORESEES_NOTHING LEAT_FORECASTS

struct leat_scaled {
    char name[LEAT_NAME_MAX]; /* of an application, model or pipeline, which may come later, or go */
    uint32_t weight;          /* of what is shed of its load where there are too few cores */
};

struct leat_scaling {
    enum leat_scaling_mode mode;
    uint64_t interval_ns; /* between decisions */
    uint64_t hold_ns;     /* for which a rate is remembered; at most LEAT_SCALER_HOLD_MAX intervals */
    uint64_t settle_ns;   /* in which fewer cores must have sufficed until they are given back */
    /* Until an instance beside others gets queries. Auto: what its models took to load in mode horizontal, else none. */
    uint64_t instance_delay_ns;
    enum leat_forecast forecast; /* LEAT_SCALING_FORESEES_NOTHING: none */
    struct leat_scaled applications[LEAT_SCALER_APPLICATIONS_MAX];
    uint32_t application_count; /* 1 and more unless it is off */
};

#endif /* LEAT_RUNTIME_SCALING_H */

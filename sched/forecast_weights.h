/* SPDX-License-Identifier: Apache-2.0 */
/* Written by tools/predict/train.py, which says how: linear quantile regression on 14 days of the Twitter stream, August 2021. */
#ifndef LEAT_SCHED_FORECAST_WEIGHTS_H
#define LEAT_SCHED_FORECAST_WEIGHTS_H

#define LEAT_FORECAST_WEIGHTS_50 {0.049149, 0.068389, 0.109502, 0.151085, 0.239128, 0.374489}
#define LEAT_FORECAST_WEIGHTS_90 {0.018030, 0.030097, 0.055677, 0.082609, 0.281961, 0.660205}
#define LEAT_FORECAST_WEIGHTS_99 {0.075101, 0.024732, 0.068182, -0.081065, 0.059900, 1.196093}

#endif /* LEAT_SCHED_FORECAST_WEIGHTS_H */

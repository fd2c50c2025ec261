/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/backend.h"

#include <string.h>

#include "base/align.h"

const struct leat_backend *
leat_backend_find(const char *name)
{
    static const struct leat_backend *const backends[] = {&leat_backend_cpu, &leat_backend_reference,
                                                          &leat_backend_synthetic};
    for (size_t i = 0; i < LEAT_COUNT_OF(backends); i++) {
        if (strcmp(backends[i]->name, name) == 0) {
            return backends[i];
        }
    }
    return NULL;
}

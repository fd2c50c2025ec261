/* SPDX-License-Identifier: Apache-2.0 */
#include "base/large.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/align.h"

enum { HUGE_PAGE = 2 << 20 };

void *
leat_large_alloc(size_t bytes)
{
    const bool huge = bytes >= HUGE_PAGE;
    void *block;

    if (posix_memalign(&block, huge ? HUGE_PAGE : LEAT_CACHE_LINE, bytes > 0 ? bytes : 1) != 0) {
        return NULL;
    }
    if (huge) { /* where the kernel does not, all is slower, no more */
        (void)madvise(block, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    }
    return block;
}

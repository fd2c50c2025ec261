/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/cxx_heap.h - C++ operator new and delete, which keep small blocks for the next run.
 *
 * Role       oneDNN builds a hash table of its arguments in every dnnl_primitive_execute. C++ lets a
 *            program replace operator new; this one keeps the blocks that a thread frees while it is
 *            inside a run and hands them out again, so a run allocates nothing once it has run before.
 *            A block that is got outside a run, where plans are built, has room behind it: oneDNN 2.6 reads past
 *            the end of a table while it generates an AMX convolution, and faults where no page follows.
 * Ownership  Every block is an ordinary malloc block, in or out of a run, on any thread: blocks may
 *            outlive the run, the plan and the thread. A thread's kept blocks are freed when it ends.
 * Threads    Per thread, no sharing.
 */
#ifndef LEAT_KERNELS_CPU_CXX_HEAP_H
#define LEAT_KERNELS_CPU_CXX_HEAP_H

/*
 * The table (jit_brgemm_amx_uker, skipped_bd_mask) has an element of 8 bytes for each row of a matrix. It is
 * looked up once more after the last block of rows, of which an AMX tile has 16 at most; what is found there
 * is not used.
 */
#define LEAT_CXX_HEAP_ROOM_BYTES 128u

void leat_cxx_heap_enter(void);
void leat_cxx_heap_leave(void);

#endif /* LEAT_KERNELS_CPU_CXX_HEAP_H */

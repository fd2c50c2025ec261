/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernels/cpu/cxx_heap.h - C++ operator new and delete, which keep small blocks for the next run.
 *
 * Role       oneDNN builds a hash table of its arguments in every dnnl_primitive_execute. C++ lets a
 *            program replace operator new; this one keeps the blocks that a thread frees while it is
 *            inside a run and hands them out again, so a run allocates nothing once it has run before.
 * Ownership  Every block is an ordinary malloc block, in or out of a run, on any thread: blocks may
 *            outlive the run, the plan and the thread. A thread's kept blocks are freed when it ends.
 * Threads    Per thread, no sharing.
 */
#ifndef LEAT_KERNELS_CPU_CXX_HEAP_H
#define LEAT_KERNELS_CPU_CXX_HEAP_H

void leat_cxx_heap_enter(void);
void leat_cxx_heap_leave(void);

#endif /* LEAT_KERNELS_CPU_CXX_HEAP_H */

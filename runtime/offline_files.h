/* SPDX-License-Identifier: Apache-2.0 */
/*
 * runtime/offline_files.h - the two folders of an offline job: items are read from one, answers put into the other.
 *
 * Role     An item is a regular file whose name ends with .npy, an array of one item or several, or .raw, their bytes alone; of
 *          several inputs it is a file for each, with the name of the input before that ending, in which _ stands for /: cat.npy is
 *          cat.ids.npy and cat.mask.npy. One that lacks some cannot be asked, nor can a file that is named for no input. Its
 *          answer has the same name and form; of several outputs each has the number of the output before that ending:
 *          cat.npy, cat.0.npy. Of an output that varies it has what the item has of it; such items are asked one in a file. It is written under another name, synced and renamed, the first output last: an item is answered
 *          once that one's name is there, and never by half. Many are written before they are synced, by several threads at
 *          once: a file system makes durable together what is asked for together, and each by itself what comes one by one. An answer that is there stays; other outputs without the first are
 *          of a run that died, and are replaced, so that all outputs are of one run. So is whatever else has such a name: where
 *          outputs are several, the folder is to be the job's own. What could not be answered is told in a report, a line of
 *          JSON for each item, which is there once the job has ended.
 * Trust    Folders and what is in them are a client's, and may change at any moment. Folders are opened on its behalf: unless the
 *          owner is root or the daemon's own user, whose rights the daemon has anyway, only those that belong to it, and in them
 *          only files that do. Names are of the folder itself, links are not followed, nothing waits for a device or pipe, and
 *          what is written to was made anew.
 * Own      Whose folder it is for answers, of all jobs of all daemons of this host, a lock on it says (flock), which ends with whoever
 *          has it. Names of what is not finished, and of the report, have the job's number: a new one takes no folder where such a
 *          name is taken, so whatever is there later by its number is its own, to be replaced or removed, and nothing else is.
 * Steps    Before and after each change of the disk leat_registry_step() is called.
 * Threads  One thread at a time for each output folder, whatever the job; but answers may be finished by another than the one
 *          that writes the next, in other places.
 */
#ifndef LEAT_RUNTIME_OFFLINE_FILES_H
#define LEAT_RUNTIME_OFFLINE_FILES_H

#include <leat/leat.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"

#define LEAT_OFFLINE_ITEMS_MAX 1000000u /* files in a folder */

struct leat_offline_folder {
    int fd; /* -1: not open */
    uint64_t device, inode;
};

struct leat_offline_folders {
    struct leat_offline_folder input, output;
    uid_t owner;
    uint64_t job; /* names what is not done yet */
};

/*
 * Open again, by our own rights, what a client passed or a path leads to, if it is the owner's folder. LEAT_ERR_ACCESS,
 * LEAT_ERR_SYS, with what to do. The caller closes.
 */
LEAT_MUST_CHECK enum leat_status leat_offline_folder_take(int fd, uid_t owner, struct leat_offline_folder *ret_folder);
LEAT_MUST_CHECK enum leat_status leat_offline_folder_open(const char *path, uid_t owner, struct leat_offline_folder *ret_folder);
void leat_offline_folder_close(struct leat_offline_folder *folder); /* what is not open stays so */
/* Until it is closed it is nobody else's for answers. LEAT_ERR_BUSY. */
LEAT_MUST_CHECK enum leat_status leat_offline_folder_lock(const struct leat_offline_folder *folder);

/* Before a job has an output folder that is new to it: LEAT_ERR_EXISTS where there is something that has the name of what it would make. */
LEAT_MUST_CHECK enum leat_status leat_offline_check_names(const struct leat_offline_folders *folders);

/* Can answers be written there? Makes a file, and removes it. */
LEAT_MUST_CHECK enum leat_status leat_offline_probe(const struct leat_offline_folders *folders);

/* Can these be asked in files: types that arrays have, inputs of different names? */
LEAT_MUST_CHECK enum leat_status leat_offline_check_target(const struct leat_target *target);

/* Is there any item, answered or not? LEAT_ERR_INVALID: it may be another folder than was meant. */
LEAT_MUST_CHECK enum leat_status leat_offline_check_items(const struct leat_offline_folders *folders);

/* Names of items, in order. */
struct leat_offline_items {
    char **names; /* those without an answer, as of one input; each may be freed and NULL */
    uint32_t count;
    uint64_t answered; /* others, which have one */
};
LEAT_MUST_CHECK enum leat_status leat_offline_list(const struct leat_offline_folders *folders, const struct leat_target *target,
                                                   struct leat_offline_items *ret_items);
void leat_offline_free_items(struct leat_offline_items *items); /* accepts zeroes */

/* Each input into inputs[i], which has room for the target's largest query. An error is the item's own. */
LEAT_MUST_CHECK enum leat_status leat_offline_read(const struct leat_offline_folders *folders, const char *name,
                                                   const struct leat_target *target, void *const *inputs, uint32_t *ret_items);

#define LEAT_OFFLINE_FILES_MAX 384u                           /* of answers that are written and not finished */
#define LEAT_OFFLINE_ANSWERS_MAX (LEAT_OFFLINE_FILES_MAX / 2) /* in a group, of one output: one is written, and one finished */
_Static_assert(LEAT_OFFLINE_ANSWERS_MAX >= LEAT_TENSORS_MAX, "any answer can be written");

/* Written, and neither durable nor under its name. */
struct leat_offline_answer {
    const char *name; /* the item's; the caller's */
    uint32_t place;
    uint32_t output_count;
    int error; /* of syncing it; 0: none */
    FILE *files[LEAT_TENSORS_MAX];
};

/* Before the first is written, and once none is: removes what is not finished, of a run that died too. */
void leat_offline_clear(const struct leat_offline_folders *folders);
/*
 * What was answered; outputs[i] is the i-th output, whose contents are moved where the completion says that it has less than it can. Those that are not finished
 * have places of their own, each below LEAT_OFFLINE_FILES_MAX over the number of outputs. An error is the folder's: the item has no answer.
 */
LEAT_MUST_CHECK enum leat_status leat_offline_write(const struct leat_offline_folders *folders, uint32_t place, const char *name,
                                                    const struct leat_target *target, uint32_t items,
                                                    const struct leat_completion *done, void *const *outputs,
                                                    struct leat_offline_answer *ret_answer);
/* They are durable, and under their names. An answer that is there stays. The first error; others go on. */
LEAT_MUST_CHECK enum leat_status leat_offline_finish(const struct leat_offline_folders *folders, const struct leat_target *target,
                                                     struct leat_offline_answer *answers, uint32_t count, uint32_t *ret_finished);

/* A new report, or NULL with an error; one line for an item; under its name and durable, or gone where it has no lines. */
LEAT_MUST_CHECK enum leat_status leat_offline_report_begin(const struct leat_offline_folders *folders, FILE **ret_report);
LEAT_MUST_CHECK enum leat_status leat_offline_report_add(FILE *report, const char *name, const char *error);
LEAT_MUST_CHECK enum leat_status leat_offline_report_end(const struct leat_offline_folders *folders, FILE *report, bool any);
/* Leaves it; the next one begins anew. Accepts NULL. */
void leat_offline_report_drop(const struct leat_offline_folders *folders, FILE *report);

#endif /* LEAT_RUNTIME_OFFLINE_FILES_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/policy.h - what the parts of `leat policy` share. */
#ifndef LEAT_TOOLS_CLI_POLICY_H
#define LEAT_TOOLS_CLI_POLICY_H

#include <stdio.h>

#include <jansson.h>

#include "sched/policy_table.h"

#define POLICY_PENALTY_DEALT 1.0 /* unless it is named; LEAT_POLICY_PENALTY for one queue */

void policy_print_help(void);

/* Checked; to be freed. Errors name the file. */
LEAT_MUST_CHECK enum leat_status policy_read(const char *path, struct leat_policy **ret_policy);

/* A table for people: what each rung expects. */
void policy_print_rungs(const struct leat_policy *policy);

/* What is in it, without the actions. */
json_t *policy_json(const struct leat_policy *policy);

/* A picture: the variant by what waits and its slack, a panel for each rung. The caller looks at ferror. */
void policy_plot(const void *policy, FILE *out);

int policy_generate(int argc, char **argv); /* argv[0] is "generate"; an exit code */

#endif /* LEAT_TOOLS_CLI_POLICY_H */

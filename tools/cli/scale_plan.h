/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/scale_plan.h - leat scale plan: cores, instances and batches of a pipeline's stages for one rate. */
#ifndef LEAT_TOOLS_CLI_SCALE_PLAN_H
#define LEAT_TOOLS_CLI_SCALE_PLAN_H

/* argv[0] is "plan". Returns the exit code. */
int scale_plan(int argc, char **argv);

/* Its own options, a line or more each. */
void scale_plan_print_options(void);

#endif /* LEAT_TOOLS_CLI_SCALE_PLAN_H */

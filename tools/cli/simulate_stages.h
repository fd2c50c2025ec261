/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate_stages.h - the verb `simulate`, of a pipeline whose stages are scaled. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_STAGES_H
#define LEAT_TOOLS_CLI_SIMULATE_STAGES_H

/* The verb, where it is asked of stages. argv[0] is `simulate`. */
int simulate_stages(int argc, char **argv);
void simulate_stages_help(void);

#endif /* LEAT_TOOLS_CLI_SIMULATE_STAGES_H */

/* SPDX-License-Identifier: Apache-2.0 */
/* tools/cli/simulate_autoscale.h - the verb `simulate`, of applications whose variants come and go. */
#ifndef LEAT_TOOLS_CLI_SIMULATE_AUTOSCALE_H
#define LEAT_TOOLS_CLI_SIMULATE_AUTOSCALE_H

#include "tools/simulate/autoscale.h"

/* The verb, where it is asked of autoscaling. argv[0] is `simulate`. Without `exact` there is no policy `ilp`. */
int simulate_autoscale(int argc, char **argv, autoscale_exact exact);
void simulate_autoscale_help(void);

#endif /* LEAT_TOOLS_CLI_SIMULATE_AUTOSCALE_H */

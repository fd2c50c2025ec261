/* SPDX-License-Identifier: Apache-2.0 */
/* infaas_ilp - `leat simulate --autoscale`, with INFaaS' integer program, solved by GLPK, among the policies. */
#include "tests/sched/autoscale_ilp.h"
#include "tools/cli/simulate_autoscale.h"

int
main(int argc, char **argv)
{
    return simulate_autoscale(argc, argv, autoscale_ilp);
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sched/autoscale_ilp.h"

#include <glpk.h>
#include <math.h>
#include <string.h>

#define ENTRIES_MAX (2 * LEAT_AUTOSCALE_VARIANTS_MAX + 2)

/* Columns of an application: for each variant what stays and what is new; last what is shed. */
static int
column_of(uint32_t application, uint32_t variant, bool fresh)
{
    return (int)(1 + application * (2 * LEAT_AUTOSCALE_VARIANTS_MAX + 1) + 2 * variant + fresh);
}

static uint32_t
present(const struct leat_autoscale_application *application, uint32_t v)
{
    return application->ready[v] + application->starting[v];
}

static void
add_application(glp_prob *program, const struct leat_autoscale_options *options,
                const struct leat_autoscale_application *application, uint32_t a)
{
    const int shed = column_of(a, LEAT_AUTOSCALE_VARIANTS_MAX, false), row = glp_add_rows(program, 1);
    int columns[ENTRIES_MAX], count = 0;
    double values[ENTRIES_MAX];

    for (uint32_t v = 0; v < LEAT_AUTOSCALE_VARIANTS_MAX; v++) {
        for (int fresh = 0; fresh < 2; fresh++) {
            const int column = column_of(a, v, fresh);
            const uint64_t mqps =
                v < application->variant_count ? leat_autoscale_carried_mqps(options, application, v) : 0;
            const uint32_t most = mqps == 0 ? 0 : fresh ? LEAT_AUTOSCALE_INSTANCES_MAX : present(application, v);
            glp_set_col_kind(program, column, GLP_IV);
            glp_set_col_bnds(program, column, most > 0 ? GLP_DB : GLP_FX, 0, most);
            if (most == 0) {
                continue;
            }
            glp_set_obj_coef(program, column, (double)(fresh ? leat_autoscale_start_price(options, &application->variants[v])
                                                             : application->variants[v].price));
            count++;
            columns[count] = column;
            values[count] = (double)mqps / 1000;
        }
    }
    glp_set_col_bnds(program, shed, GLP_LO, 0, 0);
    glp_set_obj_coef(program, shed, 1000 * (double)application->shed_price);
    count++;
    columns[count] = shed;
    values[count] = 1;
    glp_set_mat_row(program, row, count, columns, values);
    glp_set_row_bnds(program, row, GLP_LO, (double)leat_autoscale_demand_mqps(options, application) / 1000, 0);
}

static void
add_resource(glp_prob *program, const struct leat_autoscale_box *box, const struct leat_autoscale_application *applications,
             uint32_t count, bool beside, uint32_t r)
{
    static _Thread_local int columns[1 + 2 * LEAT_AUTOSCALE_VARIANTS_MAX * LEAT_AUTOSCALE_APPLICATIONS_MAX];
    static _Thread_local double values[1 + 2 * LEAT_AUTOSCALE_VARIANTS_MAX * LEAT_AUTOSCALE_APPLICATIONS_MAX];
    const int row = glp_add_rows(program, 1);
    double units = box->totals[r];
    int entries = 0;

    for (uint32_t a = 0; a < count; a++) {
        for (uint32_t v = 0; v < applications[a].variant_count; v++) {
            const double uses = applications[a].variants[v].uses[r];
            units -= beside ? uses * (present(&applications[a], v) + applications[a].leaving[v]) : 0;
            for (int fresh = beside; fresh < 2 && uses > 0; fresh++) {
                entries++;
                columns[entries] = column_of(a, v, fresh);
                values[entries] = uses;
            }
        }
    }
    glp_set_mat_row(program, row, entries, columns, values);
    glp_set_row_bnds(program, row, GLP_UP, 0, fmax(units, 0));
}

/* Called at each node, some times. */
static void
look_at_tree(glp_tree *tree, void *nodes_max)
{
    int made = 0;

    glp_ios_tree_size(tree, NULL, NULL, &made);
    if ((uint32_t)made > *(uint32_t *)nodes_max) {
        glp_ios_terminate(tree);
    }
}

bool
autoscale_ilp(const struct leat_autoscale_options *options, const struct leat_autoscale_box *box,
              struct leat_autoscale_application *applications, uint32_t count, bool beside, uint32_t nodes_max)
{
    glp_prob *program = glp_create_prob();
    glp_iocp parameters;

    glp_term_out(GLP_OFF);
    glp_set_obj_dir(program, GLP_MIN);
    glp_add_cols(program, column_of(count, 0, false) - 1);
    for (uint32_t a = 0; a < count; a++) {
        add_application(program, options, &applications[a], a);
    }
    for (uint32_t r = 0; r < box->resource_count; r++) {
        add_resource(program, box, applications, count, beside, r);
    }
    glp_init_iocp(&parameters);
    parameters.presolve = GLP_ON;
    parameters.gmi_cuts = GLP_ON;
    parameters.mir_cuts = GLP_ON;
    parameters.tol_int = 1e-9; /* an instance carries up to a million mqps */
    parameters.cb_func = look_at_tree;
    parameters.cb_info = &nodes_max;
    const bool proved = glp_intopt(program, &parameters) == 0 && glp_mip_status(program) == GLP_OPT;
    const bool found = proved || glp_mip_status(program) == GLP_FEAS;
    for (uint32_t a = 0; a < count; a++) {
        memset(applications[a].aim, 0, sizeof(applications[a].aim));
        applications[a].makes_room = false;
        for (uint32_t v = 0; found && v < applications[a].variant_count; v++) {
            applications[a].aim[v] = (uint32_t)lround(glp_mip_col_val(program, column_of(a, v, false)) +
                                                      glp_mip_col_val(program, column_of(a, v, true)));
        }
    }
    glp_delete_prob(program);
    (void)glp_free_env(); /* threads that call this end */
    return proved;
}

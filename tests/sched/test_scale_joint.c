/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Goal     No choice of cores, instances and batches is cheaper than the answer, nor sheds less; and the answer is one: it fits the
 *          machine, carries what it says and is in time.
 *          On larger machines likewise with one class of cores; with several, and with more than is looked at in full, it is
 *          measured how much more the answer sheds.
 * Method   All choices of small machines, random applications, series and parallel; what an answer says is computed from it anew.
 *          For larger ones a plain program over all cells of the machine, which takes its time.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "sched/scale_joint.h"
#include "tests/leat_test.h"

enum {
    CORES_MAX = 3,
    BATCH_MAX = 3,
    APPLICATIONS_MAX = 2,
    LARGE_MAX = 8,
    LARGE_APPLICATIONS_MAX = 16
};

static uint64_t random_state;
static uint64_t latencies[APPLICATIONS_MAX][LEAT_SCALE_STAGES_MAX][LEAT_JOINT_CLASSES_MAX][CORES_MAX * BATCH_MAX];

static uint64_t large[LARGE_APPLICATIONS_MAX][LEAT_SCALE_STAGES_MAX][LEAT_JOINT_CLASSES_MAX]
                     [LARGE_MAX * LARGE_MAX];

static uint32_t
below(uint32_t n)
{
    return (uint32_t)(leat_test_random(&random_state) % n);
}

/* ---- What a choice is worth ------------------------------------------------------------------------ */

/* Whether the stage carries the demand so; its latency. */
static bool
carries(const struct leat_joint_stage *stage, const struct leat_joint_choice *choice, double demand_qps, uint64_t *ret_ns)
{
    const uint64_t run_ns =
        stage->latency_ns[choice->worker_class][(choice->cores - 1) * stage->batch_max + choice->batch - 1];
    *ret_ns = run_ns + (run_ns + choice->instances - 1) / choice->instances;
    return run_ns > 0 && (double)choice->instances * choice->batch * 1e9 >= demand_qps * stage->calls * (double)run_ns;
}

static uint64_t
latency_of(const struct leat_joint_application *application, const uint64_t *stages_ns)
{
    uint64_t stack[LEAT_JOINT_TERMS_MAX];
    uint32_t depth = 0;

    for (uint32_t t = 0; t < application->term_count; t++) {
        if (application->terms[t] >= 0) {
            stack[depth++] = stages_ns[application->terms[t]];
            continue;
        }
        const uint64_t b = stack[--depth], a = stack[--depth];
        stack[depth++] = application->terms[t] == LEAT_JOINT_SERIES ? a + b : a > b ? a : b;
    }
    EXPECT(depth == 1);
    return stack[0];
}

static uint64_t
shed_of(const struct leat_joint_application *application, uint32_t share)
{
    const double nothing_qps = share == 0 ? application->starved_qps : 0;
    return (uint64_t)(application->demand_qps * 1000 + 0.5) * application->weight * (LEAT_JOINT_SHARES - share) +
           (uint64_t)(nothing_qps * 1000 + 0.5) * LEAT_JOINT_SHARES;
}

struct worth {
    uint64_t shed, price;
};

/* Sees that the answers are some. */
static struct worth
check_answers(const struct leat_joint_box *box, const struct leat_joint_application *applications,
              uint32_t count, const struct leat_joint_answer *answers)
{
    uint32_t used[LEAT_JOINT_CLASSES_MAX] = {0};
    struct worth worth = {0};

    for (uint32_t a = 0; a < count; a++) {
        const struct leat_joint_application *application = &applications[a];
        uint64_t stages_ns[LEAT_SCALE_STAGES_MAX];
        worth.shed += shed_of(application, answers[a].share);
        for (uint32_t s = 0; s < application->stage_count; s++) {
            const struct leat_joint_choice *choice = &answers[a].stages[s];
            const struct leat_joint_stage *stage = &application->stages[s];
            EXPECT((choice->instances > 0) == (answers[a].share > 0));
            if (choice->instances == 0) {
                continue;
            }
            EXPECT(choice->instances >= stage->instances_min &&
                   choice->instances <= stage->instances_max);
            EXPECT(choice->cores >= stage->cores_min && choice->cores <= stage->cores_max &&
                   choice->batch <= stage->batch_max);
            EXPECT(carries(stage, choice,
                           application->demand_qps * answers[a].share / LEAT_JOINT_SHARES,
                           &stages_ns[s]));
            used[choice->worker_class] += choice->instances * choice->cores;
            worth.price += (uint64_t)choice->instances * choice->cores *
                           box->classes[choice->worker_class].price;
        }
        if (answers[a].share > 0) {
            EXPECT(latency_of(application, stages_ns) == answers[a].latency_ns);
            EXPECT(answers[a].latency_ns <= application->objective_ns);
        }
    }
    for (uint32_t k = 0; k < box->class_count; k++) {
        EXPECT(used[k] <= box->classes[k].cores);
    }
    return worth;
}

/* ---- All choices ----------------------------------------------------------------------------------- */

struct search {
    const struct leat_joint_box *box;
    const struct leat_joint_application *applications;
    uint32_t count;
    uint32_t left[LEAT_JOINT_CLASSES_MAX]; /* cores */
    uint64_t stages_ns[APPLICATIONS_MAX][LEAT_SCALE_STAGES_MAX];
    uint32_t share; /* of the application at hand */
    uint64_t best_shed, best_price;
};

static void search_application(struct search *search, uint32_t a, uint64_t shed, uint64_t price);

static void
search_stage(struct search *search, uint32_t a, uint32_t s, uint64_t shed, uint64_t price)
{
    const struct leat_joint_application *application = &search->applications[a];
    const struct leat_joint_stage *stage = &application->stages[s];

    if (shed > search->best_shed || (shed == search->best_shed && price >= search->best_price)) {
        return; /* it only gets worse */
    }
    if (s == application->stage_count) {
        if (latency_of(application, search->stages_ns[a]) <= application->objective_ns) {
            search_application(search, a + 1, shed, price);
        }
        return;
    }
    struct leat_joint_choice choice;
    for (choice.worker_class = 0; choice.worker_class < search->box->class_count; choice.worker_class++) {
        const uint32_t k = choice.worker_class;
        for (choice.cores = stage->cores_min; stage->latency_ns[k] != NULL && choice.cores <= stage->cores_max; choice.cores++) {
            for (choice.instances = stage->instances_min; choice.instances <= stage->instances_max; choice.instances++) {
                const uint32_t cores = choice.instances * choice.cores;
                if (cores > search->left[k]) {
                    break;
                }
                search->left[k] -= cores;
                for (choice.batch = 1; choice.batch <= stage->batch_max; choice.batch++) {
                    if (carries(stage, &choice, application->demand_qps * search->share / LEAT_JOINT_SHARES,
                                &search->stages_ns[a][s])) {
                        search_stage(search, a, s + 1, shed, price + (uint64_t)cores * search->box->classes[k].price);
                    }
                }
                search->left[k] += cores;
            }
        }
    }
}

static void
search_application(struct search *search, uint32_t a, uint64_t shed, uint64_t price)
{
    if (a == search->count) {
        if (shed < search->best_shed || (shed == search->best_shed && price < search->best_price)) {
            search->best_shed = shed;
            search->best_price = price;
        }
        return;
    }
    for (uint32_t share = LEAT_JOINT_SHARES + 1; share-- > 0;) {
        const uint32_t outer = search->share;
        const uint64_t more = shed + shed_of(&search->applications[a], share);
        search->share = share;
        if (share > 0) {
            search_stage(search, a, 0, more, price);
        } else {
            search_application(search, a + 1, more, price);
        }
        search->share = outer;
    }
}

/* ---- Random worlds ---------------------------------------------------------------------------------- */

static void
draw_application(const struct leat_joint_box *box, uint32_t a, uint32_t stage_count, struct leat_joint_application *application)
{
    uint32_t open = 0;

    *application = (struct leat_joint_application){.stage_count = stage_count,
                                                   .demand_qps = 1 + below(2000) / 10.0,
                                                   .objective_ns = 1000000 + 1000000ull * below(300),
                                                   .weight = 1 + below(3),
                                                   .starved_qps = below(3) == 0 ? below(2000) : 0};
    for (uint32_t s = 0; s < stage_count; s++) {
        struct leat_joint_stage *stage = &application->stages[s];
        *stage = (struct leat_joint_stage){.cores_max = CORES_MAX,
                                           .batch_max = BATCH_MAX,
                                           .cores_min = 1 + below(4) / 3,
                                           .instances_min = 1 + below(4) / 3,
                                           .instances_max = 2 + below(20),
                                           .calls = below(2) ? 1 : 0.5 + below(4)};
        const uint64_t one_ns = 1000000ull + 100000 * below(300);
        for (uint32_t k = 0; k < box->class_count; k++) {
            uint64_t *table = latencies[a][s][k];
            for (uint32_t c = 1; c <= CORES_MAX; c++) {
                for (uint32_t b = 1; b <= BATCH_MAX; b++) {
                    const uint64_t ns = one_ns * (k + 1) * (1 + b) / (1 + c) + below(1000000);
                    table[(c - 1) * BATCH_MAX + b - 1] = below(12) == 0 ? 0 : ns;
                }
            }
            stage->latency_ns[k] = below(5) == 0 ? NULL : table;
        }
        application->terms[application->term_count++] = (int8_t)s;
        open++;
        while (open > 1 && (s + 1 == stage_count || below(2))) {
            application->terms[application->term_count++] = below(3) ? LEAT_JOINT_SERIES : LEAT_JOINT_PARALLEL;
            open--;
        }
    }
}

static void
test_against_all_choices(void)
{
    uint32_t whole = 0, partial = 0, none = 0;

    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(600); round++) {
        struct leat_joint_box box = {.class_count = 1 + below(round % 4 == 0 ? 3 : 2)};
        struct leat_joint_application applications[APPLICATIONS_MAX];
        struct leat_joint_answer answers[APPLICATIONS_MAX];
        const uint32_t count = 1 + below(APPLICATIONS_MAX);

        for (uint32_t k = 0; k < box.class_count; k++) {
            box.classes[k].cores = below(box.class_count > 2 ? 4 : 7);
            box.classes[k].price = 1 + below(5);
        }
        for (uint32_t a = 0; a < count; a++) {
            draw_application(&box, a, 1 + below(count > 1 ? 2 : 3), &applications[a]);
        }
        struct search search = {.box = &box,
                                .applications = applications,
                                .count = count,
                                .best_shed = UINT64_MAX,
                                .best_price = UINT64_MAX};
        for (uint32_t k = 0; k < box.class_count; k++) {
            search.left[k] = box.classes[k].cores;
        }
        search_application(&search, 0, 0, 0);

        const size_t bytes = leat_joint_bytes(&box, count);
        void *memory = aligned_alloc(64, bytes);
        EXPECT(memory != NULL);
        memset(memory, (int)below(256), bytes);
        const uint64_t said = leat_joint_solve(&box, applications, count, memory, answers);
        free(memory);

        const struct worth worth = check_answers(&box, applications, count, answers);
        for (uint32_t a = 0; a < count; a++) {
            whole += answers[a].share == LEAT_JOINT_SHARES;
            partial += answers[a].share > 0 && answers[a].share < LEAT_JOINT_SHARES;
            none += answers[a].share == 0;
        }
        EXPECT(worth.shed == search.best_shed && worth.price == search.best_price &&
               said == worth.price);
    }
    (void)printf("%u applications carried, %u in part, %u not\n", whole, partial, none);
    EXPECT(whole > LEAT_TEST_ROUNDS(100) && partial > LEAT_TEST_ROUNDS(100) && none > LEAT_TEST_ROUNDS(50));
}

/* The objective itself is in time, one nanosecond less is not. */
static void
test_the_objective_itself(void)
{
    const uint64_t table[1] = {1000};
    const struct leat_joint_box box = {.class_count = 1, .classes = {{1, 1}}};
    struct leat_joint_application application = {
        .stages = {{.latency_ns = {table}, .cores_max = 1, .batch_max = 1, .cores_min = 1, .instances_min = 1, .instances_max = 1, .calls = 1}},
        .terms = {0},
        .stage_count = 1,
        .term_count = 1,
        .demand_qps = 1e6,
        .objective_ns = 2000,
        .weight = 1};
    struct leat_joint_answer answer;
    void *memory = aligned_alloc(64, leat_joint_bytes(&box, 1));

    EXPECT(memory != NULL);
    EXPECT(leat_joint_solve(&box, &application, 1, memory, &answer) == 1 && answer.share == LEAT_JOINT_SHARES);
    EXPECT(answer.latency_ns == 2000);
    application.objective_ns = 1999;
    EXPECT(leat_joint_solve(&box, &application, 1, memory, &answer) == 0 && answer.share == 0);
    application.objective_ns = 2000;
    application.demand_qps = 1.0625e6; /* one sixteenth and a little is too much */
    EXPECT(leat_joint_solve(&box, &application, 1, memory, &answer) == 1 && answer.share == LEAT_JOINT_SHARES - 1);
    free(memory);
}

static void
test_demand(void)
{
    EXPECT(leat_joint_demand(100, 1000000000, 0) == 100);
    EXPECT(fabs(leat_joint_demand(100, 1000000000, 3) - 130) < 1e-9);
    EXPECT(fabs(leat_joint_demand(100, 250000000, 3) - 160) < 1e-9); /* shorter windows vary more */
}

/* ---- Larger machines -------------------------------------------------------------------------------- */

/* All cells of a machine, and of each what all the others may be. */
struct plain {
    const struct leat_joint_box *box;
    uint32_t stride[LEAT_JOINT_CLASSES_MAX], cells;
    uint64_t *terms_ns[LEAT_JOINT_TERMS_MAX];
    uint32_t *left, *right; /* cells that are in time */
};

static bool
both_fit(const struct plain *plain, uint32_t a, uint32_t b)
{
    for (uint32_t k = 0; k < plain->box->class_count; k++) {
        const uint32_t cores = plain->box->classes[k].cores, width = cores + 1;
        if (a / plain->stride[k] % width + b / plain->stride[k] % width > cores) {
            return false;
        }
    }
    return true;
}

static uint64_t
plain_price(const struct plain *plain, uint32_t cell)
{
    uint64_t price = 0;
    for (uint32_t k = 0; k < plain->box->class_count; k++) {
        price += (uint64_t)(cell / plain->stride[k] % (plain->box->classes[k].cores + 1)) *
                 plain->box->classes[k].price;
    }
    return price;
}

static uint32_t
list_in_time(const struct plain *plain, const uint64_t *latency_ns, uint64_t objective_ns,
             uint32_t *list)
{
    uint32_t count = 0;
    for (uint32_t cell = 0; cell < plain->cells; cell++) {
        if (latency_ns[cell] <= objective_ns) {
            list[count++] = cell;
        }
    }
    return count;
}

static void
plain_stage(const struct plain *plain, const struct leat_joint_stage *stage, double demand_qps,
            uint64_t *ret_ns)
{
    const struct leat_joint_box *box = plain->box;

    memset(ret_ns, 0xff, plain->cells * sizeof(ret_ns[0]));
    for (uint32_t k = 0; k < box->class_count; k++) {
        for (uint32_t c = stage->cores_min; c <= stage->cores_max; c++) {
            for (uint32_t n = stage->instances_min;
                 n <= stage->instances_max && n * c <= box->classes[k].cores; n++) {
                for (uint32_t b = 1; b <= stage->batch_max; b++) {
                    const struct leat_joint_choice choice = {k, n, c, b};
                    uint64_t ns, *cell_ns = &ret_ns[n * c * plain->stride[k]];
                    if (carries(stage, &choice, demand_qps / stage->calls, &ns) && ns < *cell_ns) {
                        *cell_ns = ns;
                    }
                }
            }
        }
    }
}

static void
plain_join(const struct plain *plain, bool series, uint64_t objective_ns, const uint64_t *left_ns,
           const uint64_t *right_ns, uint64_t *ret_ns)
{
    const uint32_t left_count = list_in_time(plain, left_ns, objective_ns, plain->left);
    const uint32_t right_count = list_in_time(plain, right_ns, objective_ns, plain->right);

    memset(ret_ns, 0xff, plain->cells * sizeof(ret_ns[0]));
    for (uint32_t i = 0; i < left_count; i++) {
        for (uint32_t j = 0; j < right_count; j++) {
            const uint32_t l = plain->left[i], r = plain->right[j];
            const uint64_t ns = series                     ? left_ns[l] + right_ns[r]
                                : left_ns[l] > right_ns[r] ? left_ns[l]
                                                           : right_ns[r];
            if (both_fit(plain, l, r) && ns < ret_ns[l + r]) {
                ret_ns[l + r] = ns;
            }
        }
    }
}

/* The least latency of the whole, by cell. */
static const uint64_t *
plain_application(const struct plain *plain, const struct leat_joint_application *application,
                  uint32_t share)
{
    const double demand_qps = application->demand_qps * share / LEAT_JOINT_SHARES;
    uint32_t stack[LEAT_JOINT_TERMS_MAX], depth = 0;

    for (uint32_t t = 0; t < application->term_count; t++) {
        if (application->terms[t] >= 0) {
            const struct leat_joint_stage *stage = &application->stages[application->terms[t]];
            plain_stage(plain, stage, demand_qps * stage->calls, plain->terms_ns[t]);
        } else {
            const uint32_t right = stack[--depth], left = stack[--depth];
            plain_join(plain, application->terms[t] == LEAT_JOINT_SERIES, application->objective_ns,
                       plain->terms_ns[left], plain->terms_ns[right], plain->terms_ns[t]);
        }
        stack[depth++] = t;
    }
    return plain->terms_ns[stack[0]];
}

/* Puts an application beside those before it, with each share in each cell that is in time. */
static void
plain_add(const struct plain *plain, const struct leat_joint_application *application,
          const uint64_t *shed, uint64_t *ret_shed)
{
    for (uint32_t cell = 0; cell < plain->cells; cell++) {
        ret_shed[cell] =
            shed[cell] != UINT64_MAX ? shed[cell] + shed_of(application, 0) : UINT64_MAX;
    }
    for (uint32_t share = 1; share <= LEAT_JOINT_SHARES; share++) {
        const uint64_t *latency_ns = plain_application(plain, application, share);
        const uint32_t count =
            list_in_time(plain, latency_ns, application->objective_ns, plain->left);
        for (uint32_t from = 0; from < plain->cells; from++) {
            if (shed[from] == UINT64_MAX) {
                continue;
            }
            const uint64_t sum = shed[from] + shed_of(application, share);
            for (uint32_t i = 0; i < count && from + plain->left[i] < plain->cells; i++) {
                const uint32_t to = from + plain->left[i];
                if (sum < ret_shed[to] && both_fit(plain, from, plain->left[i])) {
                    ret_shed[to] = sum;
                }
            }
        }
    }
}

static struct worth
plain_solve(const struct leat_joint_box *box, const struct leat_joint_application *applications,
            uint32_t count)
{
    struct plain plain = {.box = box, .cells = 1};
    struct worth best = {UINT64_MAX, UINT64_MAX};

    for (uint32_t k = 0; k < box->class_count; k++) {
        plain.stride[k] = plain.cells;
        plain.cells *= box->classes[k].cores + 1;
    }
    uint64_t *shed = malloc(plain.cells * sizeof(shed[0])),
             *more = malloc(plain.cells * sizeof(more[0]));
    plain.left = malloc(plain.cells * sizeof(plain.left[0]));
    plain.right = malloc(plain.cells * sizeof(plain.right[0]));
    EXPECT(shed != NULL && more != NULL && plain.left != NULL && plain.right != NULL);
    for (uint32_t t = 0; t < LEAT_JOINT_TERMS_MAX; t++) {
        plain.terms_ns[t] = malloc(plain.cells * sizeof(plain.terms_ns[t][0]));
        EXPECT(plain.terms_ns[t] != NULL);
    }
    memset(shed, 0xff, plain.cells * sizeof(shed[0]));
    shed[0] = 0;
    for (uint32_t a = 0; a < count; a++) {
        plain_add(&plain, &applications[a], shed, more);
        memcpy(shed, more, plain.cells * sizeof(shed[0]));
    }
    for (uint32_t cell = 0; cell < plain.cells; cell++) {
        const uint64_t price = plain_price(&plain, cell);
        if (shed[cell] < best.shed || (shed[cell] == best.shed && price < best.price)) {
            best = (struct worth){shed[cell], price};
        }
    }
    for (uint32_t t = 0; t < LEAT_JOINT_TERMS_MAX; t++) {
        free(plain.terms_ns[t]);
    }
    free(shed);
    free(more);
    free(plain.left);
    free(plain.right);
    return best;
}

static struct worth
joint_solve(const struct leat_joint_box *box, const struct leat_joint_application *applications,
            uint32_t count)
{
    struct leat_joint_answer answers[LARGE_APPLICATIONS_MAX];
    struct leat_joint_box larger = *box; /* its memory suffices */
    larger.classes[0].cores += 3 * below(50);
    void *memory = aligned_alloc(64, leat_joint_bytes(&larger, count));

    EXPECT(memory != NULL);
    const uint64_t said = leat_joint_solve(box, applications, count, memory, answers);
    free(memory);
    const struct worth worth = check_answers(box, applications, count, answers);
    EXPECT(said == worth.price);
    return worth;
}

/* Latencies that grow with batches and shrink with cores, as those of models do. */
static void
draw_large(const struct leat_joint_box *box, uint32_t a, uint32_t stage_count,
           struct leat_joint_application *application)
{
    *application = (struct leat_joint_application){.stage_count = stage_count,
                                                   .demand_qps = 1 + below(2000) / 20.0,
                                                   .objective_ns = 1000000ull * stage_count *
                                                                   (100 + below(500)),
                                                   .weight = 1 + below(3),
                                                   .starved_qps = below(3) == 0 ? below(2000) : 0};
    for (uint32_t s = 0; s < stage_count; s++) {
        const double parallel = 0.5 + below(50) / 100.0, one_ns = 1e6 * (10 + below(100)),
                     batch = 0.2 + below(80) / 100.0;
        struct leat_joint_stage *stage = &application->stages[s];
        *stage = (struct leat_joint_stage){.cores_max = LARGE_MAX,
                                           .batch_max = LARGE_MAX,
                                           .cores_min = 1,
                                           .instances_min = 1,
                                           .instances_max = UINT32_MAX,
                                           .calls = 1};
        for (uint32_t k = 0; k < box->class_count; k++) {
            const double slow = k == 0 ? 1 : 1 + below(200) / 100.0;
            for (uint32_t c = 1; c <= LARGE_MAX; c++) {
                for (uint32_t b = 1; b <= LARGE_MAX; b++) {
                    large[a][s][k][(c - 1) * LARGE_MAX + b - 1] =
                        (uint64_t)(slow * one_ns * (1 - parallel + parallel / c) *
                                   (1 - batch + batch * b));
                }
            }
            stage->latency_ns[k] = large[a][s][k];
        }
        application->terms[application->term_count++] = (int8_t)s;
        if (s > 0) {
            application->terms[application->term_count++] =
                below(4) > 0 ? LEAT_JOINT_SERIES : LEAT_JOINT_PARALLEL;
        }
    }
}

static double
demand_of(const struct leat_joint_application *applications, uint32_t count)
{
    double all = 0;
    for (uint32_t a = 0; a < count; a++) {
        all += (double)shed_of(&applications[a], 0);
    }
    return all;
}

/* One class of cores: exact, whether it is enough for all or not. */
static void
test_one_class(void)
{
    static struct leat_joint_application applications[LARGE_APPLICATIONS_MAX];
    uint32_t whole = 0, scarce = 0;

    for (uint32_t round = 0; round < 60; round++) {
        const uint32_t count = 1 + below(LARGE_APPLICATIONS_MAX);
        const struct leat_joint_box box = {.class_count = 1,
                                           .classes = {{10 + below(80), 1 + below(3)}}};
        for (uint32_t a = 0; a < count; a++) {
            draw_large(&box, a, 1 + below(3), &applications[a]);
            applications[a].demand_qps *= round % 2 == 0 ? 1 : 4;
        }
        const struct worth plain = plain_solve(&box, applications, count),
                           joint = joint_solve(&box, applications, count);
        EXPECT(plain.shed == joint.shed && plain.price == joint.price);
        whole += plain.shed == 0;
        scarce += plain.shed > 0;
    }
    (void)printf("one class: %u times enough, %u times not\n", whole, scarce);
    EXPECT(whole > 5 && scarce > 15);
}

/* How much more than the least is shed, of all that comes: the mean, and the most. */
static void
measure_gap(const char *what, uint32_t rounds, struct leat_joint_box box, uint32_t count,
            uint32_t stage_count, double load, double mean_max, double most_max)
{
    static struct leat_joint_application applications[LARGE_APPLICATIONS_MAX];
    double sum = 0, most = 0;
    uint32_t scarce = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        for (uint32_t k = 0; k < box.class_count; k++) {
            box.classes[k].price = 1 + below(4);
        }
        for (uint32_t a = 0; a < count; a++) {
            draw_large(&box, a, stage_count, &applications[a]);
            applications[a].demand_qps *= load;
            applications[a].starved_qps = 0;
        }
        const struct worth plain = plain_solve(&box, applications, count),
                           joint = joint_solve(&box, applications, count);
        scarce += plain.shed > 0;
        EXPECT(joint.shed > plain.shed || (joint.shed == plain.shed && joint.price >= plain.price));
        const double gap = (double)(joint.shed - plain.shed) / demand_of(applications, count);
        sum += gap;
        most = fmax(most, gap);
    }
    (void)printf("%s: %.2f %% of all demand more shed than the least, %.2f %% at most\n", what,
                 100 * sum / rounds, 100 * most);
    EXPECT(2 * scarce > rounds && sum / rounds <= mean_max && most <= most_max);
}

/* How many more of the applications than need be are left with nothing where that is worse than all else: the mean. */
static void
measure_starved(const char *what, uint32_t rounds, struct leat_joint_box box, uint32_t count, uint32_t stage_count, double load,
                double mean_max)
{
    static struct leat_joint_application applications[LARGE_APPLICATIONS_MAX];
    uint32_t least = 0, seen = 0;

    for (uint32_t round = 0; round < rounds; round++) {
        double all_qps = 0;
        for (uint32_t a = 0; a < count; a++) {
            draw_large(&box, a, stage_count, &applications[a]);
            applications[a].demand_qps *= a == 0 ? 10 * load : load;
            applications[a].starved_qps = 0;
            all_qps += applications[a].weight * applications[a].demand_qps;
        }
        for (uint32_t a = 0; a < count; a++) {
            applications[a].starved_qps = 1 + all_qps;
        }
        const uint64_t one = shed_of(&applications[0], 0) - shed_of(&applications[0], 1);
        least += (uint32_t)(plain_solve(&box, applications, count).shed / one);
        seen += (uint32_t)(joint_solve(&box, applications, count).shed / one);
    }
    (void)printf("%s: %.2f of %u with nothing, of which %.2f need be\n", what, (double)seen / rounds, count, (double)least / rounds);
    EXPECT(seen >= least && seen - least <= mean_max * rounds);
}

/*
 * Where all is carried with fewer cores than the smallest class has, even of the cheapest, the price is the least: to the last
 * where prices are multiples of a thousand, and else to one and a 256th for each stage.
 */
static void
test_prices(struct leat_joint_box box)
{
    static struct leat_joint_application applications[LARGE_APPLICATIONS_MAX];
    uint32_t judged = 0, cores_min = UINT32_MAX;

    for (uint32_t k = 0; k < box.class_count; k++) {
        cores_min = box.classes[k].cores < cores_min ? box.classes[k].cores : cores_min;
    }
    for (uint32_t round = 0; round < 40; round++) {
        const bool even = round % 2 == 0;
        const uint32_t count = 1 + below(2), stage_count = 1 + below(2);
        uint32_t price_min = UINT32_MAX;
        for (uint32_t k = 0; k < box.class_count; k++) {
            box.classes[k].price = even ? 1000 * (1 + below(4)) : 1000 + below(3000);
            price_min = box.classes[k].price < price_min ? box.classes[k].price : price_min;
        }
        for (uint32_t a = 0; a < count; a++) {
            draw_large(&box, a, stage_count, &applications[a]);
            applications[a].demand_qps /= 10;
        }
        const struct worth plain = plain_solve(&box, applications, count),
                           joint = joint_solve(&box, applications, count);
        if (plain.shed > 0 || plain.price > (uint64_t)price_min * cores_min) {
            continue;
        }
        judged++;
        EXPECT(joint.shed == 0 && joint.price >= plain.price);
        EXPECT(joint.price - plain.price <=
               (even ? 0 : (uint64_t)stage_count * (joint.price / 256 + count)));
    }
    (void)printf("%u classes: %u least prices\n", box.class_count, judged);
    EXPECT(judged >= 5);
}

/* One core suffices, and four are faster: in 1/512 of the machine they cost the same. */
static void
test_few_of_many_cores(void)
{
    static const uint64_t latency_ns[4] = {4000000, 2000000, 1500000, 1000000};
    const struct leat_joint_box box = {2, {{1000, 1}, {1000, 1}}};
    struct leat_joint_application application = {
        .stages = {{.latency_ns = {latency_ns, latency_ns},
                    .cores_max = 4,
                    .batch_max = 1,
                    .cores_min = 1,
                    .instances_min = 1,
                    .instances_max = UINT32_MAX,
                    .calls = 1}},
        .terms = {0},
        .stage_count = 1,
        .term_count = 1,
        .demand_qps = 100,
        .objective_ns = 8000000,
        .weight = 1};
    struct leat_joint_answer answer;
    void *memory = aligned_alloc(64, leat_joint_bytes(&box, 1));

    EXPECT(memory != NULL);
    EXPECT(leat_joint_solve(&box, &application, 1, memory, &answer) == 1);
    EXPECT(check_answers(&box, &application, 1, &answer).shed == 0);
    free(memory);
}

/* One stage of a core and an item: so many cores carry it all, and 15 sixteenths of them as much of it. */
static void
set_steps(struct leat_joint_application *application, const uint64_t *latency_ns, uint32_t cores)
{
    *application = (struct leat_joint_application){.stages = {{.latency_ns = {latency_ns},
                                                               .cores_max = 1,
                                                               .batch_max = 1,
                                                               .cores_min = 1,
                                                               .instances_min = 1,
                                                               .instances_max = UINT32_MAX,
                                                               .calls = 1}},
                                                   .terms = {0},
                                                   .stage_count = 1,
                                                   .term_count = 1,
                                                   .demand_qps = cores * 1e9 / (double)latency_ns[0],
                                                   .objective_ns = 2 * latency_ns[0],
                                                   .weight = 1};
}

/*
 * As many offers as there can be: at all prices 15 sixteenths are found by halves, and then all that is less in turn. The
 * applications after the first one show whether they keep what is theirs. Only one can carry so much: the heavy one,
 * wherever it comes, also where cells are of four cores and what they leave makes the difference, as with four classes.
 */
static void
test_most_offers(void)
{
    static const uint64_t latency_ns[1] = {1000000};

    for (uint32_t classes = 2; classes <= LEAT_JOINT_CLASSES_MAX; classes++) {
        const struct leat_joint_box box = {classes, {{31, 1}, {64, 1}, {8, 1}, {8, 1}}};
        struct leat_joint_application applications[3];

        for (uint32_t heavy = 0; heavy < 3; heavy++) {
            for (uint32_t a = 0; a < 3; a++) {
                set_steps(&applications[a], latency_ns, 32);
                applications[a].weight = a == heavy ? 100 : 1;
            }
            const struct worth joint = joint_solve(&box, applications, 3);
            EXPECT(joint.price == 30 && joint.shed == 32 * UINT64_C(1000000) * (100 + 16 + 16));
        }
    }
}

/* ---- DAGs ---------------------------------------------------------------------------------------------- */

/* Each stage once, never less than the longest way, and that way itself for chains and rows. */
static void
test_follow(void)
{
    for (uint32_t round = 0; round < LEAT_TEST_ROUNDS(20000); round++) {
        const uint32_t count = 1 + below(LEAT_SCALE_STAGES_MAX), kind = below(3); /* a chain, a row, whatever comes */
        struct leat_joint_application application = {0};
        uint32_t after[LEAT_SCALE_STAGES_MAX] = {0}, seen = 0;
        uint64_t stages_ns[LEAT_SCALE_STAGES_MAX], ends_ns[LEAT_SCALE_STAGES_MAX], longest_ns = 0;

        for (uint32_t s = 0; s < count; s++) {
            after[s] = kind == 0 ? (s > 0 ? 1u << (s - 1) : 0) : kind == 1 ? 0 : below(1u << s);
            stages_ns[s] = 1 + below(1000);
            ends_ns[s] = stages_ns[s];
            for (uint32_t before = 0; before < s; before++) {
                const uint64_t end_ns = (after[s] >> before & 1) != 0 ? ends_ns[before] + stages_ns[s] : 0;
                ends_ns[s] = end_ns > ends_ns[s] ? end_ns : ends_ns[s];
            }
            longest_ns = ends_ns[s] > longest_ns ? ends_ns[s] : longest_ns;
        }
        leat_joint_follow(&application, after, count);
        EXPECT(application.stage_count == count && application.term_count == 2 * count - 1);
        for (uint32_t t = 0; t < application.term_count; t++) {
            if (application.terms[t] >= 0) {
                EXPECT((seen >> application.terms[t] & 1) == 0);
                seen |= 1u << application.terms[t];
            }
        }
        EXPECT(seen == (1u << count) - 1);
        const uint64_t latency_ns = latency_of(&application, stages_ns);
        EXPECT(kind == 2 ? latency_ns >= longest_ns : latency_ns == longest_ns);
    }
}

int
main(void)
{
    leat_test_init();
    random_state = leat_test_seed;
    test_against_all_choices();
    test_one_class();
    measure_gap("two classes, of 30 and 20 cores", 12,
                (struct leat_joint_box){2, {{30, 1}, {20, 1}}}, 6, 3, 3, 0.06, 0.2);
    measure_gap("three classes, of 14, 12 and 11 cores", 4,
                (struct leat_joint_box){3, {{14, 1}, {12, 1}, {11, 1}}}, 4, 2, 4, 0.15, 0.3);
    measure_gap("four classes, of 7, 6, 6 and 5 cores", 4,
                (struct leat_joint_box){4, {{7, 1}, {6, 1}, {6, 1}, {5, 1}}}, 4, 2, 4, 0.15, 0.3);
    measure_gap("16 applications of eight stages, 255 cores", 2,
                (struct leat_joint_box){1, {{255, 1}}}, 16, 8, 3, 0.03, 0.06);
    measure_starved("one class", 12, (struct leat_joint_box){1, {{20, 1}}}, 6, 2, 1, 0);
    measure_starved("two classes", 12, (struct leat_joint_box){2, {{20, 1}, {15, 1}}}, 6, 2, 1, 0.25);
    measure_starved("three classes", 8, (struct leat_joint_box){3, {{10, 1}, {8, 1}, {7, 1}}}, 4, 2, 1, 0.5);
    measure_starved("four classes", 8, (struct leat_joint_box){4, {{6, 1}, {5, 1}, {5, 1}, {4, 1}}}, 4, 2, 1, 0.75);
    test_few_of_many_cores();
    test_prices((struct leat_joint_box){2, {{50, 1}, {45, 1}}});
    test_prices((struct leat_joint_box){3, {{14, 1}, {12, 1}, {11, 1}}});
    test_prices((struct leat_joint_box){4, {{7, 1}, {6, 1}, {6, 1}, {5, 1}}});
    test_most_offers();
    test_the_objective_itself();
    test_demand();
    test_follow();
    return 0;
}

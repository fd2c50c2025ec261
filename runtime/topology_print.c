/* SPDX-License-Identifier: Apache-2.0 */
/* runtime/topology_print.c - topology and placement for people and for programs. */
#include "runtime/topology.h"

#include <jansson.h>
#include <stdlib.h>

static void
print_notes(const struct leat_notes *notes, FILE *out)
{
    for (uint32_t i = 0; i < notes->count; i++) {
        (void)fprintf(out, "  %-18s %s\n", notes->items[i].name, notes->items[i].text);
    }
}

/* One line per L3: "  package 0  node 0  L3 0  CPUs 0-3,8". */
static void
print_caches(const struct leat_topology *topology, FILE *out)
{
    for (uint32_t i = 0; i < topology->cpu_count;) {
        const struct leat_topology_cpu *first = &topology->cpus[i];
        uint32_t numbers[LEAT_CPU_MAX], count = 0;
        char text[256];
        while (i < topology->cpu_count && topology->cpus[i].l3 == first->l3 &&
               topology->cpus[i].node == first->node &&
               topology->cpus[i].package == first->package) {
            numbers[count++] = topology->cpus[i++].cpu;
        }
        (void)fprintf(out, "  package %u  node %u  L3 %u  CPUs %s\n", first->package, first->node,
                      first->l3, leat_cpu_list_text(numbers, count, text, sizeof(text)));
    }
}

static void
print_placement(const struct leat_placement *placement, FILE *out)
{
    char text[256];

    if (placement->dispatcher_cpu == LEAT_ANYWHERE) {
        (void)fprintf(out, "dispatcher  no core of its own\n");
    } else {
        (void)fprintf(out, "dispatcher  CPU %u%s\n", placement->dispatcher_cpu,
                      placement->may_spin ? ", spins before it sleeps" : ", never spins");
    }
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        const struct leat_worker_place *worker = &placement->workers[w];
        (void)fprintf(out, "worker %-4u CPUs %s  node %u  class %s%s\n", w,
                      leat_cpu_list_text(worker->cpus, worker->cpu_count, text, sizeof(text)),
                      worker->node, placement->classes[worker->worker_class].name,
                      worker->shared ? "  (shared)" : "");
    }
    (void)fprintf(out, "clients     %s%s\n", placement->client_cpu_count > 0 ? "CPUs " : "",
                  placement->client_cpu_count > 0
                      ? leat_cpu_list_text(placement->client_cpus, placement->client_cpu_count, text,
                                           sizeof(text))
                      : "share leat's CPUs");
}

void
leat_topology_print(const struct leat_topology *topology, const struct leat_placement *placement,
                    FILE *out)
{
    (void)fprintf(out, "machine     %u CPUs, %u cores, %u NUMA %s, %u %s\n", topology->cpu_count,
                  topology->core_count, topology->node_count,
                  topology->node_count == 1 ? "node" : "nodes", topology->package_count,
                  topology->package_count == 1 ? "package" : "packages");
    print_caches(topology, out);
    (void)fprintf(out, "usable      %u of %u CPUs\n", topology->usable_cpus, topology->cpu_count);
    print_notes(&topology->notes, out);
    if (placement != NULL) {
        print_placement(placement, out);
        print_notes(&placement->notes, out);
    }
}

static json_t *
notes_json(const struct leat_notes *topology, const struct leat_notes *placement)
{
    json_t *array = json_array();
    const struct leat_notes *both[2] = {topology, placement};

    for (int b = 0; b < 2; b++) {
        for (uint32_t i = 0; both[b] != NULL && i < both[b]->count; i++) {
            (void)json_array_append_new(array,
                                        json_pack("{s:s, s:s}", "name", both[b]->items[i].name,
                                                  "text", both[b]->items[i].text));
        }
    }
    return array;
}

static json_t *
numbers_json(const uint32_t *numbers, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++) {
        (void)json_array_append_new(array, json_integer(numbers[i]));
    }
    return array;
}

static json_t *
cpus_json(const struct leat_topology *topology)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < topology->cpu_count; i++) {
        const struct leat_topology_cpu *cpu = &topology->cpus[i];
        (void)json_array_append_new(
            array, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "cpu", (json_int_t)cpu->cpu,
                             "package", (json_int_t)cpu->package, "node", (json_int_t)cpu->node, "l3",
                             (json_int_t)cpu->l3, "core", (json_int_t)cpu->core, "thread",
                             (json_int_t)cpu->thread, "allowed", (int)cpu->allowed));
    }
    return array;
}

static json_t *
placement_json(const struct leat_placement *placement)
{
    json_t *workers = json_array();
    for (uint32_t w = 0; w < placement->worker_count; w++) {
        const struct leat_worker_place *worker = &placement->workers[w];
        const struct leat_worker_class *class = &placement->classes[worker->worker_class];
        (void)json_array_append_new(
            workers, json_pack("{s:I, s:o, s:I, s:s, s:b}", "worker", (json_int_t)w, "cpus",
                               numbers_json(worker->cpus, worker->cpu_count), "node",
                               (json_int_t)worker->node, "class", class->name, "shared",
                               (int)worker->shared));
    }
    return json_pack("{s:o, s:o, s:o, s:I, s:b}", "dispatcher_cpu",
                     placement->dispatcher_cpu == LEAT_ANYWHERE ? json_null() : json_integer(placement->dispatcher_cpu),
                     "workers", workers, "client_cpus",
                     numbers_json(placement->client_cpus, placement->client_cpu_count), "worker_cores",
                     (json_int_t)placement->worker_cores, "may_spin", (int)placement->may_spin);
}

static json_t *
text_json(const struct leat_topology *topology, const struct leat_placement *placement)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);

    if (out == NULL) {
        return NULL;
    }
    leat_topology_print(topology, placement, out);
    json_t *string = fclose(out) == 0 ? json_stringn(text, bytes) : NULL;
    free(text);
    return string;
}

json_t *
leat_topology_json(const struct leat_topology *topology, const struct leat_placement *placement)
{
    json_t *object = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o}", "packages",
        (json_int_t)topology->package_count, "numa_nodes", (json_int_t)topology->node_count,
        "l3_caches", (json_int_t)topology->l3_count, "cores", (json_int_t)topology->core_count,
        "allowed_cpus", (json_int_t)topology->allowed_cpus, "allowed_cores",
        (json_int_t)topology->allowed_cores, "cpu_quota_milli", (json_int_t)topology->quota_milli,
        "usable_cpus", (json_int_t)topology->usable_cpus, "cpus", cpus_json(topology), "notes",
        notes_json(&topology->notes, placement == NULL ? NULL : &placement->notes), "text",
        text_json(topology, placement));

    if (object != NULL && placement != NULL) {
        (void)json_object_set_new(object, "placement", placement_json(placement));
    }
    return object;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* LEMON's network simplex as a peer of bench/lap.c: rows send one unit each to columns that take one each. */
#include <chrono>
#include <cstdint>
#include <vector>

#include <lemon/network_simplex.h>
#include <lemon/smart_graph.h>

/* Solves `count` matrices [rows][columns] `times` times; the graph is made once, costs are set each time. */
extern "C" double
bench_lemon_run(const double *matrices, uint32_t rows, uint32_t columns, uint32_t count, uint32_t times, double *ret_total)
{
    using Graph = lemon::SmartDigraph;
    using Simplex = lemon::NetworkSimplex<Graph, int, int64_t>;
    Graph graph;
    graph.reserveNode(static_cast<int>(rows + columns));
    graph.reserveArc(static_cast<int>(rows * columns));
    std::vector<Graph::Node> nodes;
    for (uint32_t n = 0; n < rows + columns; n++) {
        nodes.push_back(graph.addNode());
    }
    for (uint32_t i = 0; i < rows; i++) {
        for (uint32_t j = 0; j < columns; j++) {
            graph.addArc(nodes[i], nodes[rows + j]);
        }
    }
    Graph::ArcMap<int64_t> cost(graph);
    Graph::NodeMap<int> supply(graph);
    for (uint32_t n = 0; n < rows + columns; n++) {
        supply[nodes[n]] = n < rows ? 1 : -1;
    }
    Simplex simplex(graph);
    simplex.supplyMap(supply).supplyType(rows > columns ? Simplex::LEQ : Simplex::GEQ);

    const size_t entries = static_cast<size_t>(rows) * columns;
    const auto begin = std::chrono::steady_clock::now();
    for (uint32_t t = 0; t < times; t++) {
        *ret_total = 0;
        for (uint32_t n = 0; n < count; n++) {
            for (size_t e = 0; e < entries; e++) { /* arcs are numbered as they were added */
                cost[Graph::arcFromId(static_cast<int>(e))] = static_cast<int64_t>(matrices[n * entries + e]);
            }
            simplex.costMap(cost).run();
            *ret_total += static_cast<double>(simplex.totalCost<int64_t>());
        }
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
    return took.count() / (static_cast<double>(times) * count);
}

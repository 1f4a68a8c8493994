// The simulation, and all ways to place a graph.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "rubato/base/random.h"
#include "rubato/graph/learned_placement.h"
#include "rubato/graph/rules.h"
#include "rubato/graph/samples.h"

namespace rubato::graph {
namespace {

Machine machine_of(const char* devices, double bytes_s = 1, double latency_s = 0) {
  return {parse_devices(devices).value(), bytes_s, latency_s};
}

Problem problem_of(const std::string& text, const Machine& machine) {
  const auto graph = parse_graph(text, "graph");
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return Problem::make(*graph, machine).value();
}

Trials trials_of(const Problem& problem, Method method, int samples) {
  TrialOptions options;
  options.method = method;
  options.samples = samples;
  return try_placements(problem, options);
}

// a -> b, a second each, the transfer takes 10 seconds: one device. Without the edge: two.
TEST(Placements, WorkedExamples) {
  const char* chain = R"({"name": "chain", "operators": [
    {"name": "a", "seconds": 1, "bytes": 10}, {"name": "b", "seconds": 1, "inputs": ["a"]}]})";
  const char* apart = R"({"name": "apart", "operators": [
    {"name": "a", "seconds": 1}, {"name": "b", "seconds": 1}]})";
  for (const auto& [text, seconds] : {std::pair(chain, 2.0), std::pair(apart, 1.0)}) {
    const Problem problem = problem_of(text, machine_of("gpu=2"));
    EXPECT_EQ(problem.step_seconds(heft(problem).placement), seconds);
    EXPECT_EQ(problem.step_seconds(brute_force(problem)), seconds);
    EXPECT_EQ(problem.step_seconds(single_device(problem)), 2);
    EXPECT_EQ(trials_of(problem, Method::ppo, 100).best_seconds, seconds);
    EXPECT_EQ(trials_of(problem, Method::reinforce, 100).best_seconds, seconds);
  }
  const Problem problem = problem_of(chain, machine_of("gpu=2"));
  EXPECT_EQ(problem.step_seconds({0, 1}), 12);
}

TEST(Placements, ADeviceSendsOneTensorAfterTheOtherAndEachOnce) {
  const char* fan = R"({"name": "fan", "operators": [
    {"name": "a", "seconds": 1, "bytes": 3},
    {"name": "b", "seconds": 2, "inputs": ["a"]},
    {"name": "c", "seconds": 1, "inputs": ["a"]},
    {"name": "d", "seconds": 1, "inputs": ["a"]}]})";
  const Problem problem = problem_of(fan, machine_of("gpu=3", 1, 0.5));
  // a is sent to device 1 for b and c from 1 to 4.5, and to device 2 for d from 4.5 to 8.
  const Schedule schedule = problem.schedule({0, 1, 1, 2});
  ASSERT_EQ(schedule.transfers.size(), 2U);
  EXPECT_EQ(schedule.start, (std::vector<double>{0, 4.5, 6.5, 8}));
  EXPECT_EQ(schedule.seconds, 9);
}

TEST(Placements, MemoryAndMissingTypesMakeAPlacementInfeasible) {
  const char* text = R"({"name": "big", "operators": [
    {"name": "a", "seconds": 1, "memory": 6}, {"name": "b", "seconds": 1, "memory": 6},
    {"name": "c", "seconds": {"cpu": 1}, "memory": 1}]})";
  const Problem problem = problem_of(text, machine_of("gpu=2:8,cpu=1"));
  EXPECT_EQ(problem.step_seconds({0, 0, 2}), Problem::kNever);
  EXPECT_EQ(problem.step_seconds({0, 1, 1}), Problem::kNever);
  EXPECT_EQ(problem.step_seconds({0, 1, 2}), 1);
  EXPECT_EQ(problem.step_seconds(heft(problem).placement), 1);
  EXPECT_EQ(problem.step_seconds(min_cut(problem)), 1);
  EXPECT_EQ(trials_of(problem, Method::ppo, 200).best_seconds, 1);
  EXPECT_EQ(Problem::make(parse_graph(text, "graph").value(), machine_of("gpu=2")).error().message,
            "the operator \"c\" runs on none of the devices");
}

// The example of the HEFT paper: ten tasks on three processors, 80 units long.
TEST(Placements, HeftPlansTheExampleOfItsPaper) {
  const int seconds[10][3] = {{14, 16, 9}, {13, 19, 18}, {11, 13, 19}, {13, 8, 17},  {12, 13, 10},
                              {13, 16, 9}, {7, 15, 11},  {5, 11, 14},  {18, 12, 20}, {21, 7, 16}};
  const int edges[15][3] = {{1, 2, 18}, {1, 3, 12}, {1, 4, 9},   {1, 5, 11},  {1, 6, 14},
                            {2, 8, 19}, {2, 9, 16}, {3, 7, 23},  {4, 8, 27},  {4, 9, 23},
                            {5, 9, 13}, {6, 8, 15}, {7, 10, 17}, {8, 10, 11}, {9, 10, 13}};
  Graph graph{"paper", {}, {}};
  for (std::size_t i = 0; i < 10; ++i) {
    Operator op;
    op.name = std::to_string(i + 1);
    for (std::size_t d = 0; d < 3; ++d) op.seconds["p" + std::to_string(d)] = seconds[i][d];
    op.group = i;
    graph.groups.push_back(op.name);
    graph.operators.push_back(op);
  }
  for (const auto& [from, to, bytes] : edges)
    graph.operators[static_cast<std::size_t>(to - 1)].inputs.push_back(
        {static_cast<std::size_t>(from - 1), static_cast<double>(bytes)});
  const auto problem = Problem::make(graph, machine_of("p0=1,p1=1,p2=1"));
  const double ranks[10] = {108, 77, 80, 80, 69, 63.333, 42.667, 35.667, 44.333, 14.667};
  for (std::size_t i = 0; i < 10; ++i) EXPECT_NEAR(problem->rank(i), ranks[i], 0.001) << i + 1;
  EXPECT_EQ(heft(*problem).seconds, 80);
}

TEST(Placements, MinCutFindsTheBridgeBetweenTwoClusters) {
  // Two rings of four that send 10 bytes around, and one byte between them.
  std::string text = R"({"name": "rings", "operators": [)";
  for (int i = 0; i < 8; ++i) {
    const bool first = i % 4 == 0;
    text += std::string(i == 0 ? "" : ",") + R"({"name": "n)" + std::to_string(i) +
            R"(", "seconds": 1, "bytes": 10, "inputs": [)";
    if (!first) text += "\"n" + std::to_string(i - 1) + "\"";
    if (i == 4) text += R"({"name": "n0", "bytes": 1})";
    text += "]}";
  }
  const Problem problem = problem_of(text + "]}", machine_of("gpu=2"));
  const Placement cut = min_cut(problem);
  EXPECT_EQ(cut[0], cut[3]);
  EXPECT_EQ(cut[4], cut[7]);
  EXPECT_NE(cut[0], cut[4]);
}

// A random graph with so many operators, some of them in groups.
Problem random_problem(std::uint64_t seed, std::size_t operators, const char* devices) {
  Random random(seed);
  Graph graph{"random", {}, {}};
  for (std::size_t i = 0; i < operators; ++i) {
    Operator op;
    op.name = std::to_string(i);
    op.seconds = {{"", random.uniform(0.1, 2)}};
    if (random.below(3) == 0) op.seconds["cpu"] = 5 * op.seconds[""];
    op.bytes = random.uniform(0, 2);
    op.memory = random.uniform(0, 1);
    for (std::size_t from = 0; from < i; ++from) {
      if (random.below(3) == 0) op.inputs.push_back({from, graph.operators[from].bytes});
    }
    op.group = graph.groups.empty() || random.below(4) > 0
                   ? graph.groups.size()
                   : static_cast<std::size_t>(random.below(graph.groups.size()));
    if (op.group == graph.groups.size()) graph.groups.push_back(op.name);
    graph.operators.push_back(op);
  }
  return Problem::make(graph, machine_of(devices, 1, 0.1)).value();
}

// What must hold of every schedule, derived again from the schedule alone.
void expect_sound(const Problem& problem, const Placement& placement) {
  const Schedule schedule = problem.schedule(placement);
  const auto& operators = problem.graph().operators;
  const auto device = [&](std::size_t op) { return placement[operators[op].group]; };
  for (std::size_t a = 0; a < operators.size(); ++a) {
    EXPECT_DOUBLE_EQ(schedule.end[a], schedule.start[a] + problem.seconds(a, device(a)));
    EXPECT_LE(schedule.end[a], schedule.seconds);
    for (const Input& input : operators[a].inputs) {
      double there = device(input.from) == device(a) ? schedule.end[input.from] : Problem::kNever;
      for (const Transfer& transfer : schedule.transfers) {
        if (transfer.from == input.from && transfer.to == device(a))
          there = std::min(there, transfer.end);
      }
      EXPECT_LE(there, schedule.start[a]);
    }
    for (std::size_t b = 0; b < a; ++b) {
      if (device(a) != device(b)) continue;
      EXPECT_TRUE(schedule.end[a] <= schedule.start[b] || schedule.end[b] <= schedule.start[a]);
    }
  }
  for (std::size_t a = 0; a < schedule.transfers.size(); ++a) {
    const Transfer& one = schedule.transfers[a];
    EXPECT_GE(one.start, schedule.end[one.from]);
    for (std::size_t b = 0; b < a; ++b) {
      const Transfer& other = schedule.transfers[b];
      if (device(one.from) != device(other.from)) continue;
      EXPECT_TRUE(one.end <= other.start || other.end <= one.start);
    }
  }
}

RC_GTEST_PROP(Placements, NoWayBeatsBruteForceAndAllSchedulesAreSound, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const bool typed = *rc::gen::arbitrary<bool>();
  const Problem problem = random_problem(seed, 7, typed ? "gpu=2:3,cpu=1:9" : "gpu=2:9");
  const double limit = problem.step_seconds(brute_force(problem));
  for (const Placement& placement :
       {single_device(problem), min_cut(problem), heft(problem).placement,
        trials_of(problem, Method::reinforce, 64).best, trials_of(problem, Method::ppo, 64).best}) {
    RC_ASSERT(problem.step_seconds(placement) >= limit);
    if (problem.feasible(placement)) expect_sound(problem, placement);
  }
}

TEST(Placements, PpoFindsTheBestPlacementOfSmallGraphs) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    const Problem problem = random_problem(seed, 8, "gpu=2");
    const double limit = problem.step_seconds(brute_force(problem));
    found += trials_of(problem, Method::ppo, 1000).best_seconds <= limit * (1 + 1e-9) ? 1 : 0;
  }
  EXPECT_GE(found, 9);
}

TEST(Placements, TheSameSeedGivesTheSamePlacements) {
  const Problem problem = random_problem(5, 30, "gpu=3");
  const Trials one = trials_of(problem, Method::ppo, 200),
               again = trials_of(problem, Method::ppo, 200);
  EXPECT_EQ(one.curve, again.curve);
  EXPECT_EQ(one.best, again.best);
  EXPECT_EQ(one.samples_until(one.curve.front()), 1U);
  EXPECT_EQ(one.samples_until(0), 0U);
}

// On the graphs that ship, on two devices. docs/graph.md has more.
TEST(Placements, PpoIsWithinTwoPercentOfHeftOnTheSamples) {
  for (const auto& sample : sample_graphs()) {
    const auto problem = Problem::make(sample.make(), machine_of("gpu=2", 12e9, 20e-6));
    const double rule = problem->step_seconds(heft(*problem).placement);
    EXPECT_LE(trials_of(*problem, Method::ppo, 1000).best_seconds, 1.02 * rule) << sample.name;
  }
}

}  // namespace
}  // namespace rubato::graph

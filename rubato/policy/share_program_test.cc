#include "rubato/policy/share_program.h"

#include <algorithm>
#include <cstdint>
#include <gtest/gtest.h>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/math/linear_program.h"

namespace rubato::policy {
namespace {

// Water filling by its definition, with a new program for every question: raise all jobs; then ask
// for each job whether it could be higher while no other falls; hold those that could not.
class PlainWaterFilling {
 public:
  PlainWaterFilling(const ShareProblem& problem, const std::vector<double>& scale)
      : problem_(problem), scale_(scale), value_(scale.size(), 0), held_(scale.size(), false) {}

  std::vector<double> values() {
    for (std::size_t g = 0; g < held_.size(); ++g) held_[g] = highest(g) <= 1e-9;
    while (std::find(held_.begin(), held_.end(), false) != held_.end()) {
      const double level = solve([&](std::size_t g) { return held_[g] ? 0.0 : 1.0; });
      for (std::size_t g = 0; g < value_.size(); ++g) {
        if (!held_[g]) value_[g] = level;
      }
      std::vector<bool> stuck = held_;
      for (std::size_t g = 0; g < value_.size(); ++g) {
        if (!held_[g]) stuck[g] = highest(g) <= level + 1e-7;
      }
      EXPECT_NE(stuck, held_);
      if (stuck == held_) break;
      held_ = std::move(stuck);
    }
    return value_;
  }

 private:
  // The value that this group could reach with all others at least at their present value.
  double highest(std::size_t group) {
    return solve([&](std::size_t g) { return g == group ? 1.0 : 0.0; });
  }

  // The largest z with value >= rise x z where rise is above 0, and >= the value so far elsewhere.
  template <class Rise>
  double solve(const Rise& rise) {
    LinearProgram program;
    std::vector<int> time, value, capacity;
    for (std::size_t g = 0; g < value_.size(); ++g) {
      time.push_back(program.add_row(-LinearProgram::kUnbounded, problem_.groups[g].jobs));
      const double least = rise(g) > 0 ? 0 : value_[g] * (1 - 1e-11);
      value.push_back(program.add_row(least, LinearProgram::kUnbounded));
    }
    for (const double gpus : problem_.capacity)
      capacity.push_back(program.add_row(-LinearProgram::kUnbounded, gpus));
    const auto worth = [&](std::size_t g, double rate) {
      return scale_[g] * rate / problem_.groups[g].jobs;
    };
    using Terms = std::vector<LinearProgram::Term>;
    for (std::size_t t = 0; t < capacity.size(); ++t) {
      for (std::size_t g = 0; g < value_.size(); ++g) {
        const auto& group = problem_.groups[g];
        if (!(group.rate[t] > 0)) continue;
        program.add_column(
            LinearProgram::kUnbounded, 0,
            Terms{{time[g], 1}, {value[g], worth(g, group.rate[t])}, {capacity[t], group.gpus}});
      }
      for (const auto& pair : problem_.pairs) {
        const std::size_t a = pair.first, b = pair.second;
        const double first = pair.first_rate[t], second = pair.second_rate[t];
        if (!(first > 0) || !(second > 0)) continue;
        Terms terms{{capacity[t], problem_.groups[a].gpus}};
        if (a == b) {
          terms.insert(terms.end(), {{time[a], 2}, {value[a], worth(a, first + second)}});
        } else {
          terms.insert(terms.end(), {{time[a], 1},
                                     {time[b], 1},
                                     {value[a], worth(a, first)},
                                     {value[b], worth(b, second)}});
        }
        program.add_column(LinearProgram::kUnbounded, 0, terms);
      }
    }
    Terms level;
    for (std::size_t g = 0; g < value_.size(); ++g) {
      if (rise(g) > 0) level.emplace_back(value[g], -rise(g));
    }
    const int z = program.add_column(LinearProgram::kUnbounded, 1, level);
    EXPECT_TRUE(program.maximise());
    return program.value(z);
  }

  const ShareProblem& problem_;
  const std::vector<double>& scale_;
  std::vector<double> value_;
  std::vector<bool> held_;
};

struct ProgramInstance {
  ShareProblem problem;
  std::vector<double> scale;
};

ProgramInstance draw_program(std::uint64_t seed) {
  Random random(seed);
  ProgramInstance instance;
  const std::size_t types = 1 + random.below(3);
  // From far too few GPUs to more than all jobs can use.
  for (std::size_t t = 0; t < types; ++t)
    instance.problem.capacity.push_back(static_cast<double>(random.below(9)));
  const std::size_t groups = 1 + random.below(8);
  for (std::size_t g = 0; g < groups; ++g) {
    ShareProblem::Group group;
    group.jobs = random.below(3) == 0 ? 1 + static_cast<int>(random.below(4)) : 1;
    group.gpus = 1 << random.below(3);
    // Few values, so that ties are common, or any.
    for (std::size_t t = 0; t < types; ++t) {
      group.rate.push_back(random.below(6) == 0   ? 0
                           : random.below(2) == 0 ? static_cast<double>(1 + random.below(3))
                                                  : random.log_uniform(0.3, 3));
    }
    instance.problem.groups.push_back(std::move(group));
    instance.scale.push_back(random.below(2) == 0 ? 1 : random.log_uniform(0.5, 2));
  }
  if (random.below(2) == 0) return instance;
  for (std::size_t a = 0; a < groups; ++a) {
    for (std::size_t b = a; b < groups; ++b) {
      const auto& first = instance.problem.groups[a];
      const auto& second = instance.problem.groups[b];
      if (first.gpus != second.gpus || (a == b && first.jobs < 2)) continue;
      ShareProblem::Pair pair{a, b, {}, {}};
      for (std::size_t t = 0; t < types; ++t) {
        pair.first_rate.push_back(first.rate[t] * random.uniform(0.3, 1));
        pair.second_rate.push_back(second.rate[t] * random.uniform(0.3, 1));
      }
      instance.problem.pairs.push_back(std::move(pair));
    }
  }
  return instance;
}

std::vector<double> values(const ShareProgram& program, const std::vector<double>& scale) {
  std::vector<double> values = program.throughputs();
  for (std::size_t g = 0; g < values.size(); ++g) values[g] *= scale[g];
  return values;
}

// The values are unique: a job that could have more without taking from another was not held.
TEST(ShareProgram, WaterFillingIsThatOfThePlainWay) {
  int levels = 0;
  for (std::uint64_t seed = 0; seed < tries(600) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const ProgramInstance instance = draw_program(seed);
    ShareProgram program(instance.problem);
    ASSERT_TRUE(program.water_fill(instance.scale));
    const auto expected = PlainWaterFilling(instance.problem, instance.scale).values();
    const auto found = values(program, instance.scale);
    for (std::size_t g = 0; g < found.size(); ++g)
      EXPECT_NEAR(found[g], expected[g], 1e-6 * std::max(1.0, expected[g])) << "group " << g;
    std::vector<double> distinct = expected;
    std::sort(distinct.begin(), distinct.end());
    for (std::size_t i = 1; i < distinct.size(); ++i)
      levels += distinct[i] > distinct[i - 1] + 1e-6 ? 1 : 0;
  }
  EXPECT_GT(levels, static_cast<int>(tries(500)));
}

// Any guess, too high or too low, and any basis give the same levels.
TEST(ShareProgram, AGuessChangesTheWayOnly) {
  for (std::uint64_t seed = 0; seed < tries(200) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const ProgramInstance instance = draw_program(seed + 20'000);
    ShareProgram plain(instance.problem);
    ASSERT_TRUE(plain.water_fill(instance.scale));
    const auto expected = values(plain, instance.scale);
    for (const double factor : {0.01, 0.9, 1.0, 1.1, 100.0}) {
      ShareProgram program(instance.problem);
      program.set_basis(plain.basis());
      program.set_guess(plain.first_level() * factor);
      ASSERT_TRUE(program.water_fill(instance.scale));
      const auto found = values(program, instance.scale);
      for (std::size_t g = 0; g < found.size(); ++g)
        EXPECT_NEAR(found[g], expected[g], 1e-6 * std::max(1.0, expected[g])) << factor;
    }
  }
}

// If one job could gain a billion times as much as another, its remaining gain is rounding.
TEST(ShareProgram, JobsOfAnySpeedComeToAnEnd) {
  for (const double fast : {1e6, 1e10, 1e14}) {
    ShareProblem problem;
    problem.capacity = {1};
    problem.groups = {{1, 1, {1}}, {1, 1, {1}}, {1, 1, {fast}}};
    ShareProgram program(problem);
    ASSERT_TRUE(program.water_fill({1, 1, 1}));
    const auto values = program.throughputs();
    EXPECT_NEAR(values[0], 0.5, 1e-3) << fast;
    EXPECT_NEAR(values[1], 0.5, 1e-3) << fast;
    const auto used = program.used();
    EXPECT_LE(used[0], 1 + 1e-6);
  }
}

// Some groups have gone, others are new or have changed.
TEST(ShareProgram, StartsWhereAnotherEnded) {
  for (std::uint64_t seed = 0; seed < tries(400) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const ProgramInstance before = draw_program(seed + 30'000);
    ProgramInstance now = draw_program(seed + 40'000);
    const std::size_t types = before.problem.capacity.size();
    now.problem.capacity = before.problem.capacity;
    for (auto& group : now.problem.groups) group.rate.resize(types, 1);
    for (auto& pair : now.problem.pairs) {
      pair.first_rate.resize(types, 0.6);
      pair.second_rate.resize(types, 0.6);
    }
    ShareProgram earlier(before.problem);
    ASSERT_TRUE(earlier.water_fill(before.scale));
    const auto ended = earlier.basis();
    ShareProgram::Basis start{std::vector<std::string>(now.problem.groups.size()),
                              std::vector<std::string>(now.problem.pairs.size()), ended.types};
    for (auto& piece : start.groups) {
      const auto known = random.below(2 * ended.groups.size());
      if (known >= ended.groups.size()) continue;
      piece = ended.groups[known];
      now.problem.groups[static_cast<std::size_t>(&piece - start.groups.data())] =
          before.problem.groups[known];
    }
    std::erase_if(now.problem.pairs, [&](const ShareProblem::Pair& pair) {
      const auto& first = now.problem.groups[pair.first];
      const auto& second = now.problem.groups[pair.second];
      return first.gpus != second.gpus || (pair.first == pair.second && first.jobs < 2);
    });
    start.pairs.resize(now.problem.pairs.size());
    for (auto& piece : start.pairs) {
      if (!ended.pairs.empty()) piece = ended.pairs[random.below(ended.pairs.size())];
    }
    ShareProgram cold(now.problem), warm(now.problem);
    warm.set_basis(start);
    warm.set_guess(earlier.first_level());
    ASSERT_TRUE(cold.water_fill(now.scale));
    ASSERT_TRUE(warm.water_fill(now.scale));
    const auto expected = values(cold, now.scale), found = values(warm, now.scale);
    for (std::size_t g = 0; g < found.size(); ++g)
      EXPECT_NEAR(found[g], expected[g], 1e-6 * std::max(1.0, expected[g])) << "group " << g;
  }
}

// The loop that looks at every level, which is used for other ways to rise, gives the same levels.
TEST(ShareProgram, CeilingsArePassedAsIfEachWereALevel) {
  for (std::uint64_t seed = 0; seed < tries(300) && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const ProgramInstance instance = draw_program(seed + 10'000);
    ShareProgram at_once(instance.problem), one_by_one(instance.problem);
    ASSERT_TRUE(at_once.water_fill(instance.scale));
    ASSERT_TRUE(one_by_one.water_fill(
        instance.scale,
        [](const std::vector<bool>& held) {
          std::vector<double> rise;
          for (const bool h : held) rise.push_back(h ? 0 : 1);
          return rise;
        },
        true));
    EXPECT_NEAR(at_once.level(), one_by_one.level(), 1e-6 * std::max(1.0, at_once.level()));
    const auto a = values(at_once, instance.scale), b = values(one_by_one, instance.scale);
    for (std::size_t g = 0; g < a.size(); ++g)
      EXPECT_NEAR(a[g], b[g], 1e-6 * std::max(1.0, a[g])) << "group " << g;
  }
}

}  // namespace
}  // namespace rubato::policy

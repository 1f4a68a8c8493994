#include "rubato/policy/gavel.h"

#include <array>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <optional>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/core/testing.h"
#include "rubato/model/typed_speed.h"
#include "rubato/policy/testing.h"

namespace rubato::policy {
namespace {

using Rows = std::vector<std::vector<double>>;

// Jobs by their rates on each type, at so many GPUs each.
struct GavelInstance {
  Rows rates;
  std::vector<int> gpus;
  std::vector<double> weights;
  std::vector<std::string> users;
  std::string cluster;

  [[nodiscard]] std::shared_ptr<ThroughputTable> table() const {
    auto table = std::make_shared<ThroughputTable>(rates.size(), rates[0].size());
    for (std::size_t i = 0; i < rates.size(); ++i) {
      for (std::size_t t = 0; t < rates[i].size(); ++t)
        table->set_alone(i, gpu_type(t), gpus[i], rates[i][t]);
    }
    return table;
  }
  [[nodiscard]] Snapshot snapshot(std::shared_ptr<ThroughputTable> rows = nullptr) const {
    if (!rows) rows = table();
    Snapshot snapshot;
    snapshot.cluster = core::cluster_of(cluster);
    for (std::size_t i = 0; i < rates.size(); ++i) {
      auto spec = rigid_spec(gpus[i]);
      if (!weights.empty()) spec->weight = weights[i];
      if (!users.empty()) spec->user = users[i];
      JobView job = job_view(job_id(i), spec);
      job.speed = std::make_shared<TypedSpeed>(rows, i);
      job.work = 1000;
      job.progress = {1000, kStart, 0};
      snapshot.jobs.insert(std::move(job));
    }
    return snapshot;
  }
};

Gavel gavel(Gavel::Objective objective, bool aware = true, bool packing = false) {
  Gavel policy;
  policy.config.objective = objective;
  policy.config.aware = aware;
  policy.config.packing = packing;
  return policy;
}

std::vector<TimeShare> solve(const Gavel& policy, const Snapshot& snapshot) {
  Gavel::State state;
  return policy.shares(snapshot, state);
}

double speed_of(const Snapshot& snapshot, const std::vector<TimeShare>& shares, JobId id) {
  double sum = 0;
  for (const auto& share : shares) {
    if (share.job != id && share.beside != id) continue;
    const JobView& job = *snapshot.jobs.find(id);
    for (std::size_t t = 0; t < share.of_type.size(); ++t) {
      const Shape shape{gpu_type(t), job.spec->requested, 0, 0};
      double rate = job.speed->rate(shape);
      if (share.beside) {
        const JobId other = share.job == id ? *share.beside : share.job;
        rate = job.speed->beside(shape, *snapshot.jobs.find(other)->speed);
      }
      sum += share.of_type[t] * rate;
    }
  }
  return sum;
}

// The value that LAS equalises.
double fair_value(const Snapshot& snapshot, const std::vector<TimeShare>& shares, JobId id) {
  const JobView& job = *snapshot.jobs.find(id);
  double equal = 0;
  for (int t = 0; t < snapshot.cluster.types(); ++t) {
    const GpuType type(static_cast<GpuType::rep>(t));
    equal += snapshot.cluster.usable(type) * job.speed->on(type, job.spec->requested) /
             snapshot.cluster.usable();
  }
  return job.spec->requested * speed_of(snapshot, shares, id) / (job.spec->weight * equal);
}

double worst(const Snapshot& snapshot, const std::vector<TimeShare>& shares) {
  double least = 1e300;
  for (const JobView& job : snapshot.jobs)
    least = std::min(least, fair_value(snapshot, shares, job.id));
  return least;
}

void expect_feasible(const Snapshot& snapshot, const std::vector<TimeShare>& shares) {
  std::map<JobId, double> time;
  std::vector<double> used(static_cast<std::size_t>(snapshot.cluster.types()), 0);
  for (const auto& share : shares) {
    for (std::size_t t = 0; t < used.size(); ++t) {
      ASSERT_GE(share.of_type[t], -1e-6);
      time[share.job] += share.of_type[t];
      if (share.beside) time[*share.beside] += share.of_type[t];
      used[t] += share.of_type[t] * snapshot.jobs.find(share.job)->spec->requested;
    }
  }
  for (const auto& [job, sum] : time) ASSERT_LE(sum, 1 + 1e-6) << "job " << job.value();
  for (std::size_t t = 0; t < used.size(); ++t)
    ASSERT_LE(used[t], snapshot.cluster.usable(gpu_type(t)) + 1e-6);
}

const GavelInstance kKnown{
    {{40, 12, 2}, {12, 4, 3}, {100, 50, 50}}, {1, 1, 1}, {}, {}, "1x1:a,1x1:b,1x1:c"};

TEST(Gavel, MaxMinFairnessHasTheKnownOptimum) {
  const Snapshot snapshot = kKnown.snapshot();
  const auto shares = solve(gavel(Gavel::Objective::las), snapshot);
  const Rows known = {{.2404, .7596, 0}, {.3722, .2404, .3874}, {.3874, 0, .6126}};
  ASSERT_EQ(shares.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t t = 0; t < 3; ++t) EXPECT_NEAR(shares[i].of_type[t], known[i][t], 1e-4);
  }
  EXPECT_NEAR(worst(snapshot, shares), 1.0406, 1e-4);
}

TEST(Gavel, WaterFillingRaisesWhoIsNotTheWorst) {
  // Only the second job runs on the second type. The first job is stuck, the second can rise
  // further.
  const GavelInstance instance{{{1, 0}, {1, 1}}, {1, 1}, {}, {}, "1x1:a,1x1:b"};
  const Snapshot snapshot = instance.snapshot();
  Gavel policy = gavel(Gavel::Objective::las);
  const auto filled = solve(policy, snapshot);
  EXPECT_NEAR(speed_of(snapshot, filled, job_id(0)), 1, 1e-6);
  EXPECT_NEAR(speed_of(snapshot, filled, job_id(1)), 1, 1e-6);
  const GavelInstance uneven{{{1}, {1}, {1}}, {1, 2, 1}, {8, 1, 1}, {}, "1x2:a"};
  const auto shares = solve(policy, uneven.snapshot());
  EXPECT_NEAR(shares[0].of_type[0], 1, 1e-6) << "it can use no more than all of the time";
  EXPECT_NEAR(shares[1].of_type[0] * 2, shares[2].of_type[0], 1e-6);
  EXPECT_NEAR(shares[1].of_type[0] * 2 + shares[2].of_type[0], 1, 1e-6);
}

GavelInstance draw(std::uint64_t seed) {
  Random random(seed);
  GavelInstance instance;
  const std::size_t types = 1 + random.below(3);
  for (std::size_t t = 0; t < types; ++t) {
    instance.cluster += (t > 0 ? "," : "") + std::to_string(1 + random.below(3)) + "x" +
                        std::to_string(1 + random.below(4)) + ":" +
                        std::string(1, static_cast<char>('a' + t));
  }
  const std::size_t jobs = 1 + random.below(12);
  for (std::size_t i = 0; i < jobs; ++i) {
    std::vector<double> rate;
    for (std::size_t t = 0; t < types; ++t)
      rate.push_back(random.below(6) == 0 && t > 0 ? 0 : random.log_uniform(0.1, 100));
    instance.rates.push_back(rate);
    instance.gpus.push_back(random.below(3) == 0 ? 2 : 1);
    instance.weights.push_back(random.below(3) == 0 ? 2 : 1);
    instance.users.emplace_back(1, static_cast<char>('p' + random.below(3)));
  }
  return instance;
}

std::shared_ptr<ThroughputTable> with_pairs(const GavelInstance& instance, std::uint64_t seed) {
  Random random(seed);
  auto table = instance.table();
  for (std::size_t i = 0; i < instance.rates.size(); ++i) {
    for (std::size_t k = i + 1; k < instance.rates.size(); ++k) {
      if (instance.gpus[i] != instance.gpus[k] || random.below(2) == 0) continue;
      for (std::size_t t = 0; t < instance.rates[i].size(); ++t) {
        table->set_beside(i, k, gpu_type(t), instance.gpus[i],
                          instance.rates[i][t] * random.uniform(0.3, 0.9));
        table->set_beside(k, i, gpu_type(t), instance.gpus[i],
                          instance.rates[k][t] * random.uniform(0.3, 0.9));
      }
    }
  }
  return table;
}

TEST(Gavel, EveryAllocationIsFeasible) {
  using enum Gavel::Objective;
  for (std::uint64_t seed = 0; seed < tries(120); ++seed) {
    SCOPED_TRACE(seed);
    const GavelInstance instance = draw(seed);
    Snapshot snapshot = instance.snapshot(with_pairs(instance, seed));
    snapshot.now = time_at(50);
    for (const auto objective :
         {las, finish_time_fairness, makespan, throughput, min_jct, hierarchical, isolated}) {
      for (const bool aware : {true, false}) {
        for (const bool packing : {true, false}) {
          Gavel policy = gavel(objective, aware, packing);
          policy.config.parts = 1 + seed % 2;
          if (seed % 3 == 0) policy.config.prices = {2, 1};
          policy.config.fifo_inside = seed % 4 == 0;
          ASSERT_NO_FATAL_FAILURE(expect_feasible(snapshot, solve(policy, snapshot)));
        }
      }
    }
  }
}

TEST(Gavel, KnowingTheTypesIsNeverWorseAndSharingGpusNeither) {
  for (std::uint64_t seed = 0; seed < tries(200); ++seed) {
    SCOPED_TRACE(seed);
    const GavelInstance instance = draw(seed);
    const Snapshot snapshot = instance.snapshot(with_pairs(instance, seed));
    const double aware = worst(snapshot, solve(gavel(Gavel::Objective::las), snapshot));
    const double agnostic = worst(snapshot, solve(gavel(Gavel::Objective::las, false), snapshot));
    const double packed =
        worst(snapshot, solve(gavel(Gavel::Objective::las, true, true), snapshot));
    ASSERT_GE(aware, agnostic - 1e-6);
    ASSERT_GE(packed, aware - 1e-6);
  }
}

TEST(Gavel, EqualJobsInAGroupGetWhatTheyGetOneByOne) {
  GavelInstance instance{{}, {}, {}, {}, "2x2:a,3x1:b"};
  for (int i = 0; i < 9; ++i) {
    instance.rates.push_back(i % 2 == 0 ? std::vector<double>{10, 2} : std::vector<double>{6, 5});
    instance.gpus.push_back(1);
  }
  const Snapshot one_by_one = instance.snapshot();
  Snapshot grouped = instance.snapshot();
  for (std::size_t i = 2; i < 9; ++i)
    grouped.jobs.find(job_id(i))->speed = grouped.jobs.find(job_id(i % 2))->speed;
  const auto policy = gavel(Gavel::Objective::las);
  const auto apart = solve(policy, one_by_one);
  const auto together = solve(policy, grouped);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_NEAR(speed_of(grouped, together, job_id(i)), speed_of(one_by_one, apart, job_id(i)),
                1e-6);
  }
}

TEST(Gavel, FinishTimeFairnessIsAsGoodAsAnyOther) {
  using enum Gavel::Objective;
  for (std::uint64_t seed = 0; seed < tries(60); ++seed) {
    SCOPED_TRACE(seed);
    const GavelInstance instance = draw(seed);
    Snapshot snapshot = instance.snapshot();
    snapshot.now = time_at(20);
    Random random(seed);
    for (std::size_t i = 0; i < instance.rates.size(); ++i)
      snapshot.jobs.find(job_id(i))->progress.work_left = random.log_uniform(10, 1e4);
    const auto jobs = static_cast<double>(snapshot.jobs.size());
    const auto rho = [&](const std::vector<TimeShare>& shares) {
      double most = 0;
      for (const JobView& job : snapshot.jobs) {
        double equal = 0;
        for (int t = 0; t < snapshot.cluster.types(); ++t) {
          const GpuType type(static_cast<GpuType::rep>(t));
          equal += snapshot.cluster.usable(type) * job.speed->on(type, job.spec->requested) /
                   snapshot.cluster.usable();
        }
        const double slice = snapshot.cluster.usable() / (jobs * job.spec->requested);
        const double alone = job.progress.work_left / (std::min(1.0, slice) * equal);
        const double speed = speed_of(snapshot, shares, job.id);
        if (speed > 0) most = std::max(most, (20 + job.progress.work_left / speed) / alone);
      }
      return most;
    };
    const double fair = rho(solve(gavel(finish_time_fairness), snapshot));
    EXPECT_LE(fair, rho(solve(gavel(las), snapshot)) * (1 + 1e-3));
    EXPECT_LE(fair, rho(solve(gavel(makespan), snapshot)) * (1 + 1e-3));
  }
}

TEST(Gavel, MakespanGivesLongJobsMore) {
  const GavelInstance instance{{{1}, {1}}, {1, 1}, {}, {}, "1x1:a"};
  Snapshot snapshot = instance.snapshot();
  snapshot.jobs.find(job_id(0))->progress.work_left = 300;
  snapshot.jobs.find(job_id(1))->progress.work_left = 100;
  const auto shares = solve(gavel(Gavel::Objective::makespan), snapshot);
  EXPECT_NEAR(shares[0].of_type[0], 0.75, 1e-6);
  EXPECT_NEAR(shares[1].of_type[0], 0.25, 1e-6);
}

TEST(Gavel, ThroughputPerCostAndDeadlines) {
  // The first job gains much from the fast type, the second nothing.
  const GavelInstance instance{{{10, 1}, {2, 2}}, {1, 1}, {}, {}, "1x1:a,1x1:b"};
  Snapshot snapshot = instance.snapshot();
  Gavel policy = gavel(Gavel::Objective::throughput);
  auto shares = solve(policy, snapshot);
  EXPECT_NEAR(shares[0].of_type[0], 1, 1e-6);
  EXPECT_NEAR(shares[1].of_type[1], 1, 1e-6);
  policy.config.prices = {100, 1};
  shares = solve(policy, snapshot);
  EXPECT_NEAR(shares[0].of_type[0] + shares[1].of_type[0], 0, 1e-6) << "too dear";
  EXPECT_NEAR(shares[1].of_type[1], 1, 1e-6);
  auto spec = rigid_spec(1);
  spec->deadline = time_at(500);  // needs 2 of 1000 steps a second
  snapshot.jobs.find(job_id(0))->spec = spec;
  shares = solve(policy, snapshot);
  EXPECT_GE(speed_of(snapshot, shares, job_id(0)), 2 - 1e-6);
}

TEST(Gavel, UsersShareByWeightAndJobsInsideFairlyOrInOrder) {
  const GavelInstance instance{
      {{1}, {1}, {1}}, {1, 1, 1}, {1, 1, 1}, {"ann", "ann", "bob"}, "1x1:a"};
  const Snapshot snapshot = instance.snapshot();
  Gavel policy = gavel(Gavel::Objective::hierarchical);
  auto shares = solve(policy, snapshot);
  EXPECT_NEAR(shares[0].of_type[0], 0.25, 1e-6);
  EXPECT_NEAR(shares[1].of_type[0], 0.25, 1e-6);
  EXPECT_NEAR(shares[2].of_type[0], 0.5, 1e-6);
  policy.config.entity_weights = {{"ann", 3}};
  policy.config.fifo_inside = true;
  shares = solve(policy, snapshot);
  EXPECT_NEAR(shares[0].of_type[0], 0.75, 1e-6);
  EXPECT_NEAR(shares[1].of_type[0], 0, 1e-6);
  EXPECT_NEAR(shares[2].of_type[0], 0.25, 1e-6);
}

TEST(Gavel, UsersShareByWeightHoweverManyJobsTheyHave) {
  constexpr std::array<std::size_t, 4> kJobs = {158, 60, 39, 43};
  GavelInstance instance;
  instance.cluster = "4x8:a";
  for (std::size_t u = 0; u < kJobs.size(); ++u) {
    for (std::size_t i = 0; i < kJobs[u]; ++i) {
      const int gpus = 1 << (i % 4);
      instance.rates.push_back({1.0 * gpus});
      instance.gpus.push_back(gpus);
      instance.weights.push_back(static_cast<double>(u + 1));
      instance.users.push_back("user" + std::to_string(u));
    }
  }
  std::map<std::string, double> gpu_time;
  for (const auto& share : solve(gavel(Gavel::Objective::hierarchical), instance.snapshot()))
    gpu_time[instance.users[share.job.index()]] +=
        instance.gpus[share.job.index()] * share.of_type[0];
  for (std::size_t u = 0; u < kJobs.size(); ++u) {
    EXPECT_NEAR(gpu_time["user" + std::to_string(u)] / 32, static_cast<double>(u + 1) / 10, 1e-6);
  }
}

TEST(Gavel, RoundsRealiseTheShares) {
  // Two types and three jobs for a day: the time received matches the shares.
  const Snapshot start = kKnown.snapshot();
  const auto shares = solve(gavel(Gavel::Objective::las), start);
  Rounds rounds;
  Snapshot snapshot = start;
  Rows received(3, std::vector<double>(3, 0));
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    snapshot.now = kStart + round * from_seconds(360);
    const Decision decision = rounds.decide(snapshot, {}, [&](const Snapshot&) { return shares; });
    ASSERT_EQ(decision.again_at, snapshot.now + from_seconds(360));
    ASSERT_TRUE(validate(decision, snapshot).ok());
    for (const JobView& job : start.jobs) snapshot.jobs.find(job.id)->target = Allocation();
    for (const auto& grant : decision.run) {
      const GpuType type = std::get<Count>(grant.want).type;
      received[grant.job.index()][type.index()] += 1.0 / kRounds;
      snapshot.jobs.find(grant.job)->target = gpus_on({{type.index(), 1}}, type);
    }
  }
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t t = 0; t < 3; ++t)
      EXPECT_NEAR(received[i][t], shares[i].of_type[t], 0.03) << i << " on " << t;
  }
}

// Rounds of 360 s on one GPU, for jobs of one GPU each. The rounds are told which job ran, as by
// the loop.
class OneGpu {
 public:
  // One round with this many jobs: who has a share, and who runs.
  std::optional<JobId> next_round(std::size_t jobs, const std::vector<double>& shares) {
    const GavelInstance instance{Rows(jobs, {1}), std::vector<int>(jobs, 1), {}, {}, "1x1:a"};
    Snapshot snapshot = instance.snapshot();
    snapshot.now = now_;
    now_ += from_seconds(360);
    if (JobView* last = ran_ ? snapshot.jobs.find(*ran_) : nullptr)
      last->target = gpus_on({{0, 1}}, gpu_type(0));
    Rounds::Settings settings;
    settings.resolve = from_seconds(0);  // whenever a job arrived or ended
    const Decision decision = rounds_.decide(snapshot, settings, [&](const Snapshot&) {
      std::vector<TimeShare> made;
      for (std::size_t i = 0; i < jobs; ++i) made.push_back({job_id(i), std::nullopt, {shares[i]}});
      return made;
    });
    ran_ = decision.run.empty() ? std::nullopt : std::optional(decision.run[0].job);
    return ran_;
  }

 private:
  Rounds rounds_;
  Time now_ = kStart;
  std::optional<JobId> ran_;
};

TEST(Rounds, SmallSharesAreRealisedHoweverOftenSharesAreMade) {
  // One job has half of the GPU, ten jobs have a twentieth each. A job without a share arrives or
  // ends every five rounds, before a share of a twentieth is a whole round.
  std::vector<double> shares(12, 0.05);
  shares[0] = 0.5;
  shares[11] = 0;
  constexpr int kRounds = 400;
  std::vector<double> received(12, 0);
  OneGpu gpu;
  for (int round = 0; round < kRounds; ++round) {
    const auto ran = gpu.next_round(round / 5 % 2 == 0 ? 11 : 12, shares);
    ASSERT_TRUE(ran);
    received[ran->index()] += 1.0 / kRounds;
  }
  for (std::size_t i = 0; i < received.size(); ++i) EXPECT_NEAR(received[i], shares[i], 0.005) << i;
}

TEST(Rounds, EqualJobsDoNotAllHaveTheirTurnAtOnce) {
  // A hundred jobs share half of the GPU. They get it evenly over time, not in waves.
  std::vector<double> shares(101, 0.005);
  shares[0] = 0.5;
  OneGpu gpu;
  for (int window = 0; window < 10; ++window) {
    int others = 0;
    for (int round = 0; round < 40; ++round) others += gpu.next_round(101, shares) != job_id(0);
    EXPECT_NEAR(others, 20, 2) << window;
  }
}

TEST(Rounds, NobodyPaysForMoreThanOneRoundOfGpusThatWereFree) {
  OneGpu gpu;
  for (int round = 0; round < 100; ++round) ASSERT_EQ(gpu.next_round(1, {0.1}), job_id(0));
  std::vector<int> rounds(2, 0);
  for (int round = 0; round < 6; ++round) ++rounds[gpu.next_round(2, {0.5, 0.5})->index()];
  EXPECT_GE(rounds[0], 2);
  EXPECT_GE(rounds[1], 3);
}

}  // namespace
}  // namespace rubato::policy

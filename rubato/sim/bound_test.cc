#include "rubato/sim/bound.h"

#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/math/linear_program.h"
#include "rubato/policy/all.h"
#include "rubato/policy/hesrpt.h"
#include "rubato/policy/testing.h"
#include "rubato/sim/best_case.h"
#include "rubato/sim/deadline_bound.h"
#include "rubato/sim/simulation.h"
#include "rubato/sim/testing.h"
#include "rubato/sim/testing_profiles.h"

namespace rubato::sim {
namespace {

constexpr BoundOptions kQuick{60, 60};

SimulationResult run(const Workload& workload, const Cluster& cluster, const std::string& policy,
                     const SimulationOptions& options = {}) {
  auto result = simulate(workload, cluster, *testing::make_policy(policy), options);
  EXPECT_TRUE(result.ok()) << policy << ": " << result.error().message;
  return std::move(*result);
}

double avg_jct(const Workload& workload, const Cluster& cluster, Policy& policy) {
  const auto result = simulate(workload, cluster, policy, {});
  EXPECT_TRUE(result.ok()) << result.error().message;
  EXPECT_EQ(result->metrics.completed, workload.jobs.size());
  return result->metrics.avg_jct_s.value_or(0);
}

std::vector<CurvePoint> draw_bound_curve(Random& random) {
  std::vector<CurvePoint> curve;
  double rate = 1;
  for (const int gpus : {1, 2, 3, 4, 6}) {
    curve.push_back({gpus, rate});
    rate *= random.below(6) == 0 ? 0.9 : random.uniform(1, 1.9);  // not concave, not monotone
  }
  return curve;
}

Workload draw_workload(Random& random, std::uint64_t most_jobs, double restart_s) {
  std::vector<SimJob> jobs;
  double submit_s = 0;
  for (auto left = random.below(most_jobs) + 1; left > 0; --left) {
    const auto work = static_cast<double>(random.below(40));
    if (random.below(4) == 0) {
      jobs.push_back(rigid_job(submit_s, static_cast<int>(random.below(4)) + 1, work, restart_s));
    } else {
      jobs.push_back(elastic_job(submit_s, work, draw_bound_curve(random), restart_s));
    }
    submit_s += static_cast<double>(random.below(2) * random.below(10));
  }
  return workload_of(std::move(jobs));
}

TEST(Bound, AJobAloneIsItsOwnLimit) {
  const auto workload = workload_of({elastic_job(0, 100, {{1, 1}, {2, 1.8}, {4, 2.5}}, 5)});
  const Bound bound = lower_bound(workload, cluster_of("1x4"), kQuick);
  EXPECT_NEAR(bound.alone_s, 5 + 40, 1e-9);
  EXPECT_NEAR(bound.avg_jct_s(), 45, 1e-3);
  // Where it cannot have four GPUs, two are its best.
  EXPECT_NEAR(lower_bound(workload, cluster_of("1x3"), kQuick).alone_s, 5 + 100 / 2.15, 1e-9);
}

TEST(Bound, OneMachineIsShortestRemainingFirst) {
  // On one GPU: 10 s of work from 0, 2 s from 1: done at 12 and 3.
  const auto workload = workload_of({rigid_job(0, 1, 10), rigid_job(1, 1, 2)});
  const Bound bound = lower_bound(workload, cluster_of("1x1"), kQuick);
  EXPECT_NEAR(bound.srpt_s, (12 + 2) / 2.0, 1e-9);
  EXPECT_LE(bound.priced_s, bound.srpt_s + 1e-9);
}

TEST(Bound, JobsThatNeverFitAreNotCounted) {
  const auto workload = workload_of({rigid_job(0, 1, 10), rigid_job(0, 5, 10)});
  EXPECT_EQ(lower_bound(workload, cluster_of("1x4"), kQuick).jobs, 1U);
  EXPECT_EQ(lower_bound(workload_of({rigid_job(0, 5, 10)}), cluster_of("1x4")).avg_jct_s(), 0);
}

// All jobs of length 1 at time 0 on one GPU: the order does not matter, the sum is n(n+1)/2.
TEST(Bound, PricesComeCloseWhereTheAnswerIsKnown) {
  std::vector<SimJob> jobs(20, rigid_job(0, 1, 60));
  const Bound bound = lower_bound(workload_of(std::move(jobs)), cluster_of("1x1"), {300, 200});
  EXPECT_LE(bound.priced_s, 630 + 1e-6);
  EXPECT_GT(bound.priced_s, 0.93 * 630);
}

// ---- all schedules of tiny workloads ----

struct TinyJob {
  int submit = 0;
  int work = 0;
  int deadline = 0;
  std::vector<std::vector<int>> rates;  // by type and GPUs, from 1
};

struct Tiny {
  std::vector<int> gpus;  // by type
  std::vector<TinyJob> jobs;

  [[nodiscard]] Cluster cluster() const {
    std::string text;
    for (std::size_t t = 0; t < gpus.size(); ++t)
      text += (t == 0 ? "1x" : ",1x") + std::to_string(gpus[t]) + ":" +
              std::string(1, static_cast<char>('a' + t));
    return cluster_of(text);
  }
  [[nodiscard]] Workload workload() const {
    auto table = std::make_shared<ThroughputTable>(jobs.size(), gpus.size());
    std::vector<SimJob> made;
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      int most = 0;
      for (std::size_t t = 0; t < gpus.size(); ++t) {
        for (int k = 1; k <= gpus[t]; ++k) {
          table->set_alone(j, GpuType(static_cast<GpuType::rep>(t)), k,
                           jobs[j].rates[t][static_cast<std::size_t>(k) - 1]);
          most = std::max(most, k);
        }
      }
      auto spec = elastic_spec(1, most);
      spec->requested = 1;
      spec->deadline = time_at(jobs[j].deadline);
      made.push_back({spec, time_at(jobs[j].submit), static_cast<double>(jobs[j].work), nullptr});
    }
    for (std::size_t j = 0; j < jobs.size(); ++j)
      made[j].speed = std::make_shared<TypedSpeed>(table, j);
    return workload_of(std::move(made));
  }
};

Tiny draw_tiny(Random& random, std::size_t types) {
  Tiny tiny;
  for (std::size_t t = 0; t < types; ++t)
    tiny.gpus.push_back(static_cast<int>(random.below(2)) + (types == 1 ? 2 : 1));
  int at = 0;
  for (int j = 0; j < 3; ++j) {
    TinyJob job{at, static_cast<int>(random.below(6)) + 1, 0, {}};
    job.deadline = at + static_cast<int>(random.below(6)) + 1;
    for (const int gpus : tiny.gpus) {
      auto& rates = job.rates.emplace_back();
      int speed = static_cast<int>(random.below(2)) + 1;
      for (int k = 1; k <= gpus; ++k) {
        rates.push_back(speed);
        speed += static_cast<int>(random.below(3));
      }
    }
    tiny.jobs.push_back(job);
    at += static_cast<int>(random.below(3));
  }
  return tiny;
}

// The best of all schedules that change at whole seconds only, by trying them all. Jobs end within
// a second, exactly.
class BruteForce {
 public:
  // What a second is worth to a job that has `left` work and does `done` of it: the best is sought.
  using Worth = std::function<double(const TinyJob& job, int now, int left, int done)>;
  BruteForce(const Tiny& tiny, Worth worth) : tiny_(tiny), worth_(std::move(worth)) {}

  double best() {
    std::vector<int> left;
    for (const TinyJob& job : tiny_.jobs) {
      left.push_back(job.work);
      last_submit_ = std::max(last_submit_, job.submit);
    }
    return search(left, 0);
  }

 private:
  // From this moment on.
  double search(const std::vector<int>& left, int now) {
    if (std::all_of(left.begin(), left.end(), [](int work) { return work == 0; })) return 0;
    if (now > kHorizon) return -1e9;
    const auto [at, fresh] = known_.try_emplace({now, left}, -1e9);
    if (!fresh) return at->second;
    double best = -1e9;
    std::vector<int> next = left;
    auto room = tiny_.gpus;
    share(left, next, room, 0, now, 0, best);
    return known_[{now, left}] = best;
  }
  void share(const std::vector<int>& left, std::vector<int>& next, std::vector<int>& room,
             std::size_t j, int now, double sum, double& best) {
    if (j == left.size()) {
      if (next != left || now < last_submit_) best = std::max(best, sum + search(next, now + 1));
      return;
    }
    const TinyJob& job = tiny_.jobs[j];
    next[j] = left[j];
    const bool active = left[j] > 0 && job.submit <= now;
    share(left, next, room, j + 1, now, sum + (active ? worth_(job, now, left[j], 0) : 0), best);
    if (!active) return;
    for (std::size_t t = 0; t < room.size(); ++t) {
      for (int k = 1; k <= room[t]; ++k) {
        const int done = job.rates[t][static_cast<std::size_t>(k) - 1];
        next[j] = std::max(0, left[j] - done);
        room[t] -= k;
        share(left, next, room, j + 1, now, sum + worth_(job, now, left[j], done), best);
        room[t] += k;
      }
    }
    next[j] = left[j];
  }

  static constexpr int kHorizon = 40;
  const Tiny& tiny_;
  Worth worth_;
  int last_submit_ = 0;
  std::map<std::pair<int, std::vector<int>>, double> known_;
};

double least_sum_of_jct(const Tiny& tiny) {
  return -BruteForce(tiny, [](const TinyJob&, int, int left, int done) {
            return done >= left ? -1.0 * left / done : -1.0;
          }).best();
}
double most_deadlines(const Tiny& tiny) {
  return BruteForce(tiny,
                    [](const TinyJob& job, int now, int left, int done) {
                      const bool ends = done >= left;
                      return ends && now * done + left <= job.deadline * done ? 1.0 : 0.0;
                    })
      .best();
}

std::vector<std::string> policies_for(const Cluster& cluster) {
  std::vector<std::string> names = {"gavel-las:packing=on"};
  for (const auto& entry : all_policies())
    if (cluster.types() == 1 || !entry.one_type) names.push_back(entry.name);
  return names;
}

// Bound, best schedule of whole seconds, policies that decide at whole seconds: in this order.
TEST(Bound, TheBestOfAllTinySchedulesLiesBetweenItAndThePolicies) {
  Random random(11);
  SimulationOptions by_seconds;
  by_seconds.interval = from_seconds(1);
  double bounds = 0, bests = 0;
  for (int trial = 0; trial < static_cast<int>(tries(40)) && !HasFailure(); ++trial) {
    const Tiny tiny = draw_tiny(random, trial % 2 == 0 ? 1 : 2);
    const auto cluster = tiny.cluster();
    const auto workload = tiny.workload();
    const double best = least_sum_of_jct(tiny) / 3;
    const double bound = lower_bound(workload, cluster, kQuick).avg_jct_s();
    const double deadlines = most_deadlines(tiny);
    const auto limit = deadline_bound(workload, cluster, {100, 100});
    EXPECT_LE(bound, best + 1e-9) << "trial " << trial;
    EXPECT_GE(static_cast<double>(limit.most()), deadlines) << "trial " << trial;
    bounds += bound;
    bests += best;
    for (const auto& name : policies_for(cluster)) {
      const auto metrics = run(workload, cluster, name, by_seconds).metrics;
      EXPECT_LE(static_cast<double>(metrics.deadlines_met), deadlines)
          << name << ", trial " << trial;
      if (metrics.completed < workload.jobs.size()) continue;
      EXPECT_GE(*metrics.avg_jct_s, best - 1e-5) << name << ", trial " << trial;
    }
  }
  EXPECT_GT(bounds, 0.7 * bests) << "it should say something";
}

// ---- no policy beats it ----

enum class Kind { one_type, several_types, profiles };

// Some deadlines can be kept, some cannot.
SimJob with_deadline(const SimJob& job, Random& random, double most_s) {
  if (random.below(3) == 0) return job;
  const Time deadline = job.submit + from_seconds(random.uniform(0.05, 1) * most_s);
  return with(job, [&](JobSpec& spec) { spec.deadline = deadline; });
}

std::shared_ptr<const ThroughputTable> draw_pairs(Random& random, std::size_t types) {
  constexpr std::size_t kRows = 3;
  auto table = std::make_shared<ThroughputTable>(kRows, types);
  for (std::size_t row = 0; row < kRows; ++row) {
    for (std::size_t t = 0; t < types; ++t) {
      const GpuType type(static_cast<GpuType::rep>(t));
      double rate = random.uniform(0.5, 2);
      for (int gpus = 1; gpus <= 4; ++gpus) {
        table->set_alone(row, type, gpus, row == 2 && t == 1 ? 0 : rate);
        for (std::size_t other = 0; other < kRows; ++other)
          table->set_beside(row, other, type, gpus, rate * random.uniform(0.3, 0.95));
        rate *= random.uniform(1, 1.8);
      }
    }
  }
  return table;
}

Workload draw_typed(Random& random, const Cluster& cluster) {
  const auto table = draw_pairs(random, static_cast<std::size_t>(cluster.types()));
  std::vector<std::shared_ptr<const TypedSpeed>> speeds;
  for (std::size_t row = 0; row < 3; ++row)
    speeds.push_back(std::make_shared<TypedSpeed>(table, row));
  std::vector<SimJob> jobs;
  double submit_s = 0;
  for (auto left = random.below(10) + 1; left > 0; --left) {
    SimJob job = elastic_job(submit_s, static_cast<double>(random.below(30)), {{4, 1}});
    job.speed = speeds[random.below(3)];
    const bool rigid = random.below(2) == 0;
    const int gpus = static_cast<int>(random.below(2)) + 1;
    job = with(std::move(job), [&](JobSpec& spec) {
      spec.requested = gpus;
      if (rigid) spec.limits = {gpus, gpus, {}};
    });
    jobs.push_back(with_deadline(job, random, 60));
    submit_s += static_cast<double>(random.below(2) * random.below(10));
  }
  return workload_of(std::move(jobs));
}

// In the second of its epochs gradients are so noisy that large batches are worth nearly all
// samples.
std::shared_ptr<const Application> noisy_application() {
  ApplicationTexts texts = small_application_texts();
  texts.validation[10].text = "progress,grad_sqr,grad_var\n300,1,1\n2000,1,40\n";
  texts.validation[40].text = "progress,grad_sqr,grad_var\n290,1,3\n2100,1,60\n";
  return Application::parse(texts).value();
}

Workload draw_profiled(Random& random) {
  std::vector<SimJob> jobs;
  double submit_s = 0;
  for (auto left = random.below(5) + 1; left > 0; --left) {
    const auto batch = random.below(3) == 0 ? std::optional<int>(20) : std::nullopt;
    SimJob job = random.below(5) == 0 ? rigid_job(0, 2, 20) : profiled_job(batch, 2);
    if (job.application && random.below(2) == 0) {
      job.application = noisy_application();
      job.work = job.application->work();
      job.speed = std::make_shared<ApplicationSpeed>(job.application, job.spec->batch);
    }
    job.submit = time_at(submit_s);
    jobs.push_back(with_deadline(job, random, 300));
    submit_s += static_cast<double>(random.below(2) * random.below(40));
  }
  return workload_of(std::move(jobs));
}

Workload draw(Random& random, Kind kind, const Cluster& cluster, double restart_s) {
  if (kind == Kind::several_types) return draw_typed(random, cluster);
  if (kind == Kind::profiles) return draw_profiled(random);
  Workload workload = draw_workload(random, 14, restart_s);
  for (SimJob& job : workload.jobs) job = with_deadline(job, random, 60);
  return workload;
}

Prices draw_prices(Random& random, int types, double dearest) {
  Prices prices{{0}, {}};
  const auto periods = random.below(8) + 1;
  for (auto left = periods; left > 0; --left)
    prices.start_s.push_back(prices.start_s.back() + random.log_uniform(0.1, 60));
  for (int t = 0; t < types; ++t) {
    auto& of_type = prices.gpu_second.emplace_back();
    for (auto left = periods; left > 0; --left)
      of_type.push_back(random.below(3) == 0 ? 0 : random.log_uniform(0.0005 * dearest, dearest));
  }
  return prices;
}

struct Limits {
  double jct = 0;
  double deadlines = 0;
};

// The tightest of what the search and some random prices say.
Limits find_limits(const Workload& workload, const Cluster& cluster, bool sharing, Random random) {
  const auto jct = lower_bound(workload, cluster, {60, 60, sharing});
  Limits limits{jct.avg_jct_s(),
                static_cast<double>(deadline_bound(workload, cluster, {60, 100, sharing}).most())};
  for (int i = 0; i < 4; ++i) {
    const BestCaseOptions best_case{sharing, random.log_uniform(0.01, 10)};
    const auto prices = draw_prices(random, cluster.types(), 20);
    limits.jct = std::max(limits.jct, priced_bound(workload, cluster, prices, best_case) - 1e-4);
    const auto dear = draw_prices(random, cluster.types(), 0.1);
    limits.deadlines =
        std::min(limits.deadlines, priced_deadlines(workload, cluster, dear, best_case) + 1e-4);
  }
  return limits;
}

void expect_no_policy_beats(Kind kind, const std::vector<std::string>& clusters, int usual) {
  const auto trials = static_cast<int>(tries(static_cast<std::uint64_t>(usual)));
  Random random(5 + static_cast<std::uint64_t>(kind));
  std::size_t compared = 0, kept = 0, shared = 0;
  for (int trial = 0; trial < trials && !::testing::Test::HasFailure(); ++trial) {
    const auto cluster = cluster_of(clusters[static_cast<std::size_t>(trial) % clusters.size()]);
    const Workload workload = draw(random, kind, cluster, trial % 3 == 0 ? 2 : 0);
    const Limits plain = find_limits(workload, cluster, false, random.split(1));
    const Limits sharing = find_limits(workload, cluster, true, random.split(2));
    for (const auto& name : policies_for(cluster)) {
      const auto metrics = run(workload, cluster, name).metrics;
      const Limits& limits = metrics.shared ? sharing : plain;
      EXPECT_LE(static_cast<double>(metrics.deadlines_met), limits.deadlines)
          << name << ", trial " << trial;
      kept += metrics.deadlines_met;
      shared += metrics.shared ? 1 : 0;
      const auto runnable = BestCases::of(workload, cluster).jobs().size();
      if (metrics.completed < runnable || !metrics.avg_jct_s) continue;  // refused, or not run
      EXPECT_GE(*metrics.avg_jct_s, limits.jct) << name << ", trial " << trial;
      ++compared;
    }
  }
  EXPECT_GT(compared, tries(200));
  EXPECT_GT(kept, tries(200));
  EXPECT_GE(shared, kind == Kind::several_types ? tries(5) : 0);
}

// Whatever the prices are, no policy beats what they say; nor the searched ones.
TEST(Bound, NoPolicyBeatsItOnOneType) {
  expect_no_policy_beats(Kind::one_type, {"1x4", "3x2"}, 60);
}
TEST(Bound, NoPolicyBeatsItOnSeveralTypes) {
  expect_no_policy_beats(Kind::several_types, {"2x1:a,1x2:b", "1x2:a,1x1:b,2x2:c", "1x4:a,1x1:b"},
                         60);
}
TEST(Bound, NoPolicyBeatsItWithProfiles) {
  expect_no_policy_beats(Kind::profiles, {"1x2", "2x2", "4x1", "1x4"}, 40);
}

// ---- profiles ----

TEST(Bound, AJobWithAProfileIsTunedInEveryEpoch) {
  const auto application = small_application();
  double alone_s = 0;
  for (int epoch = 0; epoch < application->epochs(); ++epoch) {
    double best = 0;
    for (int per_gpu = 10; per_gpu <= 20; ++per_gpu) {
      for (int passes = 1; passes * per_gpu <= 40; ++passes) {
        const Batch batch{per_gpu, passes - 1};
        for (int gpus = 1; gpus <= 4 && batch.global(gpus) <= 40; ++gpus) {
          for (int nodes = 1; nodes <= gpus; ++nodes)
            best = std::max(best, application->rate(application->step_seconds(nodes, gpus, per_gpu),
                                                    gpus, batch, epoch));
          best = std::max(best, application->rate(application->packed_step_seconds(gpus, per_gpu),
                                                  gpus, batch, epoch));
        }
      }
    }
    const double before = epoch == 0 ? 0 : application->progress_after(epoch - 1);
    alone_s += (application->progress_after(epoch) - before) / best;
  }
  const auto workload = workload_of({profiled_job({}, 5)});
  EXPECT_NEAR(lower_bound(workload, cluster_of("4x4"), kQuick).alone_s, 5 + alone_s, 1e-6);
  // A batch that its owner has fixed is not tuned.
  EXPECT_GT(lower_bound(workload_of({profiled_job(10, 5)}), cluster_of("4x4"), kQuick).alone_s,
            5 + alone_s + 1);
}

// ---- deadlines ----

TEST(DeadlineBound, CountsWhatFitsTogether) {
  // Each needs the only GPU for 10 s and has 25 s: two of three, where each alone would be in time.
  const auto job = with(rigid_job(0, 1, 10), [](JobSpec& spec) { spec.deadline = time_at(25); });
  const auto bound = deadline_bound(workload_of({job, job, job}), cluster_of("1x1"));
  EXPECT_EQ(bound.total, 3U);
  EXPECT_EQ(bound.feasible, 3U);
  EXPECT_NEAR(bound.relaxed, 2.5, 0.01);
  EXPECT_EQ(bound.most(), 2U);
  EXPECT_EQ(deadline_bound(workload_of({job, job, job}), cluster_of("1x2")).most(), 3U);
  const auto late = with(rigid_job(0, 1, 10), [](JobSpec& spec) { spec.deadline = time_at(9); });
  EXPECT_EQ(deadline_bound(workload_of({late, rigid_job(0, 1, 1)}), cluster_of("1x1")).most(), 0U);
  EXPECT_EQ(deadline_bound(workload_of({rigid_job(0, 1, 1)}), cluster_of("1x1")).total, 0U);
}

// The linear program whose dual the prices are, solved by the simplex method: seconds of each job
// in each period at each corner, and what part of each job is in time.
double exact_relaxation(const Workload& workload, const Cluster& cluster) {
  using math::LinearProgram;
  const BestCases cases = BestCases::of(workload, cluster);
  std::set<double> moments;
  std::vector<std::pair<const BestCase*, double>> jobs;  // with deadlines
  for (const BestCase& job : cases.jobs()) {
    const auto& deadline = workload.jobs[job.job].spec->deadline;
    if (!deadline || job.submit_s + job.restart_s + job.alone_s > seconds(*deadline)) continue;
    jobs.emplace_back(&job, seconds(*deadline));
    moments.insert(job.submit_s + job.restart_s);
    moments.insert(seconds(*deadline));
  }
  if (jobs.empty()) return 0;
  const std::vector<double> start(moments.begin(), moments.end());
  LinearProgram program;
  std::vector<std::vector<int>> supply;
  for (const double gpus : cases.gpus()) {
    auto& rows = supply.emplace_back();
    for (std::size_t i = 0; i + 1 < start.size(); ++i)
      rows.push_back(program.add_row(-LinearProgram::kUnbounded, gpus * (start[i + 1] - start[i])));
  }
  struct Rows {
    int work = 0;
    std::vector<int> time;
  };
  std::vector<Rows> rows;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    Rows& mine = rows.emplace_back(Rows{program.add_row(0, LinearProgram::kUnbounded), {}});
    for (std::size_t i = 0; i + 1 < start.size(); ++i)
      mine.time.push_back(program.add_row(-LinearProgram::kUnbounded, 0));
  }
  using Terms = std::vector<LinearProgram::Term>;
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    const auto& [job, deadline_s] = jobs[j];
    Terms whole = {{rows[j].work, -job->work_s}};
    for (std::size_t i = 0; i + 1 < start.size(); ++i) {
      if (start[i] < job->submit_s + job->restart_s || start[i + 1] > deadline_s) continue;
      whole.push_back({rows[j].time[i], -(start[i + 1] - start[i])});
      const auto& hulls = cases.menus()[job->menu].hulls;
      for (std::size_t t = 0; t < hulls.size(); ++t) {
        for (const Corner& corner : hulls[t]) {
          const Terms terms = {
              {rows[j].work, corner.speed}, {rows[j].time[i], 1}, {supply[t][i], corner.gpus}};
          program.add_column(LinearProgram::kUnbounded, 0, terms);
        }
      }
    }
    program.add_column(1, 1, whole);
  }
  EXPECT_TRUE(program.maximise());
  return program.objective();
}

TEST(DeadlineBound, TheSearchedPricesComeCloseToTheExactProgram) {
  Random random(23);
  double found = 0, exact = 0;
  for (int trial = 0; trial < 30; ++trial) {
    const Kind kind = trial % 2 == 0 ? Kind::one_type : Kind::several_types;
    const auto cluster = cluster_of(kind == Kind::one_type ? "1x2" : "1x1:a,1x2:b");
    const Workload workload = draw(random, kind, cluster, 0);
    const auto bound = deadline_bound(workload, cluster, {600, 400});
    const double optimum = exact_relaxation(workload, cluster);
    EXPECT_GE(bound.relaxed, optimum - 1e-4) << "trial " << trial;
    EXPECT_LE(bound.relaxed, optimum + 0.25) << "trial " << trial;
    found += bound.relaxed;
    exact += optimum;
  }
  EXPECT_GT(exact, 30);
  EXPECT_LE(found, 1.02 * exact);
}

Workload power_jobs(const std::vector<double>& sizes, double q, int gpus) {
  const auto speed = std::make_shared<PowerSpeed>(q, gpus);
  std::vector<SimJob> jobs;
  for (const double size : sizes) jobs.push_back({elastic_spec(1, gpus), kStart, size, speed});
  return workload_of(std::move(jobs));
}

// With 65,536 GPUs for ten jobs the rounding to whole ones is below the tolerance.
TEST(Hesrpt, TheSimulatedShareMatchesTheClosedForm) {
  constexpr int kGpus = 65536;
  Random random(3);
  for (const double q : {0.2, 0.5, 0.7}) {
    std::vector<double> sizes;
    for (int i = 0; i < 10; ++i) sizes.push_back(random.log_uniform(1e6, 1e8));
    const Workload workload = power_jobs(sizes, q, kGpus);
    const auto cluster = cluster_of("1024x64");
    const double exact = Hesrpt::closed_form(sizes, kGpus, q) / 10;
    const double simulated = avg_jct(workload, cluster, *testing::make_policy("hesrpt"));
    EXPECT_NEAR(simulated / exact, 1, 0.001) << "q = " << q;
    const Bound bound = lower_bound(workload, cluster, {100, 200});
    EXPECT_LE(bound.avg_jct_s(), exact * 1.0001) << "it is the optimum";
    EXPECT_GT(bound.avg_jct_s(), exact * 0.85) << "q = " << q;
    EXPECT_GT(avg_jct(workload, cluster, *testing::make_policy("equal")), exact);
  }
}

}  // namespace
}  // namespace rubato::sim

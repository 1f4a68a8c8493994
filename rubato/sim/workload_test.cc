#include "rubato/sim/workload.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/model/curve.h"
#include "rubato/sim/catalogue.h"

namespace rubato::sim {
namespace {

Trace trace_of(std::vector<TraceJob> jobs, TraceFormat format = TraceFormat::rubato_csv) {
  return {"t.csv", format, std::move(jobs), {}};
}

TraceJob job_of(std::string name, double submit_s, int gpus, std::optional<double> duration_s) {
  TraceJob job;
  job.name = std::move(name);
  job.submit_s = submit_s;
  job.gpus = gpus;
  job.duration_s = duration_s;
  return job;
}

Workload make(const Trace& trace, const WorkloadOptions& options = {}) {
  auto workload = make_workload(trace, options);
  EXPECT_TRUE(workload.ok());
  return std::move(*workload);
}

CurveBook book_of(const std::string& model, const std::string& text) {
  CurveBook book;
  book.models[model] = parse_curves(text, model).value();
  return book;
}

double seconds_alone(const SimJob& job, int gpus) {
  return job.work / job.speed->on(GpuType(), gpus);
}

TEST(Workload, RigidJobsRunTheirDurationAtTheirCount) {
  auto first = job_of("a", 100, 4, 50);
  first.user = "ann";
  first.model = "resnet50";
  first.batch = 64;
  first.weight = 2;
  first.deadline_s = 160;
  first.restart_s = 3;
  first.min_gpus = 1;  // a rigid job has a speed only at its own count
  const auto workload = make(trace_of({first, job_of("b", 107.5, 1, 0)}));
  EXPECT_EQ(workload.name, "t.csv");
  EXPECT_EQ(workload.origin_s, 100);
  ASSERT_EQ(workload.jobs.size(), 2U);
  const auto& job = workload.jobs[0];
  EXPECT_EQ(job.submit, kStart);
  EXPECT_EQ(seconds_alone(job, 4), 50);
  EXPECT_EQ(job.spec->name, "a");
  EXPECT_EQ(job.spec->user, "ann");
  EXPECT_EQ(job.spec->model, "resnet50");
  EXPECT_EQ(job.spec->batch, 64);
  EXPECT_EQ(job.spec->requested, 4);
  EXPECT_EQ(job.spec->limits.min, 4);
  EXPECT_EQ(job.spec->limits.max, 4);
  EXPECT_EQ(job.spec->weight, 2);
  EXPECT_EQ(job.spec->deadline, time_at(60));
  EXPECT_EQ(job.spec->restart_cost, from_seconds(3));
  EXPECT_EQ(workload.jobs[1].submit, time_at(7.5));
  EXPECT_EQ(workload.jobs[1].work, 0);
  EXPECT_EQ(workload.jobs[1].spec->deadline, std::nullopt);
  EXPECT_TRUE(workload.warnings.empty());
}

TEST(Workload, RestartCostGivenByHandWins) {
  auto job = job_of("a", 0, 1, 1);
  job.restart_s = 3;
  const auto workload = make(trace_of({job}), {.restart_cost_s = 7});
  EXPECT_EQ(workload.jobs[0].spec->restart_cost, from_seconds(7));
}

TEST(Workload, MeasuredCurveDecidesSpeedWorkAndLimits) {
  auto steps = job_of("a", 0, 4, 1000);
  steps.model = "net";
  steps.batch = 64;
  steps.steps = 600;
  auto duration = steps;
  duration.name = "b";
  duration.steps.reset();
  auto limited = steps;
  limited.name = "c";
  limited.min_gpus = 2;
  limited.max_gpus = 100;
  limited.allowed_gpus = {1, 2, 4, 64};
  WorkloadOptions options;
  options.curves = book_of("net", "global_batch_size,1,2,4,8\n64,1,1.5,2,nan\n");
  const auto workload = make(trace_of({steps, duration, limited}), options);
  EXPECT_EQ(workload.jobs[0].work, 600);
  EXPECT_EQ(seconds_alone(workload.jobs[0], 4), 300);
  EXPECT_EQ(workload.jobs[0].spec->limits.min, 1);
  EXPECT_EQ(workload.jobs[0].spec->limits.max, 4);
  EXPECT_EQ(workload.jobs[1].work, 2000);
  EXPECT_EQ(workload.jobs[2].spec->limits.min, 2);
  EXPECT_EQ(workload.jobs[2].spec->limits.max, 4);
  EXPECT_EQ(workload.jobs[2].spec->limits.allowed, (std::vector{2, 4}));
  EXPECT_TRUE(workload.warnings.empty());
}

TEST(Workload, JobsWithoutAMeasuredCurveFallBackWithOneWarning) {
  auto known = job_of("a", 0, 8, 10);  // beyond the curve's last count
  known.model = "net";
  known.batch = 64;
  auto other_batch = job_of("b", 0, 1, 10);
  other_batch.model = "net";
  other_batch.batch = 32;
  auto other_too = other_batch;
  other_too.name = "c";
  WorkloadOptions options;
  options.curves = book_of("net", "global_batch_size,1,2,4\n64,1,1.5,2\n");
  for (const bool assign : {false, true}) {
    options.assign_curves = assign;
    const std::string then = assign ? "gets a curve of the catalogue" : "stays rigid";
    const auto workload = make(trace_of({known, other_batch, other_too}), options);
    EXPECT_DOUBLE_EQ(seconds_alone(workload.jobs[0], 8), 10);
    EXPECT_EQ(workload.jobs[1].spec->limits.max > 1, assign);
    EXPECT_EQ(
        workload.warnings,
        (std::vector<std::string>{
            "t.csv: \"net\" with batch size 32 has no measured curve and " + then + " (2 jobs)",
            "t.csv: \"net\" with batch size 64 asks for more GPUs than its curve has and " + then +
                " (1 jobs)"}));
  }
}

TEST(Workload, ManyUnmeasuredModelsAreSummedUp) {
  std::vector<TraceJob> jobs;
  for (int i = 0; i < 50; ++i) {
    jobs.push_back(job_of(std::to_string(i), 0, 1, 1));
    jobs.back().model = "model" + std::to_string(i);
  }
  WorkloadOptions options;
  options.curves = book_of("net", "global_batch_size,1\n64,1\n");
  const auto workload = make(trace_of(jobs), options);
  ASSERT_EQ(workload.warnings.size(), 21U);
  EXPECT_EQ(workload.warnings.back(), "t.csv: 30 more models and batch sizes like that (30 jobs)");
}

RC_GTEST_PROP(Workload, AssignedCurvesKeepTheDuration, (std::uint64_t seed)) {
  const int gpus = *rc::gen::inRange(1, 4097);
  const double duration = *rc::gen::inRange(1, 1'000'000);
  const auto workload =
      make(trace_of({job_of("a", 0, gpus, duration)}), {.assign_curves = true, .seed = seed});
  const auto& job = workload.jobs[0];
  RC_ASSERT(std::abs(seconds_alone(job, gpus) - duration) < 1e-9 * duration);
  RC_ASSERT(job.spec->limits.min == 1);
  RC_ASSERT(job.spec->limits.max >= gpus);
  RC_ASSERT(job.spec->limits.max == job.speed->measured().back());
}

TEST(Workload, AssignmentDependsOnSeedAndIndexOnly) {
  std::vector<TraceJob> jobs;
  for (int i = 0; i < 200; ++i) jobs.push_back(job_of(std::to_string(i), i, 1, 60));
  const WorkloadOptions options{.assign_curves = true, .seed = 5};
  const auto one = make(trace_of(jobs), options);
  jobs[0].gpus = 8;
  jobs[1].model = "bert";
  const auto two = make(trace_of(jobs), options);
  const auto three = make(trace_of(jobs), {.assign_curves = true, .seed = 6});
  int differ = 0;
  for (std::size_t i = 2; i < jobs.size(); ++i) {
    EXPECT_EQ(one.jobs[i].work, two.jobs[i].work);
    if (two.jobs[i].work != three.jobs[i].work) ++differ;
  }
  EXPECT_GT(differ, 100);
  const Profile* bert = find_profile("bert");
  EXPECT_DOUBLE_EQ(two.jobs[1].work, 60 * bert->rate(1));
}

TEST(Workload, JobsOfOneProfileShareOneCurve) {
  auto first = job_of("a", 0, 1, 10);
  first.model = "bert";
  auto second = job_of("b", 1, 8, 9000);
  second.model = "BERT";
  const auto workload = make(trace_of({first, second}), {.assign_curves = true});
  EXPECT_EQ(workload.jobs[0].speed, workload.jobs[1].speed);
}

TEST(Workload, TraceLimitsNarrowAnAssignedCurve) {
  auto job = job_of("a", 0, 4, 10);
  job.min_gpus = 2;
  job.max_gpus = 8;
  job.allowed_gpus = {1, 4, 8, 16};
  const auto workload = make(trace_of({job}), {.assign_curves = true});
  EXPECT_EQ(workload.jobs[0].spec->limits.min, 2);
  EXPECT_EQ(workload.jobs[0].spec->limits.max, 8);
  EXPECT_EQ(workload.jobs[0].spec->limits.allowed, (std::vector{4, 8}));
}

TEST(Workload, JobsTooLargeForAnyCurveStayRigid) {
  const auto workload = make(trace_of({job_of("a", 0, 5000, 10)}), {.assign_curves = true});
  EXPECT_EQ(workload.jobs[0].spec->limits.min, 5000);
  EXPECT_EQ(seconds_alone(workload.jobs[0], 5000), 10);
  EXPECT_EQ(workload.warnings.size(), 1U);
}

TEST(Workload, MissingDurationsAreEstimatedWithOneWarning) {
  auto steps = job_of("a", 0, 2, std::nullopt);
  steps.model = "bert";
  steps.steps = 1000;
  auto nothing = job_of("b", 0, 2, std::nullopt);
  nothing.model = "bert";
  const Profile* bert = find_profile("bert");
  for (const bool assign : {false, true}) {
    const auto workload = make(trace_of({steps, nothing}), {.assign_curves = assign});
    EXPECT_DOUBLE_EQ(seconds_alone(workload.jobs[0], 2), 1000 / bert->rate(2));
    EXPECT_DOUBLE_EQ(seconds_alone(workload.jobs[1], 2), bert->gpu_hours * 1800);
    EXPECT_EQ(
        workload.warnings,
        (std::vector<std::string>{
            "t.csv: 1 jobs give steps but no duration: estimated from the built-in catalogue's "
            "speeds; --curves DIR gives measured ones",
            "t.csv: 1 jobs give neither duration nor steps: the built-in catalogue's typical "
            "GPU-hours are assumed; --curves DIR gives measured ones"}));
  }
  const auto pollux = make(trace_of({nothing}, TraceFormat::pollux));
  EXPECT_NE(pollux.warnings[0].find("--profiles DIR"), std::string::npos);
}

TEST(Workload, DeadlinesAreDrawnBySeedForJobsWithoutOne) {
  std::vector<TraceJob> jobs;
  for (int i = 0; i < 50; ++i) jobs.push_back(job_of("a", 100 + i, 2, 1000));
  jobs[7].deadline_s = 200;
  WorkloadOptions options;
  options.tightness = std::pair(0.5, 1.5);
  const auto workload = make(trace_of(jobs), options);
  EXPECT_EQ(workload.jobs[7].spec->deadline, time_at(100)) << "its own";
  std::set<Time> different;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (i == 7) continue;
    const double after = seconds(*workload.jobs[i].spec->deadline - workload.jobs[i].submit);
    EXPECT_GE(after, 500);
    EXPECT_LE(after, 1500);
    different.insert(*workload.jobs[i].spec->deadline);
  }
  EXPECT_EQ(different.size(), 49U);
  EXPECT_EQ(make(trace_of(jobs), options).jobs[3].spec->deadline, workload.jobs[3].spec->deadline);
  options.seed = 2;
  EXPECT_NE(make(trace_of(jobs), options).jobs[3].spec->deadline, workload.jobs[3].spec->deadline);
}

TEST(Workload, NeedsJobs) {
  EXPECT_EQ(make_workload(trace_of({}), {}).error().message, "t.csv: no jobs");
}

TEST(Workload, UtilitiesAreOfTheTraceOrDrawnForDeadlines) {
  auto first = job_of("a", 0, 1, 50);
  first.deadline_s = 80;
  auto second = job_of("b", 10, 1, 50);
  second.deadline_s = 90;
  second.utility = Utility{7, 0.5, from_seconds(60)};
  const auto trace = trace_of({first, second, job_of("c", 20, 1, 50)});
  EXPECT_EQ(make(trace).jobs[0].spec->utility, std::nullopt);
  EXPECT_EQ(make(trace).jobs[1].spec->utility, second.utility);
  WorkloadOptions options;
  options.utilities = true;
  const auto drawn = make(trace, options);
  ASSERT_TRUE(drawn.jobs[0].spec->utility.has_value());
  EXPECT_EQ(drawn.jobs[0].spec->utility->target, from_seconds(80));
  EXPECT_GE(drawn.jobs[0].spec->utility->value, 1);
  EXPECT_LE(drawn.jobs[0].spec->utility->value, 100);
  EXPECT_EQ(drawn.jobs[1].spec->utility, second.utility) << "the trace's own stands";
  EXPECT_EQ(drawn.jobs[2].spec->utility, std::nullopt) << "it has no deadline";
}

}  // namespace
}  // namespace rubato::sim

#include "rubato/sim/trace_verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace rubato::sim {
namespace {

TraceVerdict verdict_on(std::string_view text, const std::string& cluster) {
  const auto trace = parse_trace(text, "t", std::nullopt).value();
  return judge(trace, make_workload(trace, {}).value(), parse_cluster(cluster).value());
}

const std::string kHeader = "job_id,submit_s,gpus,duration_s\n";

TEST(TraceVerdict, HasNothingToSayAboutAPlainTrace) {
  // 2 GPUs x 100 s + 1 GPU x 100 s, in 100 s on 4 GPUs.
  const auto verdict = verdict_on(kHeader + "a,0,2,100\nb,100,1,100\n", "1x4");
  EXPECT_EQ(verdict.jobs, 2U);
  EXPECT_DOUBLE_EQ(verdict.gpu_hours, 300 / 3600.0);
  EXPECT_EQ(verdict.span_s, 100);
  EXPECT_DOUBLE_EQ(verdict.load.value(), 0.75);
  EXPECT_EQ(verdict.notes, std::vector<std::string>{});
  EXPECT_EQ(to_text(verdict), "0.1 GPU-hours submitted in 1m40s: load 0.75\n");
}

TEST(TraceVerdict, JudgesTheLoad) {
  EXPECT_EQ(verdict_on(kHeader + "a,0,2,100\nb,100,2,100\n", "1x2").notes,
            (std::vector<std::string>{
                "Load 2.00: more work than the cluster can do. The queue grows until the last "
                "submission, so averages depend on the length of the trace."}));
  EXPECT_EQ(verdict_on(kHeader + "a,0,1,10\nb,100,1,10\n", "1x2").notes,
            (std::vector<std::string>{"Load 0.10: the cluster is mostly idle. Policies differ "
                                      "little, because hardly any job waits."}));
  const auto at_once = verdict_on(kHeader + "a,7,1,10\nb,7,1,10\n", "1x2");
  EXPECT_EQ(at_once.load, std::nullopt);
  EXPECT_EQ(at_once.notes, (std::vector<std::string>{"All jobs are submitted at the same time."}));
  EXPECT_TRUE(to_json(at_once)["load"].is_null());
}

TEST(TraceVerdict, CountsOddJobs) {
  const auto verdict =
      verdict_on(kHeader + "a,0,9,100\nb,50,1,0\nc,60,1,\nd,100000,2,200000\n", "1x8");
  EXPECT_EQ(verdict.too_large, 1U);
  EXPECT_EQ(verdict.zero, 1U);
  EXPECT_EQ(verdict.estimated, 1U);
  EXPECT_EQ(verdict.gaps, 0U);  // a day is not unusual among four jobs
  EXPECT_EQ(verdict.notes,
            (std::vector<std::string>{"Jobs that ask for more GPUs than the cluster has: 1 of 4.",
                                      "Jobs that have a duration of zero: 1 of 4.",
                                      "Jobs that have no duration in the trace: 1 of 4."}));
}

TEST(TraceVerdict, FindsGaps) {
  std::string text = kHeader;
  for (int i = 0; i < 100; ++i)
    text += fmt::format("{},{},1,2000\n", i, i * 1000 + (i < 50 ? 0 : 3 * 86400));
  const auto verdict = verdict_on(text, "1x1");
  EXPECT_EQ(verdict.gaps, 1U);
  EXPECT_EQ(verdict.longest_gap_s, 1000 + 3 * 86400);
  EXPECT_EQ(verdict.longest_gap_at_s, 49000);
  EXPECT_EQ(verdict.notes,
            (std::vector<std::string>{
                "Long times without a submission: 1; the longest, 3.0d, begins at 49000 s."}));
}

TEST(TraceVerdict, SaysWhatBecameOfTheRowsOfALog) {
  const std::string header = "JobID|State|Submit|Start|End|AllocTRES\n";
  const auto verdict = verdict_on(header +
                                      "1|COMPLETED|0|0|100|gres/gpu=1\n2|FAILED|100|100|150|"
                                      "gres/gpu=1\n3|PENDING|0|Unknown|Unknown|\n"
                                      "4|RUNNING|0|0|Unknown|gres/gpu=1\n",
                                  "1x2");
  EXPECT_EQ(verdict.notes,
            (std::vector<std::string>{
                "Rows of the log that are kept as jobs: 2 (COMPLETED 1, FAILED 1).",
                "Rows of the log that are dropped because they had not ended, so their duration is "
                "not known: 2 (PENDING 1, RUNNING 1)."}));
  const auto json = to_json(verdict);
  EXPECT_EQ(json["rows_kept"].dump(), R"({"COMPLETED":1,"FAILED":1})");
  EXPECT_EQ(json["rows_dropped"].size(), 2U);
  EXPECT_EQ(json["rows_dropped"][1]["state"], "RUNNING");
  EXPECT_FALSE(to_json(verdict_on(kHeader + "a,0,1,1\n", "1x1")).contains("rows_kept"));
}

}  // namespace
}  // namespace rubato::sim

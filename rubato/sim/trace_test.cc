#include "rubato/sim/trace.h"

#include <algorithm>
#include <fstream>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <string>
#include <unistd.h>
#include <vector>
#include <zlib.h>

#include "rubato/base/time.h"

namespace rubato::sim {
namespace {

Trace parse(std::string_view text, std::optional<TraceFormat> format = {}) {
  auto trace = parse_trace(text, "folder/t.csv", format);
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return trace.ok() ? std::move(*trace) : Trace{};
}

std::string problem(std::string_view text, std::optional<TraceFormat> format = {}) {
  const auto trace = parse_trace(text, "t.csv", format);
  return trace.ok() ? "accepted" : trace.error().message;
}

// ---- Each format, detected ----

TEST(Trace, ReadsRubatoCsv) {
  const auto trace = parse(
      "job_id,submit_s,gpus,duration_s,user,model,batch,steps,deadline_s,weight,min_gpus,max_gpus,"
      "allowed_gpus,restart_s,skew\n"
      "b,10.5,4.0,0,ann,resnet50,256,1000,20,2.5,2,8,8/4/2,1.5,0.25\n"
      "\"a, the first\",0,1,,,,,,,,,,,,\n");
  EXPECT_EQ(trace.name, "t.csv");
  EXPECT_EQ(trace.format, TraceFormat::rubato_csv);
  EXPECT_TRUE(trace.warnings.empty());
  ASSERT_EQ(trace.jobs.size(), 2U);
  const auto& first = trace.jobs[0];  // sorted by submission
  EXPECT_EQ(first.name, "a, the first");
  EXPECT_EQ(first.duration_s, std::nullopt);
  EXPECT_EQ(first.weight, 1);
  const auto& second = trace.jobs[1];
  EXPECT_EQ(second.name, "b");
  EXPECT_EQ(second.submit_s, 10.5);
  EXPECT_EQ(second.gpus, 4);
  EXPECT_EQ(second.duration_s, 0);
  EXPECT_EQ(second.user, "ann");
  EXPECT_EQ(second.model, "resnet50");
  EXPECT_EQ(second.batch, 256);
  EXPECT_EQ(second.steps, 1000);
  EXPECT_EQ(second.deadline_s, 20);
  EXPECT_EQ(second.weight, 2.5);
  EXPECT_EQ(second.min_gpus, 2);
  EXPECT_EQ(second.max_gpus, 8);
  EXPECT_EQ(second.allowed_gpus, (std::vector{2, 4, 8}));
  EXPECT_EQ(second.restart_s, 1.5);
  EXPECT_EQ(second.skew, 0.25);
  EXPECT_EQ(first.skew, std::nullopt);
}

TEST(Trace, ReadsRubatoJson) {
  const auto trace = parse(R"( {"rubato_trace": 1, "made_by": "hand", "jobs": [
      {"job_id": 7, "submit_s": 3, "gpus": 2, "duration_s": 5.5, "allowed_gpus": [2, 1], "note": 0},
      {"job_id": "x", "submit_s": 1, "gpus": 1, "duration_s": null, "user": "ann"}]})");
  EXPECT_EQ(trace.format, TraceFormat::rubato_json);
  ASSERT_EQ(trace.jobs.size(), 2U);
  EXPECT_EQ(trace.jobs[0].name, "x");
  EXPECT_EQ(trace.jobs[0].user, "ann");
  EXPECT_EQ(trace.jobs[1].name, "7");
  EXPECT_EQ(trace.jobs[1].duration_s, 5.5);
  EXPECT_EQ(trace.jobs[1].allowed_gpus, (std::vector{1, 2}));
  EXPECT_EQ(trace.warnings,
            (std::vector<std::string>{"t.csv: keys ignored: \"made_by\", \"note\""}));
}

TEST(Trace, ReadsMicrosoft) {
  const auto trace = parse("job_id,submission_time,duration,num_gpu\nx-1,100,60,8\n");
  EXPECT_EQ(trace.format, TraceFormat::microsoft);
  EXPECT_EQ(trace.jobs[0].name, "x-1");
  EXPECT_EQ(trace.jobs[0].submit_s, 100);
  EXPECT_EQ(trace.jobs[0].duration_s, 60);
  EXPECT_EQ(trace.jobs[0].gpus, 8);
}

TEST(Trace, ReadsPhilly) {
  const auto trace = parse(
      "timestamp,duration,num_gpus,gpu_time,cluster\n"
      "2017-03-01 00:00:01,66.0,1,66.0,aa\n"
      "2017-02-28 23:59:59,5.0,2,10.0,bb\n"
      "2020-03-01 00:00:00,7.0,2,14.0,bb\n\n");
  EXPECT_EQ(trace.format, TraceFormat::philly);
  ASSERT_EQ(trace.jobs.size(), 3U);
  EXPECT_EQ(trace.jobs[0].name, "1");  // numbered by row, sorted by time
  EXPECT_EQ(trace.jobs[0].submit_s, 0);
  EXPECT_EQ(trace.jobs[0].user, "bb");
  EXPECT_EQ(trace.jobs[1].name, "0");
  EXPECT_EQ(trace.jobs[1].submit_s, 2);
  EXPECT_EQ(trace.jobs[2].submit_s, (3 * 365 + 1) * 86400.0 + 1);  // 2020 was a leap year
}

TEST(Trace, ReadsTiresias) {
  const auto trace = parse(
      "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n3,2,9,606,vgg19,164,"
      "30\r\n");
  EXPECT_EQ(trace.format, TraceFormat::tiresias);
  EXPECT_EQ(trace.jobs[0].name, "3");
  EXPECT_EQ(trace.jobs[0].gpus, 2);
  EXPECT_EQ(trace.jobs[0].submit_s, 9);
  EXPECT_EQ(trace.jobs[0].steps, 606);
  EXPECT_EQ(trace.jobs[0].model, "vgg19");
  EXPECT_EQ(trace.jobs[0].duration_s, 164);
}

TEST(Trace, ReadsElasticflowInBothSpellings) {
  for (const std::string header :
       {"job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n",
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration\n"}) {
    const auto trace = parse(header + "0,100,2011,cifar10,900,4096,4,500\n");
    EXPECT_EQ(trace.format, TraceFormat::elasticflow);
    EXPECT_TRUE(trace.warnings.empty());
    EXPECT_EQ(trace.jobs[0].submit_s, 100);
    EXPECT_EQ(trace.jobs[0].steps, 2011);
    EXPECT_EQ(trace.jobs[0].deadline_s, 900);
    EXPECT_EQ(trace.jobs[0].batch, 4096);
  }
}

TEST(Trace, ReadsPollux) {
  const auto trace =
      parse("name,time,application,num_replicas,batch_size\nbert-4,107,bert,6,384\n");
  EXPECT_EQ(trace.format, TraceFormat::pollux);
  EXPECT_EQ(trace.jobs[0].name, "bert-4");
  EXPECT_EQ(trace.jobs[0].model, "bert");
  EXPECT_EQ(trace.jobs[0].gpus, 6);
  EXPECT_EQ(trace.jobs[0].duration_s, std::nullopt);
  EXPECT_EQ(trace.jobs[0].steps, std::nullopt);
}

TEST(Trace, ReadsGavelAndShockwave) {
  const auto gavel = parse(
      "ResNet-18 (batch size 128)\trun \"x\" --a\tdir\t--steps\t1\t9259\t4\t2\t-1.000000\t10\n"
      "A3C\trun\tdir\t--steps\t1\t5\t1\t1\t1.2\t20.5\n");
  EXPECT_EQ(gavel.format, TraceFormat::gavel);
  ASSERT_EQ(gavel.jobs.size(), 2U);
  EXPECT_EQ(gavel.jobs[0].name, "0");
  EXPECT_EQ(gavel.jobs[0].model, "ResNet-18");
  EXPECT_EQ(gavel.jobs[0].batch, 128);
  EXPECT_EQ(gavel.jobs[0].steps, 9259);
  EXPECT_EQ(gavel.jobs[0].gpus, 4);
  EXPECT_EQ(gavel.jobs[0].weight, 2);
  EXPECT_EQ(gavel.jobs[0].submit_s, 10);
  EXPECT_EQ(gavel.jobs[1].model, "A3C");
  EXPECT_EQ(gavel.jobs[1].batch, 0);
  EXPECT_EQ(gavel.jobs[1].deadline_s, std::nullopt);
  ASSERT_EQ(gavel.warnings.size(), 1U);
  EXPECT_NE(gavel.warnings[0].find("1 jobs have an SLO"), std::string::npos);

  const auto shockwave = parse(
      "LM (batch size 10)\trun\tdir\t--steps\t1\t900\t2\tgns\t1\t-1\t300\t97\n"
      "LM (batch size 20)\trun\tdir\t--steps\t1\t900\t2\tstatic\t1\t1.5\t300\t98\n");
  EXPECT_EQ(shockwave.format, TraceFormat::shockwave);
  EXPECT_EQ(shockwave.jobs[0].duration_s, 300);
  EXPECT_EQ(shockwave.jobs[0].submit_s, 97);
  EXPECT_EQ(shockwave.jobs[0].deadline_s, std::nullopt);
  EXPECT_EQ(shockwave.jobs[1].deadline_s, 98 + 1.5 * 300);
  EXPECT_EQ(shockwave.jobs[0].batch_changes, BatchChanges::gns);
  EXPECT_EQ(shockwave.jobs[1].batch_changes, BatchChanges::none);
}

TEST(Trace, NamesItsFormats) {
  for (const auto& name : trace_format_names()) EXPECT_TRUE(parse_trace_format(name).ok()) << name;
  EXPECT_EQ(parse_trace_format("gavel").value(), TraceFormat::gavel);
  EXPECT_EQ(
      parse_trace_format("phily").error().message,
      "unknown trace format \"phily\", did you mean philly?; known are rubato-csv, rubato-json, "
      "microsoft, philly, tiresias, elasticflow, pollux, gavel, shockwave, helios, acme, sacct, "
      "sacct-json");
}

TEST(Trace, ListsTheFormatsWhenNoneFits) {
  const auto message = problem("colour,shape\nred,round\n");
  EXPECT_EQ(message.substr(0, 9), "t.csv:1: ");
  for (const auto& name : trace_format_names()) {
    EXPECT_NE(message.find("(" + name + ")"), std::string::npos) << name;
  }
  EXPECT_NE(problem("a\tb\tc\n").find("none of the trace formats"), std::string::npos);
}

TEST(Trace, KeepsTheOrderOfTheFileAmongEqualTimes) {
  std::string text = "job_id,submit_s,gpus,duration_s\n";
  for (int i = 0; i < 100; ++i) text += std::to_string(i) + "," + std::to_string(i % 2) + ",1,1\n";
  const auto trace = parse(text);
  for (std::size_t i = 0; i < 50; ++i) {
    EXPECT_EQ(trace.jobs[i].name, std::to_string(2 * i));
    EXPECT_EQ(trace.jobs[50 + i].name, std::to_string(2 * i + 1));
  }
}

TEST(Trace, WarnsOnceOfColumnsNothingReads) {
  const auto trace =
      parse("job_id,color,submit_s,gpus,duration_s,size\na,red,0,1,1,\nb,blue,0,1,1,\n");
  EXPECT_EQ(trace.warnings,
            (std::vector<std::string>{"t.csv: columns ignored: \"color\", \"size\""}));
}

TEST(Trace, ReadsGzip) {
  const std::string path = testing::TempDir() + "rubato_trace_" + std::to_string(getpid()) + ".gz";
  gzFile file = gzopen(path.c_str(), "wb");
  gzputs(file, "job_id,submit_s,gpus,duration_s\na,0,1,1\n");
  gzclose(file);
  const auto trace = read_trace(path, std::nullopt);
  ASSERT_TRUE(trace.ok()) << trace.error().message;
  EXPECT_EQ(trace->jobs.size(), 1U);
  EXPECT_EQ(read_trace(path, TraceFormat::pollux).error().message,
            path +
                ":1: no column \"name\"; the pollux format needs "
                "name,time,application,num_replicas,batch_size");
  std::remove(path.c_str());
  EXPECT_EQ(read_trace(path, std::nullopt).error().message,
            path + ": cannot be opened: No such file or directory");
}

// ---- Bad input ----

TEST(TraceErrors, SayFileLineAndReason) {
  const std::string csv = "job_id,submit_s,gpus,duration_s\n";
  const std::string full =
      "job_id,submit_s,gpus,duration_s,deadline_s,weight,min_gpus,max_gpus,allowed_gpus\n";
  struct Case {
    std::string text, message;
  };
  const std::vector<Case> cases = {
      {"", "t.csv: no jobs: the file is empty"},
      {" \n\r\n", "t.csv: no jobs: the file is empty"},
      {csv, "t.csv: no jobs"},
      {"job_id,submit_s,gpus\na,0,1\n",
       "t.csv:1: no column \"duration_s\"; the rubato-csv format needs "
       "job_id,submit_s,gpus,duration_s"},
      {"job_id,submission_time,duration\n",
       "t.csv:1: no column \"num_gpu\"; the microsoft format needs "
       "job_id,submission_time,duration,num_gpu"},
      {"job_id,submit_s,gpus,duration_s,gpus\n", "t.csv:1: two columns are called \"gpus\""},
      {csv + "a,0,1\n", "t.csv:2: 3 fields where the header has 4"},
      {csv + "a,0,1,2,3\n", "t.csv:2: 5 fields where the header has 4"},
      {csv + "\n,0,1,1\n", "t.csv:3: job_id is empty"},
      {csv + "a,,1,1\n", "t.csv:2: submit_s is empty"},
      {csv + "a,0,1,-5\n", "t.csv:2: duration_s \"-5\" is negative"},
      {csv + "a,0,1,nan\n", "t.csv:2: duration_s \"nan\" is not a finite number"},
      {csv + "a,0,1,inf\n", "t.csv:2: duration_s \"inf\" is not a finite number"},
      {csv + "a,0,1,1h\n", "t.csv:2: duration_s \"1h\" is not a number"},
      {csv + "a,0,1,1e300\n", "t.csv:2: duration_s \"1e300\" is above 31557600000"},
      {csv + "a,-1,1,1\n", "t.csv:2: submit_s \"-1\" is negative"},
      {csv + "a,NaN,1,1\n", "t.csv:2: submit_s \"NaN\" is not a finite number"},
      {csv + "a,0,0,1\n", "t.csv:2: gpus \"0\" is not a whole number from 1 to 10000000"},
      {csv + "a,0,1.5,1\n", "t.csv:2: gpus \"1.5\" is not a whole number from 1 to 10000000"},
      {csv + "a,0,nan,1\n", "t.csv:2: gpus \"nan\" is not a whole number from 1 to 10000000"},
      {csv + "a,0,1e9,1\n", "t.csv:2: gpus \"1e9\" is not a whole number from 1 to 10000000"},
      {csv + "a,0,1,1\nb,0,1,1\na,5,1,1\nb,0,1,1\n",
       "t.csv:4: the job id \"a\" was used on line 2"},
      {csv + "\x01,0,1,1\n", "t.csv:2: job_id \"\\x01\" has a control character"},
      {csv + "\xFF,0,1,1\n", "t.csv:2: job_id \"\\xff\" is not UTF-8 text"},
      {csv + std::string(300, 'a') + ",0,1,1\n", "t.csv:2: job_id is longer than 256 bytes"},
      {csv + "a,0,1," + std::string(2U << 20U, '1'), "t.csv:2: line longer than 1 MiB"},
      {full + "a,10,1,1,5,,,,\n", "t.csv:2: the deadline 5 is before the submission 10"},
      {full + "a,0,1,1,,0,,,\n", "t.csv:2: weight \"0\" must be above 0"},
      {"job_id,submit_s,gpus,duration_s,search\na,0,1,1,lr:trials=1:share=0.1\n",
       "t.csv:2: search must be NAME:trials=N:share=S, as lr:trials=8:share=0.1; keep-one-in=N and "
       "wait=false may follow"},
      {"job_id,submit_s,gpus,duration_s,utility\na,0,1,1,5/1\n",
       "t.csv:2: utility \"5/1\" is not VALUE/DECAY/TARGET, as 10/0.001/3600"},
      {"job_id,submit_s,gpus,duration_s,utility\na,0,1,1,0/1/2\n",
       "t.csv:2: utility \"0\" must be above 0"},
      {"job_id,submit_s,gpus,duration_s,utility\na,0,1,1,5/-1/2\n",
       "t.csv:2: utility \"-1\" is negative"},
      {"job_id,submit_s,gpus,duration_s,skew\na,0,1,1,1.5\n",
       "t.csv:2: skew \"1.5\" is not a share above 0 and at most 1"},
      {"job_id,submit_s,gpus,duration_s,skew\na,0,1,1,0\n",
       "t.csv:2: skew \"0\" is not a share above 0 and at most 1"},
      {full + "a,0,2,1,,,4,3,\n", "t.csv:2: min_gpus 4 is above max_gpus 3"},
      {full + "a,0,2,1,,,4,,\n", "t.csv:2: gpus 2 is below min_gpus 4"},
      {full + "a,0,2,1,,,,1,\n", "t.csv:2: gpus 2 is above max_gpus 1"},
      {full + "a,0,2,1,,,,,1/4\n", "t.csv:2: gpus 2 is not in allowed_gpus"},
      {full + "a,0,2,1,,,,,2//4\n",
       "t.csv:2: allowed_gpus \"\" is not a whole number from 1 to 10000000"},
      {"timestamp,duration,num_gpus,gpu_time,cluster\n2017-02-29 00:00:00,1,1,1,x\n",
       "t.csv:2: timestamp \"2017-02-29 00:00:00\" is not a time YYYY-MM-DD HH:MM:SS"},
      {"timestamp,duration,num_gpus,gpu_time,cluster\n"
       "0001-01-01 00:00:00,1,1,1,x\n2017-01-01 00:00:00,1,1,1,x\n",
       "t.csv: its times span more than 1,000 years"},
      {"A3C (batch size 1\tc\td\ta\t1\t5\t1\t1\t-1\t0\n",
       "t.csv:1: job type \"A3C (batch size 1\" has no end of its batch size"},
      {"A3C\tc\td\ta\t1\t5\t1\t1\t-1\t0\nA3C\tc\td\n", "t.csv:2: 3 fields where the format has 10"},
      {"A3C\tc\td\ta\t1\t5\t1\twild\t1\t-1\t3\t0\n",
       "t.csv:1: mode \"wild\" is not static, accordion or gns"},
  };
  for (const auto& each : cases) EXPECT_EQ(problem(each.text), each.message);
}

TEST(TraceErrors, OfJsonNameTheJob) {
  const std::string open = R"({"rubato_trace":1,"jobs":[{"job_id":"a","submit_s":0,"gpus":1},)";
  struct Case {
    std::string text, message;
  };
  const std::vector<Case> cases = {
      {"{", "t.csv: not valid JSON near byte 2"},
      {R"({"rubato_trace":2,"jobs":[]})",
       R"(t.csv: not of the form {"rubato_trace": 1, "jobs": [...]})"},
      {R"({"rubato_trace":1,"jobs":[]})", "t.csv: no jobs"},
      {open + "3]}", "t.csv: jobs[1]: is not an object"},
      {open + R"({"job_id":"b","submit_s":0}]})", "t.csv: jobs[1]: gpus is missing"},
      {open + R"({"job_id":"","submit_s":0,"gpus":1}]})", "t.csv: jobs[1]: job_id is empty"},
      {open + R"({"job_id":"b","submit_s":"0","gpus":1}]})",
       "t.csv: jobs[1]: submit_s has a value of the wrong type"},
      {open + R"({"job_id":"b","submit_s":-1,"gpus":1}]})",
       "t.csv: jobs[1]: submit_s \"-1\" is negative"},
      {open + R"({"job_id":"a","submit_s":0,"gpus":1}]})",
       "t.csv: jobs[1]: the job id \"a\" was used by jobs[0]"},
  };
  for (const auto& each : cases) EXPECT_EQ(problem(each.text), each.message);
}

// ---- Writing ----

rc::Gen<std::string> label() {
  return rc::gen::container<std::string>(rc::gen::element('a', 'B', '7', ',', '"', ' ', '-'));
}

template <class T>
std::optional<T> maybe(const T& value) {
  return *rc::gen::arbitrary<bool>() ? std::optional<T>(value) : std::nullopt;
}

TraceJob some_job(std::size_t index) {
  const auto number = [] { return *rc::gen::inRange(0, 1'000'000) / 7.0; };
  TraceJob job;
  job.name = std::to_string(index) + *label();
  job.user = *label();
  job.model = *label();
  job.submit_s = number();
  job.gpus = *rc::gen::inRange(1, 100);
  job.duration_s = maybe(number());
  job.steps = maybe(number());
  job.batch = *rc::gen::inRange(0, 3);
  job.deadline_s = maybe(job.submit_s + number());
  job.weight = *rc::gen::element(1.0, 0.1, 7.5);
  job.min_gpus = maybe(job.gpus);
  job.max_gpus = maybe(job.gpus + 1);
  if (*rc::gen::arbitrary<bool>()) job.allowed_gpus = {job.gpus, job.gpus + 1};
  job.restart_s = maybe(number());
  if (*rc::gen::arbitrary<bool>())
    job.utility = Utility{number() + 1, number() / 1e6, from_seconds(number())};
  if (*rc::gen::arbitrary<bool>())
    job.search = TraceSearch{"s", {3, 3, false}, 0.25, *rc::gen::arbitrary<bool>()};
  job.opportunistic = *rc::gen::arbitrary<bool>();
  job.skew = maybe(*rc::gen::inRange(1, 1000) / 1000.0);
  return job;
}

RC_GTEST_PROP(TraceWriting, ReadsBackTheSameJobs, ()) {
  Trace trace;
  const auto jobs = *rc::gen::inRange<std::size_t>(1, 20);
  for (std::size_t i = 0; i < jobs; ++i) trace.jobs.push_back(some_job(i));
  std::sort(trace.jobs.begin(), trace.jobs.end(),
            [](const TraceJob& a, const TraceJob& b) { return a.submit_s < b.submit_s; });
  const auto from_csv = parse_trace(to_csv(trace), "t.csv", std::nullopt);
  const auto from_json = parse_trace(to_json_text(trace), "t.json", std::nullopt);
  RC_ASSERT(from_csv.ok());
  RC_ASSERT(from_json.ok());
  RC_ASSERT(from_csv->format == TraceFormat::rubato_csv);
  RC_ASSERT(to_json_text(*from_csv) == to_json_text(trace));
  RC_ASSERT(to_json_text(*from_json) == to_json_text(trace));
}

}  // namespace
}  // namespace rubato::sim

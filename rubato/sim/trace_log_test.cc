// The logs of real clusters: Helios, Acme and Slurm's accounting. The samples are our own, with the
// published columns.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "rubato/sim/sacct_json.h"
#include "rubato/sim/trace.h"
#include "rubato/sim/trace_record.h"

namespace rubato::sim {
namespace {

Trace read_log(std::string_view text) {
  auto trace = parse_trace(text, "log", std::nullopt);
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  return trace.ok() ? std::move(*trace) : Trace{};
}

std::string log_problem(std::string_view text) {
  const auto trace = parse_trace(text, "log", std::nullopt);
  return trace.ok() ? "accepted" : trace.error().message;
}

// "name user submit gpus duration", a line a job.
std::vector<std::string> brief(const Trace& trace) {
  std::vector<std::string> lines;
  for (const auto& job : trace.jobs) {
    lines.push_back(fmt::format("{} {} {} {} {}", job.name, job.user, job.submit_s, job.gpus,
                                job.duration_s.value_or(-1)));
  }
  return lines;
}

// "COMPLETED 3", and "PENDING 1: why" for rows that were dropped.
std::vector<std::string> rows_of(const Trace& trace) {
  std::vector<std::string> lines;
  for (const auto& [state, why, rows] : trace.rows)
    lines.push_back(fmt::format("{} {}{}{}", state, rows, why.empty() ? "" : ": ", why));
  return lines;
}

using Lines = std::vector<std::string>;

const std::string kHeliosHeader =
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,"
    "queue\n";
const std::string kSacctHeader = "JobID|User|State|Submit|Start|End|ElapsedRaw|ReqTRES|AllocTRES\n";

TEST(TraceLog, ReadsHelios) {
  const auto trace = read_log(
      kHeliosHeader +
      "101,ann,vision,8,64,1,COMPLETED,2024-02-28 23:59:00,2024-02-28 23:59:30,2024-02-29 "
      "01:59:30,7200,30\n"
      "102,bob,speech,2.0,8,1,CANCELLED,2024-02-29 00:00:00,2024-02-29 00:00:00,2024-02-29 "
      "00:10:00,600,0\n"
      "103,bob,speech,0,8,1,COMPLETED,2024-02-29 00:01:00,2024-02-29 00:01:00,2024-02-29 "
      "00:02:00,60,0\n"
      "104,ann,vision,4,8,1,CANCELLED,2024-02-29 00:02:00,,,0,0\n");
  EXPECT_EQ(trace.format, TraceFormat::helios);
  EXPECT_EQ(trace.warnings, Lines{});
  EXPECT_EQ(brief(trace), (Lines{"101 ann 0 8 7200", "102 bob 60 2 600"}));
  EXPECT_EQ(rows_of(trace), (Lines{"COMPLETED 1", "CANCELLED 1", "COMPLETED 1: had no GPU",
                                   "CANCELLED 1: never started, so their duration is not known"}));
}

// In the published log of one of Acme's clusters, the duration includes the time in the queue. Its
// clusters write their times with different offsets.
TEST(TraceLog, ReadsAcme) {
  const auto trace = read_log(
      "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
      "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
      "p1,ann,2,16,128,500,50.0,Pretrain,FAILED,2024-03-01 08:00:00+08:00,2024-03-01 "
      "08:00:10+08:00,2024-03-01 08:01:10+08:00,2024-03-01 08:01:10+08:00,,70,10.0,1120.0\n"
      "p2,bob,1,8,64,500,50.0,Other,COMPLETED,2024-03-01 00:00:30+00:00,2024-03-01 "
      "00:00:30+00:00,2024-03-01 01:00:30+00:00,,,3600,0.0,28800.0\n"
      "p3,bob,1,8,64,500,50.0,Other,RUNNING,2024-03-01 00:01:00+00:00,2024-03-01 "
      "00:01:00+00:00,2024-03-01 00:02:00+00:00,,,60,0.0,480.0\n"
      "p4,bob,1,8,64,500,50.0,Other,FAILED,2024-03-01 00:01:00+00:00,2024-03-01 "
      "00:02:00+00:00,2024-03-01 00:01:00+00:00,,,,,\n");
  EXPECT_EQ(trace.format, TraceFormat::acme);
  EXPECT_EQ(brief(trace), (Lines{"p1 ann 0 16 60", "p2 bob 30 8 3600"}));
  EXPECT_EQ(trace.warnings, (Lines{"log: 1 jobs have a duration that is not the time from their "
                                   "start to their end: that time counts"}));
  EXPECT_EQ(rows_of(trace), (Lines{"FAILED 1", "COMPLETED 1",
                                   "RUNNING 1: had not ended, so their duration is not known",
                                   "FAILED 1: ended before they started"}));
}

TEST(TraceLog, ReadsSacct) {
  const auto trace = read_log(
      kSacctHeader +
      "7|ann|COMPLETED|2026-03-01T10:00:00|2026-03-01T10:00:05|2026-03-01T11:00:05|3600|billing=8,"
      "cpu=8,gres/gpu=4,mem=64G,node=1|billing=8,cpu=8,gres/gpu:v100=4,gres/gpu=4,mem=64G,node=1\n"
      "7.batch||COMPLETED|2026-03-01T10:00:05|2026-03-01T10:00:05|2026-03-01T11:00:05|3600||cpu=8,"
      "gres/gpu:v100=4,gres/gpu=4,mem=64G,node=1\n"
      "8_2|bob|CANCELLED by 1000|2026-03-01T10:00:10|2026-03-01T10:00:12|2026-03-01T10:01:12|60|"
      "cpu=1,gres/gpu:v100=1|cpu=1,gres/gpu:v100=1\n"
      "9+0|bob|TIMEOUT|2026-03-01T10:00:20|2026-03-01T10:00:30|2026-03-01T10:02:30|120|cpu=1,"
      "gres/gpu=2|cpu=1,gres/gpu=2\n"
      "9+1|bob|TIMEOUT|2026-03-01T10:00:20|2026-03-01T10:00:30|2026-03-01T10:02:29|119|cpu=1,"
      "gres/gpu=1|cpu=1,gres/gpu=1\n"
      "9+0.batch||TIMEOUT|2026-03-01T10:00:30|2026-03-01T10:00:30|2026-03-01T10:02:30|120||cpu=1\n"
      "10|bob|CANCELLED by 0|2026-03-01T10:00:30|None|2026-03-01T10:00:40|0|gres/gpu=2|\n"
      "11|bob|RUNNING|2026-03-01T10:00:30|2026-03-01T10:00:31|Unknown|50|gres/gpu=2|gres/gpu=2\n"
      "12_[3-9%2]|bob|PENDING|2026-03-01T10:00:30|Unknown|Unknown|0|gres/gpu=2|\n"
      "13|bob|COMPLETED|2026-03-01T10:00:30|2026-03-01T10:00:31|2026-03-01T10:00:41|10|cpu=1|cpu=1"
      "\n");
  EXPECT_EQ(trace.format, TraceFormat::sacct);
  EXPECT_EQ(trace.warnings, Lines{});
  EXPECT_EQ(brief(trace), (Lines{"7 ann 0 4 3600", "8_2 bob 10 1 60", "9 bob 20 3 120"}));
  EXPECT_EQ(
      rows_of(trace),
      (Lines{"TIMEOUT 2", "COMPLETED 1", "COMPLETED 1: are steps of jobs that have their own row",
             "CANCELLED 1", "TIMEOUT 1: are steps of jobs that have their own row",
             "CANCELLED 1: never started, so their duration is not known",
             "RUNNING 1: had not ended, so their duration is not known",
             "PENDING 1: had not ended, so their duration is not known",
             "COMPLETED 1: had no GPU"}));
}

// `sacct -p` ends each line with a bar. SLURM_TIME_FORMAT=%s gives seconds. Without Elapsed, the
// times count.
TEST(TraceLog, ReadsOtherSpellingsOfSacct) {
  const auto bars = read_log(
      "JobID|State|Elapsed|Submit|Start|End|AllocTRES|JobName|\n"
      "1|COMPLETED|1-02:03:04|100|105|200|gres/gpu:a100=1,gres/gpu:v100=2|x|\n");
  EXPECT_EQ(bars.format, TraceFormat::sacct);
  EXPECT_EQ(bars.warnings, Lines{});
  EXPECT_EQ(brief(bars), (Lines{"1  0 3 93784"}));
  const auto times =
      read_log("jobid|state|submit|start|end|alloctres\n1|FAILED|9|10|30|gres/gpu=1\n");
  EXPECT_EQ(brief(times), (Lines{"1  0 1 20"}));
}

// The first object is as Slurm 22.05 writes it, the second as later versions do.
TEST(TraceLog, ReadsSacctJson) {
  const auto trace = read_log(R"({"meta":{"plugin":{}},"errors":[],"jobs":[
    {"job_id":7,"array":{"job_id":0,"task_id":null},"het":{"job_id":0,"job_offset":null},
     "user":"ann","state":{"current":"COMPLETED","reason":"None"},
     "time":{"elapsed":3600,"submission":1772359200,"start":1772359205,"end":1772362805},
     "tres":{"allocated":[{"type":"cpu","name":null,"count":8},{"type":"gres","name":"gpu",
       "count":4},{"type":"gres","name":"gpu:v100","count":4}],"requested":[]}},
    {"job_id":21,"array":{"job_id":8,"task_id":{"set":true,"infinite":false,"number":2}},
     "het":{"job_id":0,"job_offset":{"set":false,"infinite":false,"number":0}},"user":"bob",
     "state":{"current":["CANCELLED"]},
     "time":{"elapsed":60,"submission":1772359210,"start":1772359212,"end":1772359272},
     "tres":{"allocated":[{"type":"gres","name":"gpu","count":1}],"requested":[]}},
    {"job_id":31,"array":{"job_id":0},"het":{"job_id":30,"job_offset":1},"user":"bob",
     "state":{"current":"FAILED"},
     "time":{"elapsed":5,"submission":1772359220,"start":1772359221,"end":1772359226},
     "tres":{"allocated":[{"type":"gres","name":"gpu","count":2}],"requested":[]}},
    {"job_id":30,"array":{"job_id":0},"het":{"job_id":30,"job_offset":0},"user":"bob",
     "state":{"current":"FAILED"},
     "time":{"elapsed":6,"submission":1772359220,"start":1772359221,"end":1772359227},
     "tres":{"allocated":[{"type":"gres","name":"gpu","count":2}],"requested":[]}},
    {"job_id":40,"array":{"job_id":40,"task":"0x3E0","task_id":null},"het":{"job_id":0},
     "user":"bob","state":{"current":"PENDING"},
     "time":{"elapsed":0,"submission":1772359230,"start":0,"end":0},
     "tres":{"allocated":[],"requested":[{"type":"gres","name":"gpu","count":1}]}}]})");
  EXPECT_EQ(trace.format, TraceFormat::sacct_json);
  EXPECT_EQ(brief(trace), (Lines{"7 ann 0 4 3600", "8_2 bob 10 1 60", "30 bob 20 4 6"}));
  EXPECT_EQ(rows_of(trace), (Lines{"FAILED 2", "COMPLETED 1", "CANCELLED 1",
                                   "PENDING 1: had not ended, so their duration is not known"}));
}

TEST(TraceLog, SaysWhatIsWrong) {
  const std::string times = "2026-03-01T10:00:00|2026-03-01T10:00:05|2026-03-01T11:00:05";
  struct Case {
    std::string text, message;
  };
  const std::vector<Case> cases = {
      {"JobID|State|Submit|Start|End\n1|COMPLETED|1|2|3\n",
       "log:1: no column \"alloctres\"; the sacct format needs jobid|state|submit|start|end|"
       "alloctres"},
      {kSacctHeader + "1|a|COMPLETED|" + times + "|5\n", "log:2: 7 fields where the header has 9"},
      {kSacctHeader + "1|a|COMPLETED|" + times + "|5s||gres/gpu=1\n",
       "log:2: elapsedraw \"5s\" is not a time [DAYS-]HH:MM:SS or a number of seconds"},
      {kSacctHeader + "1|a|COMPLETED|yesterday|1|2|5||gres/gpu=1\n",
       "log:2: submit \"yesterday\" is not a time YYYY-MM-DD HH:MM:SS"},
      {kSacctHeader + "1|a|COMPLETED|" + times + "|5||gpu:4\n",
       "log:2: alloctres \"gpu:4\" is not a list of resources such as cpu=8,gres/gpu=4"},
      {kSacctHeader + "1|a|COMPLETED|" + times + "|5||gres/gpu=4G\n",
       "log:2: alloctres \"gres/gpu=4G\" has a number of GPUs that is not whole"},
      {kSacctHeader + "1|a|COMPLETED|" + times + "|5||gres/gpu=99999999\n",
       "log:2: alloctres \"99999999\" is not a whole number from 0 to 10000000"},
      {kSacctHeader + "+1|a|COMPLETED|" + times + "|5||gres/gpu=4\n",
       "log:2: jobid \"+1\" names no job"},
      {kSacctHeader + "1|a|PENDING|" + times + "|0||\n2|a|COMPLETED|" + times + "|5||cpu=1\n",
       "log: no jobs: 1 rows had not ended, so their duration is not known; 1 rows had no GPU"},
      {kSacctHeader + "1|a|COMPLETED|" + times + "|5||gres/gpu=1\n1|a|COMPLETED|" + times +
           "|5||gres/gpu=1\n",
       "log:3: the job id \"1\" was used on line 2"},
      {kHeliosHeader + "1,a,v,-1,1,1,COMPLETED,2024-02-28 23:59:00,,,,\n",
       "log:2: gpu_num \"-1\" is not a whole number from 0 to 10000000"},
      {kHeliosHeader + "1,a,v,1,1,1,COMPLETED,2024-02-28 24:00:00,,,,\n",
       "log:2: submit_time \"2024-02-28 24:00:00\" is not a time YYYY-MM-DD HH:MM:SS"},
      {R"({"meta":{},"jobs":5})", "log: not the output of sacct --json, which has meta and jobs"},
      {R"({"meta":{},"jobs":[7]})", "log: jobs[0]: is not an object"},
      {R"({"meta":{},"jobs":[{"job_id":1}]})", "log: jobs[0]: state.current is missing"},
  };
  for (const auto& each : cases) EXPECT_EQ(log_problem(each.text), each.message);
}

TEST(TraceRecord, ParsesTimes) {
  EXPECT_EQ(parse_timestamp("1970-01-02 00:00:01"), 86401);
  EXPECT_EQ(parse_timestamp("1970-01-02T00:00:01"), 86401);
  EXPECT_EQ(parse_timestamp("1970-01-01T08:00:00.25+08:00"), 0.25);
  EXPECT_EQ(parse_timestamp("1970-01-01 00:00:00-01:30"), 5400);
  EXPECT_EQ(parse_timestamp("1970-01-01T00:00:07Z"), 7);
  EXPECT_EQ(parse_timestamp("12"), 12);
  for (const char* bad : {"", "1970-01-01", "1970-1-1 00:00:00", "1970-13-01 00:00:00",
                          "1970-01-01 00:00:00 ", "1970-01-01 00:00:00+8", "1970-01-01 00:00:00.",
                          "1970-01-01 00:00:00+08:0x", "1e300", "-5", "nan", "12.5"}) {
    EXPECT_EQ(parse_timestamp(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(parse_elapsed("00:00:09"), 9);
  EXPECT_EQ(parse_elapsed("10-01:00:00"), 867600);
  EXPECT_EQ(parse_elapsed("77"), 77);
  for (const char* bad : {"", "-", "1-", "1:2:3", "00:00:60", "x-00:00:01", "-1", "00:00:01.5"})
    EXPECT_EQ(parse_elapsed(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace rubato::sim

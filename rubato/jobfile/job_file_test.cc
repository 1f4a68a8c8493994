#include "rubato/jobfile/job_file.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <string>

#include "rubato/base/json_reader.h"
#include "rubato/base/random.h"
#include "rubato/jobfile/job_fields.h"

namespace rubato::jobfile {
namespace {

std::string problem(const std::string& text) {
  const auto job = parse_job_file(text, "job");
  return job ? "accepted as " + to_json(*job).dump() : job.error().message;
}
// The rest of a job whose command is in order.
std::string problem_with(const std::string& fields) { return problem("command: [a]\n" + fields); }

JobFile read(const std::string& text) {
  const auto job = parse_job_file(text, "job");
  EXPECT_TRUE(job.ok()) << job.error().message;
  return job ? *job : JobFile{};
}

constexpr const char* kFullYaml = R"(# every field
command: [python, train.py, --lr, 1e-3, '010']
name: resnet
profile: resnet-cifar
directory: /data/run
goal: {deadline: "2026-11-20T17:00:00+01:00"}
work:
  epochs: 3.5
gpus: {min: 2, max: 8, allowed: [8, 2, 4, 4, 16]}
elastic: false
batch: {mode: adaptive, min: 64, max: 4096}
learning_rate: sqrt
env:
  LEVEL: 010
  FLAG: yes
secrets: {HUB: /data/hub.key}
weight: 2.5
max_failures: 0
notice: 30s
cooldown: 1h30m
stop_after: 600
)";

TEST(JobFile, ReadsEveryField) {
  const JobFile job = read(kFullYaml);
  EXPECT_EQ(job.command, (std::vector<std::string>{"python", "train.py", "--lr", "1e-3", "010"}));
  EXPECT_EQ(job.name, "resnet");
  EXPECT_EQ(job.profile, "resnet-cifar");
  EXPECT_EQ(job.directory, "/data/run");
  EXPECT_EQ(to_text(*job.deadline), "2026-11-20T16:00:00Z");
  EXPECT_EQ(job.work, (WorkAmount{WorkUnit::epochs, 3.5}));
  EXPECT_EQ(job.gpus.min, 2);
  EXPECT_EQ(job.gpus.max, 8);
  EXPECT_EQ(job.gpus.allowed, (std::vector<int>{2, 4, 8}));
  EXPECT_FALSE(job.elastic);
  EXPECT_EQ(job.batch, (BatchWish{BatchMode::adaptive, 64, 4096}));
  EXPECT_EQ(job.learning_rate, RateRule::square_root);
  EXPECT_EQ(job.env, (std::map<std::string, std::string>{{"LEVEL", "010"}, {"FLAG", "yes"}}));
  EXPECT_EQ(job.secrets.at("HUB"), "/data/hub.key");
  EXPECT_EQ(job.weight, 2.5);
  EXPECT_EQ(job.max_failures, 0);
  EXPECT_EQ(job.notice, std::chrono::seconds(30));
  EXPECT_EQ(job.cooldown, std::chrono::minutes(90));
  EXPECT_EQ(job.stop_after, std::chrono::minutes(10));
}

TEST(JobFile, JsonAndYamlAreTheSame) {
  const JobFile job = read(kFullYaml);
  EXPECT_EQ(to_json(read(to_json(job).dump())), to_json(job));
}

TEST(JobFile, OnlyTheCommandIsNeeded) {
  const JobFile job = read(R"({"command": ["./train"]})");
  EXPECT_EQ(job.gpus.min, 1);
  EXPECT_EQ(job.gpus.max, 0);
  EXPECT_FALSE(job.deadline || job.deadline_after || job.work || job.stop_after);
  EXPECT_TRUE(job.elastic);
  EXPECT_EQ(job.weight, 1);
  EXPECT_EQ(job.max_failures, 3);
  EXPECT_EQ(read("command: [a]\ngpus: 4").gpus.min, 4);
  EXPECT_EQ(read("command: [a]\ngpus: 4").gpus.max, 4);
  EXPECT_EQ(read("command: [a]\ngoal: asap").deadline, std::nullopt);
  EXPECT_EQ(read("command: [a]\ngoal: {deadline: +2h}").deadline_after, std::chrono::hours(2));
}

TEST(JobFile, TheCommandIsAnArgvListAndNoLineForAShell) {
  EXPECT_EQ(problem("name: x"),
            "job: command is missing: say what to run, as in [python, train.py]");
  const std::string list =
      "job: command must be a list, as in [python, train.py]; no shell reads it";
  EXPECT_EQ(problem("command: python train.py"), list);
  EXPECT_EQ(problem("command: []"), list);
  EXPECT_EQ(problem(R"({"command": ["a", 1]})"), "job: command[1] must be text, in quotes");
  EXPECT_EQ(problem(R"({"command": ["a", "b\u0000c"]})"), "job: command[1] has a zero byte in it");
  EXPECT_EQ(problem("command: ['']"), "job: command begins with an empty word");
  EXPECT_EQ(read("command: [sh, -c, 'a; b $X']").command[2], "a; b $X");
  EXPECT_EQ(problem("[a]"), "job: a job has named fields, such as command");
  EXPECT_EQ(problem(""), "job: a job has named fields, such as command");
}

TEST(JobFile, UnknownFieldsAreNamedWithWhatIsAllowed) {
  std::vector<std::string_view> names;
  for (const JobField& field : job_fields()) names.push_back(field.name);
  EXPECT_EQ(
      problem_with("gpu: 4"),
      "job: a job has no field \"gpu\" (did you mean gpus?); it can have " + alternatives(names));
  EXPECT_EQ(problem_with("gpus: {mx: 4}"),
            "job: gpus has no field \"mx\" (did you mean max?); it can have min, max or allowed");
  EXPECT_EQ(problem_with("goal: {by: 4}"), "job: goal has no field \"by\"; it can have deadline");
  EXPECT_EQ(problem_with("user: ada"),
            "job: user cannot be given: who submits a job is known from the connection");
}

TEST(JobFile, WhatIsTrueAndWhatIsNot) {
  EXPECT_TRUE(read("command: [a]\nelastic: true").elastic);
  EXPECT_FALSE(read(R"({"command": ["a"], "elastic": false})").elastic);
  for (const char* word : {"no", "0", "False", "[]", "''"}) {
    EXPECT_EQ(problem_with(std::string("elastic: ") + word), "job: elastic must be true or false");
  }
}

TEST(JobFile, SecretsAreGivenByReferenceAndNeverEchoed) {
  for (const char* inlined : {"hunter2", "''", "[x]", "relative/path", "{value: hunter2}"}) {
    EXPECT_EQ(problem_with(std::string("secrets: {KEY: ") + inlined + "}"),
              "job: secrets.KEY must be the absolute path of the file with the secret, never the "
              "secret itself");
  }
  EXPECT_EQ(problem_with("env: {A: x}\nsecrets: {A: /x}"), "job: A is both in env and in secrets");
}

TEST(JobFile, NamesOfVariablesAreChecked) {
  for (const char* name : {"'A=B'", "'1A'", "''", "'A B'", "'é'", "'A-B'"}) {
    const std::string found = problem_with(std::string("env: {") + name + ": x}");
    EXPECT_NE(found.find("is no name of a variable"), std::string::npos) << found;
  }
  EXPECT_EQ(problem_with("env: {RUBATO_TOKEN: x}"),
            "job: env.RUBATO_TOKEN: names that begin with RUBATO_ are set by rubato itself");
  EXPECT_EQ(problem("{\"command\":[\"a\"],\"env\":{\"A\":1}}"),
            "job: env.A must be text, in quotes");
}

TEST(JobFile, NamesCanBeSeenAndAreNoNumbers) {
  EXPECT_EQ(read("command: [a]\nname: größe-日本:v1.2").name, "größe-日本:v1.2");
  EXPECT_EQ(problem_with("name: '42'"), "job: name 42 is a number; add a letter");
  for (const char* name : {"a b", "a/b", "..", "a\\x1b[2J", "a\\u202eb", "a\\n"}) {
    const std::string found = problem_with(std::string("name: \"") + name + "\"");
    EXPECT_NE(found.find("bytes of visible characters"), std::string::npos) << found;
  }
  EXPECT_NE(problem_with("name: " + std::string(101, 'x')).find("at most 100"), std::string::npos);
}

TEST(JobFile, NamesAfterProgramsKeepTheRulesOfNames) {
  EXPECT_EQ(name_after("/opt/bin/train"), "train");
  EXPECT_EQ(name_after("train.py"), "train.py");
  EXPECT_EQ(name_after("/data/\xc3\xbc"
                       "bung"),
            "\xc3\xbc"
            "bung");
  EXPECT_EQ(name_after("a\x1b[2Jb c"), "a_[2Jb_c");
  EXPECT_EQ(name_after("x\xe2\x80\xaegpj.sh"), "x_gpj.sh") << "U+202E turns the direction";
  EXPECT_EQ(name_after("a\xc2\xa0"
                       "b"),
            "a_b");
  EXPECT_EQ(name_after("12"), "job-12");
  for (const char* none : {"/opt/", "/", "..", "./."}) EXPECT_EQ(name_after(none), "job") << none;
  EXPECT_EQ(name_after(std::string(5000, 'n')), std::string(100, 'n'));
  EXPECT_EQ(name_after(std::string(99, 'n') + "\xc3\xbc"), std::string(99, 'n'));
  // Whatever a program is called, its name is one that a file could give.
  Random random(3);
  for (int i = 0; i < 3000; ++i) {
    std::string program;
    for (auto left = random.below(150); left > 0; --left) {
      const auto kind = random.below(4);
      program += kind == 0   ? std::string(1, static_cast<char>(1 + random.below(126)))
                 : kind == 1 ? std::string(1, static_cast<char>('0' + random.below(10)))
                 : kind == 2 ? std::string("\xe2\x80\xae")
                             : std::string("\xe2\x82\xac");
    }
    const Json file = {{"command", {"a"}}, {"name", name_after(program)}};
    const auto read = read_job(file, "it");
    ASSERT_TRUE(read) << read.error().message;
    ASSERT_FALSE(read->name.empty());
  }
}

TEST(JobFile, NumbersAreInRange) {
  for (const char* weight : {"0", "-1", "nan", "inf", "1e7", "1e-9", "x", "[1]"}) {
    EXPECT_EQ(problem_with(std::string("weight: ") + weight),
              "job: weight must be a number above 1e-06 and at most 1000000");
  }
  EXPECT_EQ(problem_with("work: {steps: 0}"),
            "job: work.steps must be a number above 0 and at most 1000000000000000");
  EXPECT_EQ(problem_with("work: {steps: 3, epochs: 1}"),
            "job: work needs one of steps, epochs or samples");
  EXPECT_EQ(problem_with("work: {}"), "job: work needs one of steps, epochs or samples");
  EXPECT_EQ(problem_with("gpus: 0"), "job: gpus must be a whole number from 1 to 1048576");
  EXPECT_EQ(problem_with("gpus: {min: 1.5}"),
            "job: gpus.min must be a whole number from 1 to 1048576");
  EXPECT_EQ(problem_with("gpus: {min: 4, max: 2}"), "job: gpus.max is below gpus.min");
  EXPECT_EQ(problem_with("gpus: {min: 3, max: 3, allowed: [1, 2, 4]}"),
            "job: gpus.allowed names no count from gpus.min to gpus.max");
  EXPECT_EQ(problem_with("gpus: {allowed: []}"),
            "job: gpus.allowed must be a list of counts from 1 to 1048576");
  EXPECT_EQ(problem(R"({"command":["a"],"max_failures":18446744073709551615})"),
            "job: max_failures must be a whole number from 0 to 1000000");
  EXPECT_EQ(problem_with("notice: 0s"),
            "job: notice must be above 0s: a worker needs a moment to end by itself");
  EXPECT_EQ(problem_with("batch: {mode: elastic}"), "job: batch.mode must be fixed or adaptive");
  EXPECT_EQ(problem_with("batch: {min: 8, max: 4}"), "job: batch.max is below batch.min");
  EXPECT_EQ(problem_with("learning_rate: 0.1"),
            "job: learning_rate must be adascale, sqrt or linear");
}

TEST(JobFile, SizeAndDepthAreLimited) {
  EXPECT_EQ(problem("{\"command\": \"" + std::string(65536, 'x') + "\"}"),
            "job: larger than the 65536 bytes allowed for JSON");
  EXPECT_EQ(problem("command: " + std::string(65536, 'x')),
            "job: larger than the 65536 bytes allowed for YAML");
  EXPECT_EQ(problem("{\"a\":" + std::string(60'000, '[')), "job: nested deeper than 16 levels");
}

TEST(JobFile, Spans) {
  const auto of = [](const char* text) -> double {
    const auto span = parse_span(text);
    return span ? seconds(*span) : -1;
  };
  EXPECT_EQ(of("90"), 90);
  EXPECT_EQ(of("90s"), 90);
  EXPECT_EQ(of("1.5m"), 90);
  EXPECT_EQ(of("2h"), 7200);
  EXPECT_EQ(of("1d12h"), 129600);
  EXPECT_EQ(of("1h30m"), 5400);
  EXPECT_EQ(of("0s"), 0);
  for (const char* bad : {"", "h", "-1s", "+1s", "1w", "1m1h", "1s1s", "1e3", "1..2", ".", "4000d",
                          "1 h", "nan", "inf"}) {
    EXPECT_EQ(parse_span(bad), std::nullopt) << bad;
  }
  EXPECT_EQ(to_text(Duration(1)), "0.000001s");
  EXPECT_EQ(to_text(Duration(90'500'000)), "90.500000s");
}

TEST(JobFile, WallTimes) {
  const auto of = [](const char* text) {
    const auto time = parse_wall_time(text);
    return time ? to_text(*time) : "refused";
  };
  EXPECT_EQ(of("2026-11-20T17:00:00+01:00"), "2026-11-20T16:00:00Z");
  EXPECT_EQ(of("2026-11-20T17:00Z"), "2026-11-20T17:00:00Z");
  EXPECT_EQ(of("2026-11-20 17:00:00.25-0530"), "2026-11-20T22:30:00.250000Z");
  EXPECT_EQ(of("2024-02-29T00:00Z"), "2024-02-29T00:00:00Z");
  EXPECT_EQ(of("2026-12-31T23:59:59.9999999Z"), "2026-12-31T23:59:59.999999Z");
  for (const char* bad :
       {"", "2026-11-20T17:00:00", "2026-11-20", "2026-02-29T00:00Z", "2026-13-01T00:00Z",
        "2026-11-20T24:00Z", "2026-11-20T17:60Z", "2026-11-20T17:00:60Z", "1969-12-31T00:00Z",
        "1970-01-01T00:00+01:00", "9000-01-01T00:00Z", "8999-12-31T23:59-23:59",
        "2026-11-20T17:00Zx", "2026-1-20T17:00Z", "2026-11-20T17:00+1:00", "2026-11-20T17:00:005Z",
        "+2h"}) {
    EXPECT_EQ(of(bad), "refused") << bad;
  }
  EXPECT_EQ(
      problem_with("goal: {deadline: 2026-11-20T17:00:00}"),
      "job: goal.deadline is \"2026-11-20T17:00:00\"; write +2h, or a time with its offset as "
      "2026-11-20T17:00:00+01:00");
  for (const char* far : {"0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "+4000d"}) {
    EXPECT_EQ(problem_with(std::string("goal: {deadline: ") + far + "}"),
              std::string("job: goal.deadline \"") + far +
                  "\" is out of range: it must be in the years 1970 to 8999, or at most +3652d");
  }
  EXPECT_NE(problem_with("goal: {deadline: +0s}").find("goal.deadline is"), std::string::npos);
  EXPECT_NE(problem_with("goal: {}").find("goal.deadline is"), std::string::npos);
}

// --- round trip ----------------------------------------------------------------------------------

JobFile any_job() {
  JobFile job;
  const auto word =
      rc::gen::map(rc::gen::container<std::string>(rc::gen::inRange(1, 127)),
                   [](std::string text) { return text.empty() ? std::string("x") : text; });
  job.command = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::string>>(word));
  const auto maybe = [] { return *rc::gen::arbitrary<bool>(); };
  if (maybe()) job.name = "n" + std::to_string(*rc::gen::inRange(0, 1000));
  if (maybe()) job.profile = "p-é";
  if (maybe()) job.directory = "/" + *word;
  job.directory.erase(std::remove(job.directory.begin(), job.directory.end(), '\n'),
                      job.directory.end());
  const auto span = [] {
    return Duration(*rc::gen::inRange<std::int64_t>(1, 300'000'000'000'000));
  };
  if (maybe())
    job.deadline = WallTime(Duration(*rc::gen::inRange<std::int64_t>(0, 200'000'000'000'000'000)));
  if (!job.deadline && maybe()) job.deadline_after = span();
  if (maybe()) {
    job.work = WorkAmount{static_cast<WorkUnit>(*rc::gen::inRange(0, 3)),
                          *rc::gen::inRange(1, 1'000'000'000) / 7.0};
  }
  job.gpus.min = *rc::gen::inRange(1, 64);
  if (maybe()) job.gpus.max = job.gpus.min + *rc::gen::inRange(0, 64);
  if (maybe()) job.gpus.allowed = {job.gpus.min};
  job.elastic = maybe();
  job.batch.mode = maybe() ? BatchMode::adaptive : BatchMode::fixed;
  if (maybe()) job.batch.min = *rc::gen::inRange(1, 100);
  if (maybe()) job.batch.max = job.batch.min + *rc::gen::inRange(1, 100);
  job.learning_rate = static_cast<RateRule>(*rc::gen::inRange(0, 3));
  if (maybe()) job.env["A_1"] = *word;
  if (maybe()) job.secrets["B"] = "/secret";
  job.weight = *rc::gen::inRange(1, 1000) / 3.0;
  job.max_failures = *rc::gen::inRange(0, 100);
  if (maybe()) job.notice = span();
  if (maybe()) job.cooldown = span();
  if (maybe()) job.stop_after = span();
  return job;
}

TEST(JobFileProperty, WhatIsWrittenIsReadAgain) {
  EXPECT_TRUE(rc::check("to_json and read_job are inverse", [] {
    const JobFile job = any_job();
    const Json json = to_json(job);
    const auto again = read_job(json, "again");
    RC_ASSERT(again.ok());
    RC_ASSERT(to_json(*again) == json);
    RC_ASSERT(again->deadline == job.deadline && again->deadline_after == job.deadline_after);
    RC_ASSERT(again->stop_after == job.stop_after && again->notice == job.notice);
    RC_ASSERT(again->elastic == job.elastic);
    RC_ASSERT(again->work == job.work && again->weight == job.weight);
    const auto from_text = parse_job_file(json.dump(), "text");
    RC_ASSERT(from_text.ok());
    RC_ASSERT(to_json(*from_text) == json);
  }));
}

}  // namespace
}  // namespace rubato::jobfile

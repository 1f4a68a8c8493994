#include "rubato/jobfile/job_flags.h"

#include <gtest/gtest.h>
#include <string>

#include "rubato/jobfile/job_file.h"

namespace rubato::jobfile {
namespace {

std::string gpus(const char* text) {
  const auto json = parse_gpus(text);
  return json ? json->dump() : json.error().message;
}

TEST(JobFlags, CountsOfGpus) {
  EXPECT_EQ(gpus("4"), R"({"min":4,"max":4})");
  EXPECT_EQ(gpus("1:8"), R"({"min":1,"max":8})");
  EXPECT_EQ(gpus("2:"), R"({"min":2})");
  EXPECT_EQ(gpus("8,1,2,2"), R"({"min":1,"max":8,"allowed":[1,2,8]})");
  for (const char* bad : {"", "0", "-1", "x", "1:2:3", ":", ":4", "1,,2", "1:x", "1.5",
                          "1:2:", "99999999999999999999"}) {
    EXPECT_NE(gpus(bad).find("is no number of GPUs"), std::string::npos) << gpus(bad);
  }
  EXPECT_EQ(gpus("8:1"), "\"8:1\": the first number is the least");
}

TEST(JobFlags, AreAWholeJobByThemselves) {
  JobFlags flags;
  flags.command = {"python", "train.py"};
  flags.given["--name"] = {"x"};
  flags.given["--deadline"] = {"+2h"};
  flags.given["--work"] = {"epochs=3"};
  flags.given["--gpus"] = {"1:8"};
  flags.given["--no-elastic"] = {""};
  flags.given["--batch"] = {"adaptive:64:4096"};
  flags.given["--env"] = {"A=b=c", "E="};
  flags.given["--secret"] = {"K=/k"};
  flags.given["--weight"] = {"2"};
  flags.given["--notice"] = {"30s"};
  const auto json = with_flags({}, flags);
  ASSERT_TRUE(json.ok());
  const auto job = read_job(*json, "flags");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(to_json(*job).dump(),
            R"({"command":["python","train.py"],"name":"x","goal":{"deadline":"+7200s"},)"
            R"("work":{"epochs":3.0},"gpus":{"min":1,"max":8},"elastic":false,)"
            R"("batch":{"mode":"adaptive","min":64,"max":4096},"learning_rate":"adascale",)"
            R"("env":{"A":"b=c","E":""},"secrets":{"K":"/k"},"weight":2.0,"max_failures":3,)"
            R"("notice":"30s"})");
}

TEST(JobFlags, CountMoreThanTheFile) {
  const auto file = parse_job_text(
      "command: [a]\nname: old\ngoal: {deadline: +1h}\nenv: {A: 1, B: 2}\ngpus: 4\n", "file");
  ASSERT_TRUE(file.ok());
  JobFlags flags;
  flags.given["--name"] = {"new"};
  flags.given["--deadline"] = {"none"};
  flags.given["--env"] = {"A=9"};
  const auto job = read_job(*with_flags(*file, flags), "file");
  ASSERT_TRUE(job.ok()) << job.error().message;
  EXPECT_EQ(job->command, std::vector<std::string>{"a"});
  EXPECT_EQ(job->name, "new");
  EXPECT_EQ(job->deadline_after, std::nullopt);
  EXPECT_EQ(job->env, (std::map<std::string, std::string>{{"A", "9"}, {"B", "2"}}));
  EXPECT_EQ(job->gpus.max, 4);
}

TEST(JobFlags, WhatIsWrongIsSaidOnce) {
  const auto problem = [](const auto& set) {
    JobFlags flags;
    flags.command = {"a"};
    set(flags);
    const auto json = with_flags({}, flags);
    if (!json) return json.error().message;
    const auto job = read_job(*json, "the job");
    return job ? std::string("accepted") : job.error().message;
  };
  EXPECT_EQ(problem([](JobFlags& f) { f.given["--work"] = {"3"}; }),
            "--work is \"3\"; write epochs=3, steps=1000 or samples=1e6");
  EXPECT_EQ(problem([](JobFlags& f) { f.given["--work"] = {"weeks=3"}; }),
            "the job: work has no field \"weeks\"; it can have steps, epochs or samples");
  EXPECT_EQ(problem([](JobFlags& f) { f.given["--batch"] = {"a:1:2:3"}; }),
            "--batch is \"a:1:2:3\"; write fixed, adaptive or adaptive:MIN:MAX");
  EXPECT_EQ(problem([](JobFlags& f) { f.given["--secret"] = {"hunter2"}; }),
            "--secret needs NAME=VALUE");
  EXPECT_EQ(problem([](JobFlags& f) { f.given["--env"] = {"=x"}; }), "--env needs NAME=VALUE");
  EXPECT_EQ(problem([](JobFlags& f) { f.given["--secret"] = {"K=hunter2"}; }),
            "the job: secrets.K must be the absolute path of the file with the secret, never the "
            "secret itself");
}

TEST(JobFlags, AFileThatIsNoJobIsLeftForItsReader) {
  JobFlags flags;
  flags.given["--env"] = {"A=1"};
  EXPECT_FALSE(read_job(*with_flags(Json("text"), flags), "file").ok());
}

}  // namespace
}  // namespace rubato::jobfile

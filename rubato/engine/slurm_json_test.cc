#include "rubato/engine/slurm_json.h"

#include <gtest/gtest.h>

#include "rubato/base/json.h"

namespace rubato::engine {
namespace {

const WallTime kNow{std::chrono::seconds(1'000)};

// As slurmrestd 22.05 (v0.0.38) and 24.11 (v0.0.42) say it.
TEST(SlurmJson, ReadsNodesOfBothKinds) {
  const auto old = read_slurm_nodes(
      R"({"nodes":[{"name":"n0","state":"mixed","state_flags":["DRAIN"],"reason":"bad disk",
          "gres":"gpu:4","gres_used":"gpu:1","cpus":32,"real_memory":64000,"partitions":["all"],
          "active_features":"a,b"}]})");
  ASSERT_TRUE(old);
  ASSERT_EQ(old->size(), 1U);
  EXPECT_EQ((*old)[0].state, NodeState::draining);
  EXPECT_EQ((*old)[0].why, "Slurm says that it is drained: bad disk");
  EXPECT_EQ((*old)[0].gpus, 4);
  EXPECT_EQ((*old)[0].gpus_used, 1);
  EXPECT_EQ((*old)[0].features, (std::vector<std::string>{"a", "b"}));
  const auto later = read_slurm_nodes(
      R"~({"nodes":[{"name":"n0","state":["IDLE","NOT_RESPONDING"],"reason":"",
          "gres":"gpu:a100:2,gpu:v100:2","gres_used":"gpu:a100:1(IDX:0),gpu:v100:0(IDX:N\/A)",
          "cpus":64,"effective_cpus":32,"real_memory":64000,"partitions":["all"],
          "active_features":["a"]}]})~");
  ASSERT_TRUE(later);
  ASSERT_EQ(later->size(), 2U);
  EXPECT_EQ((*later)[0].name, "n0/a100");
  EXPECT_EQ((*later)[0].gpus_used, 1);
  EXPECT_EQ((*later)[0].cpus, 16);
  EXPECT_EQ((*later)[1].state, NodeState::unknown);
}

TEST(SlurmJson, ReadsJobsOfBothKinds) {
  const auto old = read_slurm_jobs(
      R"({"jobs":[{"job_id":10,"name":"r-x","job_state":"RUNNING","user_name":"ann","nodes":"n1",
          "required_nodes":"n1","tres_per_node":"gres:gpu:1","state_reason":"None",
          "time_limit":60,"start_time":400},
          {"job_id":11,"name":"other","job_state":"RUNNING"}]})",
      "r-", kNow);
  ASSERT_TRUE(old);
  ASSERT_EQ(old->size(), 1U);
  EXPECT_EQ((*old)[0], (SlurmJob{10, "RUNNING", "ann", "n1", true, 1, "", "None", "r-x",
                                 Duration(std::chrono::seconds(3'000))}));
  const auto later = read_slurm_jobs(
      R"({"jobs":[{"job_id":10,"name":"r-x","job_state":["CANCELLED","COMPLETING"],
          "user_name":"ann","nodes":"","required_nodes":"n1","tres_per_node":"gres\/gpu:a100:1",
          "state_reason":"Priority","time_limit":{"set":true,"infinite":true,"number":0},
          "start_time":{"set":true,"infinite":false,"number":400}}]})",
      "r-", kNow);
  ASSERT_TRUE(later);
  EXPECT_EQ((*later)[0],
            (SlurmJob{10, "COMPLETING", "ann", "n1", false, 1, "a100", "Priority", "r-x"}));
}

// A stranger's job may have any bytes in its name.
TEST(SlurmJson, ReadsBytesThatAreNoText) {
  const auto jobs = read_slurm_jobs(
      "{\"jobs\":[{\"job_id\":1,\"name\":\"\xff\xfe\"},"
      "{\"job_id\":2,\"name\":\"r-a\"}]}",
      "r-", kNow);
  ASSERT_TRUE(jobs);
  EXPECT_EQ(jobs->size(), 1U);
  EXPECT_FALSE(read_slurm_jobs("{\"jobs\":", "r-", kNow));
  EXPECT_FALSE(read_slurm_nodes("[]"));
}

TEST(SlurmJson, ReadsPartitions) {
  const auto old = read_slurm_partitions(
      R"({"partitions":[{"name":"all","flags":["default"],"max_time_limit":-1,
          "default_time_limit":null},{"name":"day","flags":[],"max_time_limit":30}]})");
  ASSERT_TRUE(old);
  EXPECT_TRUE((*old)[0].is_default);
  EXPECT_EQ((*old)[0].limit, std::nullopt);
  EXPECT_EQ((*old)[1].limit, Duration(std::chrono::minutes(30)));
  const auto later = read_slurm_partitions(
      R"({"partitions":[{"name":"all","defaults":{"time":{"set":true,"infinite":false,"number":5}},
          "maximums":{"time":{"set":false,"infinite":true,"number":0}}}]})");
  ASSERT_TRUE(later);
  EXPECT_EQ((*later)[0].limit, Duration(std::chrono::minutes(5)));
}

TEST(SlurmJson, ReadsAnswers) {
  EXPECT_EQ(read_submitted_slurm_job(R"({"job_id":7,"errors":[]})"), "7");
  EXPECT_EQ(read_submitted_slurm_job(R"({"errors":[]})"), "");
  // Taken, though its node cannot start it now.
  EXPECT_EQ(read_submitted_slurm_job(
                R"({"job_id":8,"errors":[{"error":"Required node not available"}]})"),
            "8");
  EXPECT_EQ(read_slurm_errors(R"({"errors":[]})"), "");
  EXPECT_EQ(read_slurm_errors(R"({"errors":[{"error_code":2045,"error":"Invalid account"}]})"),
            "Invalid account");
}

TEST(SlurmJson, WritesASubmission) {
  SlurmRequest request;
  request.share = {"r-1", "n1", 2, {"/bin/echo", "$(id) \n'"}, "/data/a b", "/log", "ann", "c\n"};
  request.host = "n1";
  request.type = "a100";
  const SlurmOptions options;
  const Json old = Json::parse(*slurm_job_json(request, {"PATH=/bin"}, options, 38));
  EXPECT_EQ(old["job"]["gres"], "gpu:a100:2");
  EXPECT_EQ(old["job"]["no_requeue"], true);
  EXPECT_EQ(old["job"]["environment"]["RUBATO_WORD_3"], "$(id) \n'");
  EXPECT_EQ(old["job"]["comment"], "c ");
  EXPECT_EQ(old["script"].get<std::string>().find("/data"), std::string::npos);
  const Json later = Json::parse(*slurm_job_json(request, {"PATH=/bin"}, options, 42));
  EXPECT_EQ(later["job"]["tres_per_node"], "gres/gpu:a100:2");
  EXPECT_EQ(later["job"]["requeue"], false);
  EXPECT_EQ(later["job"]["environment"][1], "RUBATO_WORDS=4");
  request.share.directory = "/\xff";
  EXPECT_FALSE(slurm_job_json(request, {}, options, 42));
}

TEST(SlurmJson, TakesOnlyAddressesOfThisMachine) {
  EXPECT_EQ(*slurm_rest_address("/run/s"), "unix:/run/s");
  EXPECT_EQ(*slurm_rest_address("http://127.0.0.1:6820"), "tcp:127.0.0.1:6820");
  EXPECT_EQ(*slurm_rest_address("http://[::1]:6820"), "tcp:[::1]:6820");
  for (const char* text : {"", "run", "http://10.0.0.1:6820", "http://127.0.0.1", "https://x:1",
                           "http://127.evil.org:80", "http://127.0.0.1:0"})
    EXPECT_FALSE(slurm_rest_address(text)) << text;
}

}  // namespace
}  // namespace rubato::engine

#include "rubato/launch/master_messages.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <set>

namespace rubato::launch {
namespace {

JobLaunch launch() {
  JobLaunch launch;
  launch.job = JobId(7);
  launch.name = "resnet";
  launch.token = "secret";
  launch.home = NodeId(1);
  launch.generation = Generation(3);
  launch.slots = {"1.0", "1.3"};
  launch.node_gpus = {4, 4};
  launch.batch = Batch{32, 1};
  launch.command = {"train", "--epochs", "3"};
  launch.env = {{"A", "1"}, {"B", ""}};
  launch.directory = "/data";
  launch.user = "ada";
  launch.secrets = {{"KEY", "/etc/key"}};
  launch.least = 1;
  launch.most = 4;
  launch.max_failures = 5;
  launch.grace = from_seconds(2.5);
  launch.stop_after = from_seconds(60);
  launch.log_limit = 1000;
  launch.live = false;
  launch.hello = from_seconds(30);
  launch.silent = true;
  return launch;
}

JobStatus status() {
  JobStatus status;
  status.job = JobId(7);
  status.generation = Generation(9);
  status.in_use = {"1.0", "1.3"};
  status.running = true;
  status.progress = {12, 384, 0.5, 1.25, 100, 3.5, 2, 32, 16, 0, 77.0};
  status.progress.tuning = {16, 512, 32, 0.25, 0.125};
  status.ended = JobEnd{JobEnd::How::failed, 1, "a worker failed"};
  status.failures = 2;
  status.resizes = 4;
  status.pauses = {0.1, 0.25};
  status.silent = true;
  status.applied_at = 12.5;
  status.guest_share = 0.25;
  return status;
}

TEST(Managed, NodesOfOneMachineShareItsGpus) {
  const auto device = [](std::uint32_t node, int gpu, const std::vector<int>& nodes, int gpus) {
    return device_of({NodeId(node), gpu}, nodes, gpus);
  };
  EXPECT_EQ(device(0, 3, {4, 4}, 8), 3);
  EXPECT_EQ(device(1, 0, {4, 4}, 8), 4);
  EXPECT_EQ(device(1, 3, {4, 4}, 8), 7);
  EXPECT_EQ(device(2, 1, {2, 4, 2}, 8), 7) << "nodes of several sizes";
  EXPECT_EQ(device(0, 2, {}, 8), 2) << "nothing is known of other nodes";
  EXPECT_EQ(device(1, 1, {4, 4}, 2), 1) << "fewer GPUs than slots are shared in turn";
  EXPECT_EQ(device(1, 1, {4, 4}, 0), std::nullopt) << "none";
}

RC_GTEST_PROP(Managed, SlotsHaveGpusOfTheirOwnWhereThereAreEnough, ()) {
  std::vector<int> nodes(*rc::gen::inRange<std::size_t>(1, 6));
  for (int& gpus : nodes) gpus = *rc::gen::inRange(0, 9);
  std::set<int> seen;
  int slots = 0;
  for (const int gpus : nodes) slots += gpus;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (int gpu = 0; gpu < nodes[node]; ++gpu) {
      const SlotPlace place{NodeId(static_cast<NodeId::rep>(node)), gpu};
      const int device = device_of(place, nodes, slots).value();
      RC_ASSERT(device >= 0);
      RC_ASSERT(device < slots);
      RC_ASSERT(seen.insert(device).second);
    }
  }
}

std::vector<PlacedShare> placed() {
  return {{"a1-7-3-n5-1", "node5", {"1.3"}}, {"a1-7-3-n6-2", "node6", {"1.0"}}};
}

TEST(Managed, LaunchesReadBackAsWritten) {
  EXPECT_EQ(parse_job_launch(to_json(launch())).value(), launch());
  JobLaunch shared = launch();
  shared.shares = SharesLaunch{"/shared/jobs/7", placed(), "10.0.0.1"};
  EXPECT_EQ(parse_job_launch(to_json(shared)).value(), shared);
  JobLaunch plain = launch();
  plain.batch.reset();
  plain.stop_after.reset();
  plain.hello = kHelloWithin;
  plain.silent = false;
  EXPECT_EQ(parse_job_launch(to_json(plain)).value(), plain);
  for (const char* newer : {"hello", "silent", "shares"}) {
    EXPECT_FALSE(to_json(plain).contains(newer)) << "an older reader knows nothing of it";
  }
}

TEST(Managed, StatusesReadBackAsWritten) {
  EXPECT_EQ(parse_job_status(to_json(status())).value(), status());
  EXPECT_EQ(parse_job_status(status_message(status())).value(), status());
  JobStatus plain = status();
  plain.ended.reset();
  plain.progress = {};
  plain.silent = false;
  EXPECT_EQ(parse_job_status(to_json(plain)).value(), plain);
  for (const char* newer : {"silent", "revision", "shares"}) {
    EXPECT_FALSE(to_json(plain).contains(newer)) << "an older reader knows nothing of it";
  }
  plain.revision = 2;
  plain.shares = {{"a1-7-3-n5-1", true, "4711"}, {"a1-7-3-n6-2", false, ""}};
  EXPECT_EQ(parse_job_status(to_json(plain)).value(), plain);
}

TEST(Managed, SlotsOfSharesAreThoseOfTheJob) {
  const auto why = [](const Json& shares) {
    Json json = to_json(ToMaster(Place{Generation(4), {"1.0", "1.3"}, std::nullopt, 1, placed()}));
    json["shares"] = shares;
    const auto parsed = parse_to_master(json);
    return parsed ? "" : parsed.error().message;
  };
  const auto share = [](const char* name, const Json& slots) {
    return Json{{"name", name}, {"node", "n"}, {"slots", slots}};
  };
  EXPECT_EQ(why(Json::array({share("a", {"1.0", "1.3"})})), "");
  EXPECT_EQ(why(Json::array({share("a", {"1.0"})})),
            "message.shares: has no share with the slot 1.3");
  EXPECT_EQ(why({share("a", {"1.0", "1.3"}), share("b", {"1.3"})}),
            "message.shares[1]: has the slot 1.3, which is not one of the job, or is in another "
            "share");
  EXPECT_EQ(why({share("a", {"1.0"}), share("a", {"1.3"})}),
            "message.shares[1]: names the share a again");
  EXPECT_EQ(why({share("a", {"1.0", "1.3"}), share("b", Json::array())}),
            "message.shares[1]: has no slots");
  EXPECT_EQ(why(Json::array({share("../a", {"1.0", "1.3"})})),
            "message.shares[0].name: must be a name of at most 63 characters a-z, 0-9 and -");
  JobLaunch elsewhere = launch();
  elsewhere.shares = SharesLaunch{"jobs/7", placed(), ""};
  EXPECT_EQ(parse_job_launch(to_json(elsewhere)).error().message,
            "launch.shares.directory: must be an absolute path");
}

TEST(Managed, WhatIsNotFiniteIsLeftOut) {
  JobStatus odd = status();
  odd.progress.loss = std::nan("");
  odd.progress.rate = std::numeric_limits<double>::infinity();
  odd.pauses = {std::nan("")};
  const auto read = parse_job_status(to_json(odd)).value();
  EXPECT_EQ(read.progress.loss, std::nullopt);
  EXPECT_EQ(read.progress.rate, 0);
  EXPECT_EQ(read.pauses, std::vector<double>{0});
}

TEST(Managed, FilesReadBackAsWritten) {
  const std::vector<WorkerRecord> workers = {{1, "0.0", {17, 123}}, {2, "0.1", {18, 124}}};
  EXPECT_EQ(parse_worker_records(to_json(workers)).value(), workers);
  const ProcessName process{17, 123};
  EXPECT_EQ(parse_process_name(to_json(process)).value(), process);
  const JobExit exit{Generation(3), {JobEnd::How::stopped, 143, "why"}, status().progress, 1, 2};
  EXPECT_EQ(parse_job_exit(to_json(exit)).value(), exit);
  JobExit whole = exit;
  whole.end.infrastructure = true;
  whole.end.at = WallTime(Duration(1'790'000'000'123'456));
  EXPECT_EQ(parse_job_exit(to_json(whole)).value(), whole);
}

TEST(Managed, AnOlderMasterDoesNotSayWhenAJobEnded) {
  const auto exit = parse_job_exit(Json::parse(
      R"({"generation":3,"how":"finished","code":0,"why":"","failures":0,"resizes":0,"progress":
          {"step":0,"samples":0,"epoch":0,"rate":0,"step_rate":0,"workers":0,"batch":0}})"));
  ASSERT_TRUE(exit) << exit.error().message;
  EXPECT_EQ(exit->end, (JobEnd{JobEnd::How::finished, 0, ""}));
  Json wrong = to_json(*exit);
  wrong["at"] = -1;
  EXPECT_EQ(parse_job_exit(wrong).error().message,
            "exit.at: must be a whole number from 0 to 9007199254740992");
  wrong["at"] = 0;
  wrong["infrastructure"] = 1;
  EXPECT_EQ(parse_job_exit(wrong).error().message, "exit.infrastructure: must be true or false");
}

TEST(Managed, MessagesReadBackAsWritten) {
  const std::vector<ToMaster> messages = {
      Manage{"token"},
      Place{Generation(4), {"0.1", "1.0"}, Batch{8, 2}},
      Place{Generation(5), {"0.1"}, std::nullopt},
      Place{Generation(5), {"1.0", "1.3"}, std::nullopt, 2, placed(), {"a1-7-3-n5-0"}},
      StopJob{Generation(6)},
      ThrottleJob{0.25, true},
      KillJob{}};
  for (const ToMaster& message : messages) {
    EXPECT_EQ(parse_to_master(to_json(message)).value(), message);
  }
}

TEST(Managed, WhatIsWrongIsRefusedInOneSentence) {
  struct Wrong {
    const char* field;
    Json value;
    const char* sentence;
  };
  const std::vector<Wrong> all = {
      {"job", -1, "launch.job: must be a whole number from 0 to 4294967295"},
      {"name", Json(std::string("a\0b", 3)), "launch.name: must be text without a NUL"},
      {"token", "", "launch: has no token"},
      {"slots", Json::array(), "launch: has no slots"},
      {"slots", {"0.1", "0.1"}, "launch.slots[1]: names the slot 0.1 again"},
      {"slots", {"00.1"}, "launch.slots[0]: must be a slot, NODE.GPU, as 0.3"},
      {"command", Json::array(), "launch: has no command"},
      {"command", "true", "launch.command: must be a list"},
      {"env", {{"A=B", "1"}}, "launch.env: has \"A=B\", which cannot be the name of a variable"},
      {"env", {{"KEY", "1"}}, "launch: has \"KEY\" in \"env\" and in \"secrets\""},
      {"env", {{"KEY", 1}}, "launch.env.KEY: must be text without a NUL"},
      {"directory", "data", "launch: has a \"directory\" that is not an absolute path"},
      {"secrets",
       {{"K", "key"}},
       "launch: has the secret \"K\" whose file is not an absolute path"},
      {"least", 5, "launch: has a \"most\" that is less than \"least\""},
      {"grace", -1, "launch.grace: must be a number from 0 to 1e+09"},
      {"live", 1, "launch.live: must be true or false"},
      {"batch",
       {{"per_gpu", 0}, {"accumulation", 0}},
       "launch.batch.per_gpu: must be a whole number from 1 to 2147483647"},
      {"more", 1, "launch: has the unknown field \"more\""},
  };
  for (const Wrong& wrong : all) {
    Json json = to_json(launch());
    json[wrong.field] = wrong.value;
    const auto parsed = parse_job_launch(json);
    ASSERT_FALSE(parsed.ok()) << wrong.sentence;
    EXPECT_EQ(parsed.error().message, wrong.sentence);
  }
  const Json whole = to_json(launch());
  for (const auto& [name, value] : whole.items()) {
    if (name == "stop_after" || name == "hello" || name == "silent") continue;
    Json json = whole;
    json.erase(name);
    EXPECT_FALSE(parse_job_launch(json).ok()) << name;
  }
  EXPECT_EQ(parse_to_master({{"type", "jump"}}).error().message,
            "message: is of the unknown type \"jump\"");
  EXPECT_FALSE(parse_to_master(Json::array()).ok());
}

}  // namespace
}  // namespace rubato::launch

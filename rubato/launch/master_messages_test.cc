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

TEST(Managed, LaunchesReadBackAsWritten) {
  EXPECT_EQ(parse_job_launch(to_json(launch())).value(), launch());
  JobLaunch plain = launch();
  plain.batch.reset();
  plain.stop_after.reset();
  plain.hello = kHelloWithin;
  plain.silent = false;
  EXPECT_EQ(parse_job_launch(to_json(plain)).value(), plain);
  for (const char* newer : {"hello", "silent"}) {
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
  EXPECT_FALSE(to_json(plain).contains("silent")) << "an older reader knows nothing of it";
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
            "the exit of a job has a \"at\" that is not an integer from 0 to 9007199254740992");
  wrong["at"] = 0;
  wrong["infrastructure"] = 1;
  EXPECT_EQ(parse_job_exit(wrong).error().message,
            "the exit of a job has a \"infrastructure\" that is not true or false");
}

TEST(Managed, MessagesReadBackAsWritten) {
  const std::vector<ToMaster> messages = {
      Manage{"token"}, Place{Generation(4), {"0.1", "1.0"}, Batch{8, 2}},
      Place{Generation(5), {"0.1"}, std::nullopt}, StopJob{Generation(6)}, KillJob{}};
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
      {"job", -1, "the launch of a job has a \"job\" that is not an integer from 0 to 4294967295"},
      {"name", Json(std::string("a\0b", 3)),
       "the launch of a job has a \"name\" that is not text without a NUL"},
      {"token", "", "the launch of a job has no token"},
      {"slots", Json::array(), "the launch of a job has no slots"},
      {"slots", {"0.1", "0.1"}, "the launch of a job names the slot 0.1 twice"},
      {"slots", {"00.1"}, "the launch of a job has the slot \"00.1\"; a slot is NODE.GPU, as 0.3"},
      {"command", Json::array(), "the launch of a job has no command"},
      {"command", "true", "the launch of a job has a \"command\" that is not a list"},
      {"env",
       {{"A=B", "1"}},
       "the launch of a job has \"A=B\" in \"env\", which cannot be the name of a variable"},
      {"env", {{"KEY", "1"}}, "the launch of a job has \"KEY\" in \"env\" and in \"secrets\""},
      {"directory", "data", "the launch of a job has a \"directory\" that is not an absolute path"},
      {"secrets",
       {{"K", "key"}},
       "the launch of a job has the secret \"K\" whose file is not an absolute path"},
      {"least", 5, "the launch of a job has a \"most\" that is less than \"least\""},
      {"grace", -1, "the launch of a job has a \"grace\" that is not a number from 0 to 1e+09"},
      {"live", 1, "the launch of a job has a \"live\" that is not true or false"},
      {"batch",
       {{"per_gpu", 0}, {"accumulation", 0}},
       "the launch of a job has a \"batch\" that is not a batch: a batch has a \"per_gpu\" that is "
       "not an integer from 1 to 2147483647"},
      {"more", 1, "the launch of a job has the unknown field \"more\""},
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
            "a message to a master is of the unknown type \"jump\"");
  EXPECT_FALSE(parse_to_master(Json::array()).ok());
}

TEST(Managed, SlotsAreSpelledInOneWay) {
  EXPECT_EQ(to_slot({NodeId(12), 3}), "12.3");
  EXPECT_EQ(parse_slot("12.3"), (SlotPlace{NodeId(12), 3}));
  for (const char* wrong : {"", "1", ".", "1.", ".1", "01.2", "1.02", "-1.0", "1.64", "+1.0",
                            "1.0.0", " 1.0", "4294967296.0"}) {
    EXPECT_EQ(parse_slot(wrong), std::nullopt) << wrong;
  }
}

TEST(Managed, SlotsAndAllocationsAreTheSame) {
  const Cluster cluster = parse_cluster("2x4:a,1x2:b").value();
  Allocation gpus(GpuType(0));
  gpus.add({NodeId(0), 0b1010});
  gpus.add({NodeId(1), 0b0001});
  const std::vector<Slot> slots = {"0.1", "0.3", "1.0"};
  EXPECT_EQ(slots_of(gpus), slots);
  EXPECT_EQ(allocation_of({"1.0", "0.3", "0.1"}, cluster).value(), gpus);
  EXPECT_EQ(allocation_of({"2.1"}, cluster).value().type(), GpuType(1));
  EXPECT_TRUE(allocation_of({}, cluster).value().empty());
  EXPECT_EQ(allocation_of({"2.2"}, cluster).error().message, "the cluster has no slot \"2.2\"");
  EXPECT_EQ(allocation_of({"3.0"}, cluster).error().message, "the cluster has no slot \"3.0\"");
  EXPECT_EQ(allocation_of({"0.0", "0.0"}, cluster).error().message, "the slot 0.0 is named twice");
  EXPECT_EQ(allocation_of({"0.0", "2.0"}, cluster).error().message,
            "the slot 2.0 is of another type than 0.0");
}

RC_GTEST_PROP(Managed, EveryAllocationComesBack, ()) {
  const Cluster cluster = parse_cluster("3x64").value();
  Allocation gpus(GpuType(0));
  for (unsigned node = 0; node < 3; ++node) {
    const auto mask = *rc::gen::arbitrary<std::uint64_t>();
    if (mask != 0) gpus.add({NodeId(node), mask});
  }
  RC_ASSERT(allocation_of(slots_of(gpus), cluster).value() == gpus);
}

}  // namespace
}  // namespace rubato::launch

#include "rubato/engine/slurm_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace rubato::engine {
namespace {

using State = ManagedShare::State;

// As Slurm 22.05 prints it.
constexpr const char* kNode =
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=32 CPUTot=32 CPULoad=2.14 "
    "AvailableFeatures=big,fast ActiveFeatures=big,fast Gres=gpu:4 GresDrain=N/A GresUsed=gpu:1 "
    "NodeAddr=127.0.0.1 NodeHostName=vm Port=25333 Version=22.05.8 OS=Linux 6.1 #1 SMP PREEMPT @0  "
    "RealMemory=64000 AllocMem=64000 FreeMem=19245 Sockets=32 Boards=1 State={} ThreadsPerCore=1 "
    "TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=all,night  BootTime=2026-11-18T05:39:21 "
    "SlurmdStartTime=2026-11-18T05:54:06 CfgTRES=cpu=32,mem=62.50G,billing=32 "
    "AllocTRES=cpu=1,mem=62.50G CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s "
    "ExtSensorsWatts=0 ExtSensorsTemp=n/s{}\n";

SlurmNode node_in(const std::string& state, const std::string& rest = "") {
  const auto nodes = parse_slurm_nodes(fmt::format(fmt::runtime(kNode), state, rest));
  EXPECT_TRUE(nodes && nodes->size() == 1);
  return nodes ? nodes->at(0) : SlurmNode{};
}

TEST(SlurmText, ReadsANode) {
  const SlurmNode node = node_in("MIXED");
  EXPECT_EQ(node.name, "n1");
  EXPECT_EQ(node.gpus, 4);
  EXPECT_EQ(node.gpus_used, 1);
  EXPECT_EQ(node.type, "");
  EXPECT_EQ(node.cpus, 32);
  EXPECT_EQ(node.memory, 64000);
  EXPECT_EQ(node.state, NodeState::up);
  EXPECT_TRUE(node.answering);
  EXPECT_EQ(node.partitions, (std::vector<std::string>{"all", "night"}));
  EXPECT_EQ(node.features, (std::vector<std::string>{"big", "fast"}));
}

TEST(SlurmText, ReadsStatesOfNodes) {
  EXPECT_EQ(node_in("IDLE").state, NodeState::up);
  EXPECT_EQ(node_in("ALLOCATED+COMPLETING").state, NodeState::up);
  EXPECT_EQ(node_in("IDLE+PLANNED").state, NodeState::up);
  const SlurmNode drained =
      node_in("IDLE+DRAIN", " Reason=bad | disk = yes State=UP [root@2026-11-18T05:54:08]");
  EXPECT_EQ(drained.state, NodeState::draining);
  EXPECT_TRUE(drained.answering);
  EXPECT_EQ(drained.why,
            "Slurm says that it is drained: bad | disk = yes State=UP [root@2026-11-18T05:54:08]");
  EXPECT_EQ(node_in("MIXED+NOT_RESPONDING").state, NodeState::unknown);
  EXPECT_FALSE(node_in("MIXED+NOT_RESPONDING").answering);
  EXPECT_EQ(node_in("DOWN").state, NodeState::down);
  EXPECT_EQ(node_in("DOWN*+DRAIN").state, NodeState::down);
  EXPECT_FALSE(node_in("IDLE*").answering);
  EXPECT_FALSE(node_in("IDLE+CLOUD+POWERED_DOWN").answering);
  EXPECT_EQ(node_in("SOMETHING_NEW").state, NodeState::up);
}

TEST(SlurmText, ReadsGpusWithTypes) {
  const auto node = [](const std::string& gres, const std::string& used) {
    return *parse_slurm_nodes(
        fmt::format("NodeName=a Gres={} GresUsed={} State=IDLE Partitions=p", gres, used));
  };
  const auto typed = node("gpu:a100:8(S:0-1),nic:2", "gpu:a100:3(IDX:0,2-3),nic:0");
  EXPECT_EQ(typed[0].gpus, 8);
  EXPECT_EQ(typed[0].type, "a100");
  EXPECT_EQ(typed[0].gpus_used, 3);
  const auto mixed = node("gpu:a100:2,gpu:v100:2", "gpu:a100:1(IDX:0),gpu:v100:0(IDX:N/A)");
  ASSERT_EQ(mixed.size(), 2U) << "one for each type";
  EXPECT_EQ(mixed[0].name, "a/a100");
  EXPECT_EQ(mixed[1].name, "a/v100");
  EXPECT_EQ(mixed[0].host, "a");
  EXPECT_EQ(mixed[0].gpus, 2);
  EXPECT_EQ(mixed[1].type, "v100");
  EXPECT_EQ(mixed[0].gpus_used, 1);
  EXPECT_EQ(mixed[1].gpus_used, 0);
  const auto some = node("gpu:a100:2,gpu:2", "gpu:a100:1,gpu:1");
  ASSERT_EQ(some.size(), 1U) << "those without a type cannot be asked for alone";
  EXPECT_EQ(some[0].gpus, 4);
  EXPECT_EQ(some[0].gpus_used, 2);
  EXPECT_EQ(node("(null)", "(null)")[0].gpus, 0);
}

TEST(SlurmText, RefusesNodesWithoutAState) {
  const auto nodes = parse_slurm_nodes("NodeName=n1 Gres=gpu:4");
  ASSERT_FALSE(nodes);
  EXPECT_NE(nodes.error().message.find("without a state"), std::string::npos);
  EXPECT_TRUE(parse_slurm_nodes("")->empty());
}

// A name may have the separator and line breaks in it.
TEST(SlurmText, ReadsOnlyOurJobs) {
  const auto jobs = parse_slurm_jobs(
      "X|1|COMPLETED|root|n0|n0|gres:gpu:1|None|INVALID|r-a\n"
      "X|5|PENDING|ann|(null)|n2|gres/gpu:a100:2|Priority|10:00|r-b\n"
      "X|6|PENDING|ann||n2|N/A|ReqNodeNotAvail, UnavailableNodes:n1|UNLIMITED|r-c\n"
      "X|2|RUNNING|eve|n0|n0|gres:gpu:1|None|1:00|nl\n"
      "Y|9|RUNNING|root|n0|n0|gres:gpu:1|None|1:00|r-d\n"
      "X|7|RUNNING|eve|n0|n0|gres:gpu:1|None|1:00|r-|r-e\n"
      "X|8_[1-3]|PENDING|eve||n0|gres:gpu:1|None|1:00|r-f\n"
      "X|9|RUNNING|ann|n1|n1|gres:gpu:1|None|1:30|r-g\n",
      "X|", "r-");
  ASSERT_TRUE(jobs);
  ASSERT_EQ(jobs->size(), 4U);
  EXPECT_EQ((*jobs)[0], (SlurmJob{1, "COMPLETED", "root", "n0", true, 1, "", "None", "r-a"}));
  EXPECT_EQ((*jobs)[1], (SlurmJob{5, "PENDING", "ann", "n2", false, 2, "a100", "Priority", "r-b"}));
  EXPECT_EQ((*jobs)[2].gpus, 0);
  EXPECT_EQ((*jobs)[3].left, Duration(std::chrono::seconds(90)));
  EXPECT_FALSE(parse_slurm_jobs("X|1|COMPLETED", "X", "r-"));
}

TEST(SlurmText, ReadsTheTimeThatIsLeft) {
  using std::chrono::seconds;
  EXPECT_EQ(parse_slurm_time_left("0:07"), Duration(seconds(7)));
  EXPECT_EQ(parse_slurm_time_left("2:03:04"), Duration(seconds(7384)));
  EXPECT_EQ(parse_slurm_time_left("1-00:00:01"), Duration(seconds(86'401)));
  EXPECT_EQ(parse_slurm_time_left("INVALID"), Duration(0)) << "it is over";
  for (const char* text : {"UNLIMITED", "NOT_SET", "", "1-", "-1:00", "1:2:3:4", "1:99", "1:00 "})
    EXPECT_EQ(parse_slurm_time_left(text), std::nullopt) << text;
}

TEST(SlurmText, ReadsAnswersOfSbatch) {
  EXPECT_EQ(submitted_slurm_job("17\n"), "17");
  EXPECT_EQ(submitted_slurm_job("welcome\n17;here\n"), "17");
  EXPECT_EQ(submitted_slurm_job("-3\n"), "");
  EXPECT_EQ(submitted_slurm_job(""), "");
}

TEST(SlurmText, ReadsPartitions) {
  const auto partitions = parse_slurm_partitions(
      "PartitionName=all AllowGroups=ALL Default=YES DefaultTime=NONE MaxTime=UNLIMITED State=UP\n"
      "PartitionName=night Default=NO DefaultTime=00:30:00 MaxTime=1-00:00:00 State=DOWN\n"
      "PartitionName=day Default=NO DefaultTime=NONE MaxTime=1-00:00:00 State=UP\n");
  ASSERT_EQ(partitions.size(), 3U);
  EXPECT_EQ(partitions[0].name, "all");
  EXPECT_TRUE(partitions[0].is_default);
  EXPECT_EQ(partitions[0].limit, std::nullopt);
  EXPECT_FALSE(partitions[1].is_default);
  EXPECT_EQ(partitions[1].limit, Duration(std::chrono::minutes(30)));
  EXPECT_EQ(partitions[2].limit, Duration(std::chrono::hours(24)));
  EXPECT_NE(partitions[1].settings.find("DOWN"), std::string::npos);
  EXPECT_TRUE(parse_slurm_partitions("No partitions\n").empty());
}

TEST(SlurmText, TellsLimitsOfUsersFromThoseOfNodes) {
  for (const char* why :
       {"AssocGrpGRES", "QOSMaxGRESPerUser", "Invalid qos specification",
        "Invalid account or account/partition combination specified",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"})
    EXPECT_TRUE(slurm_limit_of_user(why)) << why;
  for (const char* why : {"Resources", "Required partition not available (inactive or drain)",
                          "ReqNodeNotAvail, UnavailableNodes:n1", ""})
    EXPECT_FALSE(slurm_limit_of_user(why)) << why;
}

TEST(SlurmText, TellsRefusalsFromLostAnswers) {
  const std::string refused = slurm_complaint(
      "sbatch: error: invalid partition specified: nobody\n"
      "sbatch: error: Batch job submission failed: Invalid partition name specified\n");
  EXPECT_EQ(refused, "invalid partition specified: nobody; Invalid partition name specified");
  EXPECT_FALSE(slurm_answer_lost(refused));
  EXPECT_FALSE(slurm_answer_lost("Requested node configuration is not available"));
  EXPECT_FALSE(slurm_answer_lost("Job violates accounting/QOS policy"));
  EXPECT_TRUE(slurm_answer_lost(slurm_complaint(
      "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect "
      "failure)\n")));
  EXPECT_TRUE(slurm_answer_lost("Socket timed out on send/recv operation"));
}

TEST(SlurmText, SaysStatesInWords) {
  const auto words = [](const char* state, const char* reason) {
    return slurm_words({1, state, "u", "n", false, 1, "", reason, "r"});
  };
  EXPECT_EQ(slurm_share_state("PENDING"), State::waiting);
  EXPECT_EQ(slurm_share_state("RUNNING"), State::running);
  EXPECT_EQ(slurm_share_state("COMPLETING"), State::ending);
  EXPECT_EQ(slurm_share_state("NEVER_HEARD_OF"), State::ending);
  EXPECT_EQ(slurm_share_state("TIMEOUT"), State::gone);
  EXPECT_EQ(words("RUNNING", "None"), "");
  EXPECT_EQ(words("PENDING", "Resources"), "its node has no room for it now (Slurm: Resources)");
  EXPECT_EQ(words("PENDING", "ReqNodeNotAvail, UnavailableNodes:n1"),
            "its node is not available (Slurm: ReqNodeNotAvail, UnavailableNodes:n1)");
  EXPECT_EQ(words("PENDING", "AssocGrpGRES"),
            "a limit of its account is reached (Slurm: AssocGrpGRES)");
  EXPECT_EQ(words("TIMEOUT", "TimeLimit"), "it reached its time limit");
  EXPECT_EQ(words("PREEMPTED", "None"), "it was preempted by a job of a higher priority");
  EXPECT_EQ(words("FAILED", "NonZeroExitCode"), "it failed (Slurm: NonZeroExitCode)");
}

TEST(SlurmText, KnowsPlainNames) {
  EXPECT_TRUE(plain_slurm_name("gpu-node_1.example"));
  for (const char* name : {"", "-w", "a b", "a,b", "n[1-3]", "a=b", "$(x)", "a\n"})
    EXPECT_FALSE(plain_slurm_name(name)) << name;
}

}  // namespace
}  // namespace rubato::engine

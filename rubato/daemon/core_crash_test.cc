// The daemon dies at every single write of its journal and before every single command it sends,
// and goes on from what is there: whoever was told that a job is taken in finds it, every job's
// work is done once, and all comes to the same end as without.
#include <algorithm>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rubato/base/testing_seeds.h"
#include "rubato/daemon/testing_background.h"
#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

struct Death {};  // of the process, in the middle of what it does

// People who ask until they have an answer.
struct Client {
  double at_s = 0;
  Caller caller;
  std::function<Ask(const std::map<std::string, JobId>&)> ask;
  std::string name;  // of the job it submits
  bool answered = false;
  bool waits = false;  // for the answer of a daemon that lives
};

class Story {
 public:
  // With `late`, each decision comes two turns after it was asked for.
  explicit Story(const std::string& policy, bool late = false) {
    if (late) {
      daemon_.options.background = std::make_shared<LateBackground>([] { return 2; });
    }
    daemon_.options.policy = policy;
    daemon_.options.verdict_within = from_seconds(30);
    daemon_.options.snapshot_rows = 25;
    daemon_.options.restart_cost = from_seconds(2);
    daemon_.world.pace.grace = from_seconds(1.2);
    daemon_.world.pace.step = from_seconds(0.2);
    daemon_.crashes["d"] = 1;
    daemon_.judge = [this](std::string_view) {
      if (dead_) return SQLITE_IOERR_WRITE;
      if (writes_++ == die_at_write) {
        dead_ = true;
        return SQLITE_IOERR_WRITE;
      }
      return SQLITE_OK;
    };
    daemon_.before_command = [this](const Command&) {
      if (commands_++ == die_at_command) throw Death();
    };
    daemon_.before_told = [this](const Turn& turn) {
      const bool stored = turn.stored > std::exchange(last_stored_, turn.stored);
      const bool quiet = std::exchange(told_, commands_) == commands_;
      if (stored && quiet && quiet_turns_++ == die_after_quiet_turn) throw Death();
    };
    policy == "elasticflow" || policy == "rubato" ? promise() : queue();
  }

  // Jobs that wait for each other, one that fails, and owners who change their minds.
  void queue() {
    submit(0.5, kAda, "a", 300, 2, 4);
    submit(1, kBob, "b", 200, 1, 2);
    submit(1, kBob, "c", 150, 4, 4);
    submit(6, kAda, "d", 120, 1, 4);
    submit(8, kAda, "e", 1e5, 1, 1);
    wish(12, kAda, [](const auto& ids) { return Ask(CancelJob{ids.at("e")}); });
    wish(9, kBob, [](const auto& ids) { return Ask(HoldJob{ids.at("b"), true}); });
    wish(15, kBob, [](const auto& ids) { return Ask(HoldJob{ids.at("b"), false}); });
    wish(10, kRoot, [](const auto&) { return Ask(SetNode{node_id(1), NodeState::down}); });
    wish(14, kRoot, [](const auto&) { return Ask(SetNode{node_id(1), NodeState::up}); });
  }

  // A deadline that is promised after the job was measured, then another policy.
  void promise() {
    submit(0.5, kAda, "a", 400, 1, 2);
    submit(1, kBob, "d", 300, 1, 2, 180);
    wish(24, kRoot, [](const auto&) { return Ask(SetNode{node_id(1), NodeState::draining}); });
    wish(26, kRoot, [](const auto&) { return Ask(SwitchPolicy{"afs-l"}); });
    wish(28, kRoot, [](const auto&) { return Ask(SetNode{node_id(1), NodeState::up}); });
  }

  std::optional<long> die_at_write, die_at_command;
  // Of turns that stored something and commanded nothing: dies before anybody is told of it.
  std::optional<long> die_after_quiet_turn;

  void tell() {
    restart();
    for (int i = 0; i < 400 && !over(); ++i) {
      daemon_.now += from_seconds(0.5);
      moment();
    }
    ASSERT_TRUE(over()) << "not all jobs came to their end";
    check();
  }

  // How each job ended, by name.
  std::map<std::string, std::string> endings() {
    std::map<std::string, std::string> endings;
    for (const auto& [name, id] : ids_) endings[name] = daemon_.state(id);
    return endings;
  }
  [[nodiscard]] long writes() const { return writes_; }
  [[nodiscard]] long commands() const { return commands_; }
  [[nodiscard]] long quiet_turns() const { return quiet_turns_; }
  [[nodiscard]] int deaths() const { return deaths_; }

 private:
  void submit(double at_s, const Caller& caller, const std::string& name, double samples, int min,
              int max, double deadline_s = 0) {
    JobFile file = job_file(name, samples, min, max);
    if (deadline_s > 0) file.deadline_after = from_seconds(deadline_s);
    ++submissions_;
    clients_.push_back({at_s, caller,
                        [file, name](const auto&) {
                          return Ask(SubmitJob{file, "key of " + name, false});
                        },
                        name});
  }
  void wish(double at_s, const Caller& caller,
            std::function<Ask(const std::map<std::string, JobId>&)> ask) {
    clients_.push_back({at_s, caller, std::move(ask), ""});
  }

  void restart() {
    for (std::string why = daemon_.up(); !why.empty(); why = daemon_.up()) {
      ASSERT_TRUE(dead_) << why;
      bury();
    }
    if (dead_) {
      bury();
      restart();
    }
  }
  void bury() {
    daemon_.kill();
    for (Client& client : clients_) client.waits = false;
    dead_ = false;
    ++deaths_;
  }

  void moment() {
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < clients_.size(); ++i) {
      Client& client = clients_[i];
      if (client.answered || client.waits || time_at(client.at_s) > daemon_.now) continue;
      if (client.name.empty() && ids_.size() < submissions_) continue;
      client.waits = true;
      inputs.emplace_back(Asked{i, {client.caller, client.ask(ids_)}});
    }
    Turn turn;
    bool alive = true;
    try {
      turn = daemon_.turn(std::move(inputs));
    } catch (const Death&) {
      alive = false;
    }
    // Whoever dies while it stores something has told nobody.
    if (!alive || dead_) {
      bury();
      return restart();
    }
    for (auto& [i, answer] : turn.answers) hear(clients_[i], answer);
    daemon_.expect_no_strays();
  }

  void hear(Client& client, const Answer& answer) {
    client.waits = false;
    if (answer.status == 503) return;
    client.answered = true;
    if (client.name.empty()) return;
    EXPECT_TRUE(answer.status == 201 || answer.status == 200) << answer.body.dump();
    ids_[client.name] = JobId(answer.body["id"].get<JobId::rep>());
  }

  [[nodiscard]] bool over() const {
    for (const Client& client : clients_) {
      if (!client.answered) return false;
    }
    return daemon_.core->state().alive() == 0;
  }

  void check() {
    const DaemonState& state = daemon_.core->state();
    const auto measuring = std::count_if(state.jobs().begin(), state.jobs().end(),
                                         [](const auto& job) { return job.second.measures_for; });
    EXPECT_EQ(state.jobs().size(), ids_.size() + static_cast<std::size_t>(measuring))
        << "each was taken in once";
    for (const auto& [name, id] : ids_) {
      const JobRecord* job = state.job(id);
      ASSERT_NE(job, nullptr) << name;
      EXPECT_EQ(job->name, name);
      const bool completed = job->ending->how == Ending::completed;
      EXPECT_EQ(daemon_.world.finishes(id), completed ? 1 : 0) << name;
      if (completed) {
        EXPECT_EQ(daemon_.world.done(id), job->work) << name;
      }
    }
    EXPECT_TRUE(daemon_.world.violations.empty()) << daemon_.world.violations.front();
    daemon_.judge = nullptr;  // the story is over: nobody dies any more
    daemon_.before_command = nullptr;
    daemon_.before_told = nullptr;
    daemon_.expect_replay();
  }

  TestDaemon daemon_{"2x2"};
  std::vector<Client> clients_;
  std::map<std::string, JobId> ids_;
  std::size_t submissions_ = 0;
  RowNumber last_stored_;
  long writes_ = 0;
  long commands_ = 0;
  long told_ = 0;  // commands, before the present turn
  long quiet_turns_ = 0;
  int deaths_ = 0;
  bool dead_ = false;
};

struct Plot {
  std::string policy;
  bool late = false;
  friend std::ostream& operator<<(std::ostream& out, const Plot& plot) {
    return out << plot.policy << (plot.late ? ", late" : "");
  }
};
class CoreCrash : public ::testing::TestWithParam<Plot> {};

TEST_P(CoreCrash, AtEveryWriteAndEveryCommand) {
  const auto& [policy, late] = GetParam();
  Story quiet(policy, late);
  ASSERT_NO_FATAL_FAILURE(quiet.tell());
  const auto endings = quiet.endings();
  const bool promises = policy == "elasticflow" || policy == "rubato";
  EXPECT_EQ(endings.at("a"), "COMPLETED");
  EXPECT_EQ(endings.at("d"), "COMPLETED");
  if (!promises) {
    EXPECT_EQ(endings.at("e"), "CANCELLED");
  }
  EXPECT_GT(quiet.writes(), 100);
  EXPECT_GT(quiet.commands(), promises ? 5 : 8) << "the other story has two jobs";
  EXPECT_GT(quiet.quiet_turns(), 10);
  int deaths = 0;
  const auto dies_at_each = [&](const char* what, std::optional<long> Story::*when, long times) {
    for (long n = 0; n < times; n += static_cast<long>(step_between_places())) {
      SCOPED_TRACE(what + std::to_string(n));
      Story story(GetParam().policy, GetParam().late);
      story.*when = n;
      ASSERT_NO_FATAL_FAILURE(story.tell());
      ASSERT_EQ(story.endings(), endings);
      ASSERT_FALSE(HasFailure());
      deaths += story.deaths();
    }
  };
  dies_at_each("write ", &Story::die_at_write, quiet.writes());
  dies_at_each("command ", &Story::die_at_command, quiet.commands());
  dies_at_each("quiet turn ", &Story::die_after_quiet_turn, quiet.quiet_turns());
  EXPECT_GT(deaths, quiet.writes() * 9 / 10 / static_cast<long>(step_between_places()))
      << "it did die";
}

INSTANTIATE_TEST_SUITE_P(Policies, CoreCrash,
                         ::testing::Values(Plot{"fifo-backfill"}, Plot{"afs-l"},
                                           Plot{"elasticflow"}, Plot{"elasticflow", true},
                                           Plot{"rubato"}, Plot{"rubato", true}),
                         [](const auto& info) {
                           std::string name = info.param.policy;
                           std::erase(name, '-');
                           return name + (info.param.late ? "late" : "");
                         });

}  // namespace
}  // namespace rubato::daemon

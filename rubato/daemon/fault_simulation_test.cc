// The whole cluster in a bad world, by seeds: the real core, the real EngineTable and the real
// NodeJobs with toy masters (engine/testing_world.h). Connections break and messages are late,
// arrive twice or overtake each other. Agents and masters are killed. Nodes die, fall silent,
// cannot start jobs, or are declared dead by the operator. The daemon is killed at any write and
// any command. The disk is full for a while, and the wall clock jumps.
//
// Always: no GPU is used by two jobs, and every process is on a GPU that the core counts as its
// job's. No job runs twice at a time or again after its end. Everybody who was told that a job was
// accepted finds it, no job with a promise is refused, and the journal replays. When the faults
// stop, no job waits while GPUs that it could use are free, and every job comes to its end. In a
// world without faults, every deadline that was promised or admitted is kept.
//
//   RUBATO_SEEDS=10000   more seeds
//   RUBATO_SEED=17       one seed again; it lives through the same world, event by event
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/testing_seeds.h"
#include "rubato/base/text.h"
#include "rubato/daemon/testing_background.h"
#include "rubato/daemon/testing_daemon.h"

namespace rubato::daemon {
namespace {

struct DaemonDeath {};

constexpr std::size_t kNodes = 3;
constexpr std::uint64_t kCancels = 1000;   // of requests: the numbers of cancellations begin here,
constexpr std::uint64_t kOperator = 2000;  // those of the operator about nodes here,
constexpr std::uint64_t kTenants = 3000;   // and about tenants' cells here
constexpr double kStep = 0.5;              // seconds
constexpr double kTroubles = 90;           // so long faults happen
constexpr double kPatience = 2500;         // after which all must have ended
constexpr double kRecovery = 30;           // after the faults, until everything is known again
constexpr int kMostPassedOver = 3;  // decisions in a row that leave a job beside GPUs that would do

const std::vector<std::string>& policies() {
  static const std::vector<std::string> all = {
      "fifo-backfill", "afs-l", "elasticflow", "srtf", "tiresias-las", "edf-admission", "rubato"};
  return all;
}

// Those that start whatever fits.
bool conserves_work(const std::string& policy) {
  return policy == "fifo-backfill" || policy == "afs-l" || policy == "srtf" ||
         policy == "tiresias-las";
}

struct Kind {
  bool late = false;    // decisions come some turns after they were asked for
  bool guests = false;  // half of the jobs are opportunistic, under antman
  bool cells = false;   // tenants get cells and lose them
};

class Scenario {
 public:
  explicit Scenario(std::uint64_t seed, Kind kind = {})
      : random_(Random(seed).split(7)),
        daemon_(fmt::format("{}x4", kNodes), seed),
        faulty_(seed % 4 != 0) {
    daemon_.options.policy = faulty_         ? policies()[random_.below(policies().size())]
                             : seed % 8 == 0 ? "elasticflow"
                                             : "edf-admission";
    daemon_.options.snapshot_rows = 20 + random_.below(200);
    daemon_.options.restart_cost = from_seconds(4);
    daemon_.options.measuring = from_seconds(5);
    daemon_.options.verdict_within = from_seconds(60);
    if (random_.below(4) == 0) daemon_.options.interval = from_seconds(5);
    daemon_.world.pace.grace = from_seconds(random_.uniform(0, 1));
    daemon_.world.pace.step = from_seconds(random_.uniform(0, faulty_ ? 1 : 0.2));
    if (faulty_) {
      daemon_.world.faults = {random_.uniform(0, 0.03), random_.uniform(0, 0.3),
                              random_.uniform(0, 0.3), from_seconds(random_.uniform(0, 2))};
      daemon_.judge = [this](std::string_view) { return judge(); };
      daemon_.before_command = [this](const Command&) {
        if (troubled() && random_.below(60) == 0) throw DaemonDeath();
      };
    }
    if (kind.late) {
      daemon_.options.background = std::make_shared<LateBackground>(
          [random = std::make_shared<Random>(Random(seed).split(8))] {
            return static_cast<int>(random->below(4));
          });
    }
    const std::size_t jobs = 4 + random_.below(9);
    for (std::size_t i = 0; i < jobs; ++i) plan_job(i);
    if (kind.cells) plan_cells();
    if (!kind.guests) return;
    daemon_.options.policy = "antman";
    for (Order& order : orders_) {
      order.file.deadline_after.reset();
      if (random_.below(2) == 0) order.file.job_class = jobfile::JobClass::opportunistic;
    }
  }

  void live() {
    start();
    for (step_ = 0; seconds(daemon_.now) < kTroubles + kPatience; ++step_) {
      daemon_.now += from_seconds(kStep);
      if (faulty_) trouble();
      if (daemon_.is_up()) moment();
      if (!troubled() && over()) break;
      if (!daemon_.world.violations.empty()) break;
    }
    check();
  }

  // What was said and done, to compare two lives.
  std::string log;
  [[nodiscard]] int deaths() const { return deaths_; }
  [[nodiscard]] bool faulty() const { return faulty_; }
  [[nodiscard]] int promised() const { return promised_; }

 private:
  struct Order {
    double at_s = 0;
    Caller caller;
    JobFile file;
    std::optional<JobId> id;  // once it was told
    std::optional<double> cancel_at;
    bool refused = false;
  };

  void plan_job(std::size_t i) {
    const std::string name = "job" + std::to_string(i);
    // Jobs of one profile are equally fast: a promise is as good as what it was made from.
    const auto profile = random_.below(6);
    const double one =
        profile < 2 ? 10 + 20 * static_cast<double>(profile) : random_.log_uniform(5, 50);
    const double bend = profile < 2 ? 0.8 : random_.uniform(0.6, 1);
    daemon_.speeds[name] = [one, bend](int gpus) { return one * std::pow(gpus, bend); };
    const int min = 1 + static_cast<int>(random_.below(2));
    const int max = min + static_cast<int>(random_.below(6));
    JobFile file = job_file(name, one * random_.uniform(10, 120), min, max);
    if (profile < 2) file.profile = "net" + std::to_string(profile);
    if (random_.below(2) == 0) file.deadline_after = from_seconds(random_.uniform(60, 600));
    if (!file.deadline_after && random_.below(5) == 0) file.work.reset();
    file.max_failures = 1000;  // the world is bad; giving up has a test of its own
    Order order;
    order.at_s = random_.uniform(0, kTroubles * 0.7);
    order.caller = random_.below(2) == 0 ? kAda : kBob;
    order.file = std::move(file);
    if (random_.below(8) == 0) order.cancel_at = order.at_s + random_.uniform(1, 60);
    orders_.push_back(std::move(order));
  }

  // Without faults they are there before the first job, because promises are made in them.
  void plan_cells() {
    static const std::vector<std::string> sizes = {"1xnode", "1x2,2x1", "2xnode", "1x2"};
    for (std::uint64_t i = 1 + random_.below(faulty_ ? 6 : 2); i > 0; --i) {
      const std::string tenant = random_.below(2) == 0 ? "ada" : "bob";
      Ask ask = SetCells{tenant, sizes[random_.below(sizes.size())], {}};
      if (faulty_ && random_.below(4) == 0) ask = RemoveCells{tenant};
      cells_.emplace(kTenants + i, std::pair(faulty_ ? random_.uniform(0, kTroubles) : 0, ask));
    }
  }

  [[nodiscard]] bool troubled() const { return faulty_ && seconds(daemon_.now) < kTroubles; }

  int judge() {
    if (dead_) return SQLITE_IOERR_WRITE;
    if (!troubled()) return SQLITE_OK;
    if (full_until_ > daemon_.now) return SQLITE_FULL;
    if (random_.below(1500) == 0) {
      dead_ = true;
      return SQLITE_IOERR_WRITE;
    }
    return SQLITE_OK;
  }

  void trouble() {
    if (!troubled()) return end_troubles();
    const NodeId node = node_id(random_.below(kNodes));
    break_something(node);
    const auto over = [&](std::map<NodeId, Time>& times, const auto& end) {
      std::erase_if(times, [&](const auto& entry) {
        if (entry.second > daemon_.now) return false;
        end(entry.first);
        return true;
      });
    };
    over(cure_at_, [&](NodeId n) { daemon_.world.sick.erase(n); });
    over(mend_at_, [&](NodeId n) { daemon_.world.mend_node(n); });
    over(join_at_, [&](NodeId n) { daemon_.world.end_silence(n); });
    over(use_at_, [&](NodeId n) { wanted_[n] = NodeState::up; });
    if (!daemon_.is_up() && daemon_.now >= up_at_) start();
    if (!daemon_.is_up()) daemon_.world.advance(daemon_.now);  // training goes on
  }

  // At most one thing in a step.
  void break_something(NodeId node) {
    TestWorld& world = daemon_.world;
    const auto until = [&](double most_s) {
      return daemon_.now + from_seconds(random_.uniform(1, most_s));
    };
    const auto what = random_.below(400);
    if (what < 4) {
      note("node dies", node.value());
      world.break_node(node);
      mend_at_[node] = until(20);
    } else if (what < 10) {
      note("node is silent", node.value());
      world.silence(node);
      join_at_[node] = until(20);
    } else if (what < 13) {
      full_until_ = until(10);
    } else if (what < 17 && daemon_.is_up()) {
      bury();
      up_at_ = daemon_.now + from_seconds(random_.uniform(0, 15));
    } else if (what >= 17 && what < 21) {
      note("cannot start jobs", node.value());
      world.sick.insert(node);
      cure_at_[node] = until(20);
    } else if (what >= 21 && what < 27) {
      note("agent dies", node.value());
      world.kill_agent(node);
    } else if (what >= 27 && what < 31) {
      if (const auto job = some_master()) {
        note("master dies", job->value());
        world.kill_master(*job);
      }
    } else if (what >= 31 && what < 35) {
      if (const auto job = some_master()) world.cut_master(*job);
    } else if (what >= 35 && what < 39) {
      world.cut(node);
    } else if (what >= 39 && what < 41) {
      wanted_[node] = NodeState::down;
      use_at_[node] = until(20);
    } else if (what >= 41 && what < 43) {
      daemon_.clock_jump += from_seconds(random_.uniform(-60, 60));
    }
  }
  std::optional<JobId> some_master() {
    const std::set<JobId>& masters = daemon_.world.masters();
    if (masters.empty()) return std::nullopt;
    return *std::next(masters.begin(), static_cast<std::ptrdiff_t>(random_.below(masters.size())));
  }

  void end_troubles() {
    TestWorld& world = daemon_.world;
    if (!std::exchange(calm_, true)) {
      world.faults = {};
      world.sick.clear();
      full_until_ = kStart;
      for (std::size_t n = 0; n < kNodes; ++n) {
        world.mend_node(node_id(n));
        world.end_silence(node_id(n));
        wanted_[node_id(n)] = NodeState::up;
      }
    }
    if (!daemon_.is_up()) start();
  }

  void start() {
    const std::string why = daemon_.up();
    if (why.empty() && !dead_) return;
    // The disk is full, or it died again: later.
    EXPECT_TRUE(troubled() || dead_) << why;
    bury();
    up_at_ = daemon_.now + from_seconds(1);
  }
  void bury() {
    daemon_.kill();
    dead_ = false;
    ++deaths_;
    note("daemon dies", 0);
  }

  void moment() {
    std::vector<Input> inputs;
    for (std::size_t i = 0; i < orders_.size(); ++i) {
      const Order& order = orders_[i];
      if (!order.id && time_at(order.at_s) <= daemon_.now) {
        inputs.emplace_back(
            Asked{i, {order.caller, SubmitJob{order.file, "key" + std::to_string(i), false}}});
      } else if (order.id && order.cancel_at && time_at(*order.cancel_at) <= daemon_.now) {
        inputs.emplace_back(Asked{kCancels + i, {order.caller, CancelJob{*order.id}}});
      }
    }
    for (const auto& [number, change] : cells_) {
      if (time_at(change.first) <= daemon_.now)
        inputs.emplace_back(Asked{number, {kRoot, change.second}});
    }
    for (const auto& [node, state] : wanted_)
      inputs.emplace_back(Asked{kOperator + node.index(), {kRoot, SetNode{node, state}}});
    Turn turn;
    bool alive = true;
    try {
      turn = daemon_.turn(std::move(inputs));
    } catch (const DaemonDeath&) {
      alive = false;
    }
    if (!alive || dead_) {
      bury();
      up_at_ = daemon_.now + from_seconds(random_.uniform(0, 10));
      if (!faulty_) start();
      return;
    }
    for (const HistoryLine& line : turn.lines) note(line.text, line.job ? line.job->value() : 0);
    for (const auto& [i, answer] : turn.answers) hear(i, answer);
    daemon_.expect_no_strays();
    look_for_the_passed_over();
  }

  void look_for_the_passed_over() {
    const DaemonState& state = daemon_.core->state();
    const auto& last = state.last_decision();
    if (!last || last->number == decision_ || !conserves_work(daemon_.options.policy)) return;
    decision_ = last->number;
    if (faulty_ && seconds(daemon_.now) < kTroubles + kRecovery) return;
    int free = state.now().cluster.usable();
    for (const JobView& job : state.now().jobs) free -= job.target.gpus();
    for (const JobView& job : state.now().jobs) {
      const bool waits = job.held.empty() && job.target.empty() && !job.stays_away();
      int& times = passed_over_[job.id];
      times = waits && job.spec->limits.smallest() <= free ? times + 1 : 0;
      EXPECT_LE(times, kMostPassedOver) << daemon_.core->show(job.id).dump();
    }
  }

  void hear(std::uint64_t i, const Answer& answer) {
    if (answer.status == 503) return;
    if (i >= kTenants) {
      cells_.erase(i);
      return;
    }
    if (i >= kOperator) {
      wanted_.erase(node_id(i - kOperator));
      return;
    }
    if (i >= kCancels) {
      orders_[i - kCancels].cancel_at.reset();
      return;
    }
    EXPECT_TRUE(answer.status == 201 || answer.status == 200 || answer.status == 409)
        << answer.body.dump();
    orders_[i].id = JobId(answer.body["id"].get<JobId::rep>());
  }

  [[nodiscard]] bool over() const {
    if (!daemon_.is_up()) return false;
    for (const Order& order : orders_) {
      if (!order.id || order.cancel_at) return false;
    }
    return wanted_.empty() && cells_.empty() && daemon_.core->state().alive() == 0;
  }

  void check() {
    ASSERT_TRUE(daemon_.world.violations.empty()) << daemon_.world.violations.front();
    ASSERT_TRUE(daemon_.is_up());
    const DaemonState& state = daemon_.core->state();
    if (!over()) {
      for (const auto& [id, job] : state.jobs()) {
        if (!job.gone()) ADD_FAILURE() << "did not end: " << daemon_.show(id).dump();
      }
    }
    std::size_t taken_in = 0;
    for (const auto& [id, job] : state.jobs()) taken_in += job.measures_for ? 0 : 1;
    EXPECT_EQ(taken_in, orders_.size()) << "each was taken in once";
    for (const Order& order : orders_) {
      ASSERT_TRUE(order.id);
      const JobRecord* job = state.job(*order.id);
      ASSERT_NE(job, nullptr);
      if (!job->gone()) continue;
      EXPECT_EQ(job->name, order.file.name);
      const bool completed = job->ending->how == Ending::completed;
      // Who cancels a job that just then finished may hear either.
      EXPECT_LE(daemon_.world.finishes(*order.id), 1);
      if (completed) {
        EXPECT_EQ(daemon_.world.finishes(*order.id), 1);
      }
      if (job->ending->how == Ending::failed) ADD_FAILURE() << job->name << " was given up";
      if (job->promise) {
        ++promised_;
        EXPECT_NE(job->ending->how, Ending::refused) << daemon_.show(*order.id).dump();
      }
      const bool admitted = job->promise || daemon_.options.policy == "edf-admission";
      if (!faulty_ && admitted && completed && job->deadline) {
        EXPECT_LE(jobfile::to_text(*job->ended), jobfile::to_text(*job->deadline))
            << daemon_.show(*order.id).dump();
      }
    }
    daemon_.judge = nullptr;
    daemon_.expect_replay();
  }

  void note(const std::string& what, std::uint64_t about) {
    log += std::to_string(step_) + " " + what + " " + std::to_string(about) + "\n";
  }

  Random random_;
  TestDaemon daemon_;
  bool faulty_;
  std::vector<Order> orders_;
  std::map<NodeId, Time> mend_at_, join_at_, cure_at_, use_at_;
  std::map<NodeId, NodeState> wanted_;  // by the operator, who asks until there is an answer
  std::map<std::uint64_t, std::pair<double, Ask>>
      cells_;  // changes that are not answered, and when
  bool calm_ = false;
  Time full_until_ = kStart;
  Time up_at_ = kStart;
  bool dead_ = false;
  int deaths_ = 0;
  int promised_ = 0;
  RowNumber decision_;  // the last that was looked at
  std::map<JobId, int> passed_over_;
  int step_ = 0;
};

TEST(FaultSimulation, NothingIsLostNorDoneTwice) {
  const auto one = only_seed();
  const auto first = one.value_or(1);
  const auto last = one.value_or(seeds(140));
  int deaths = 0;
  int promised = 0;
  for (auto seed = first; seed <= last; ++seed) {
    Scenario world(seed);
    ASSERT_NO_FATAL_FAILURE(world.live()) << "RUBATO_SEED=" << seed << "\n" << world.log;
    ASSERT_FALSE(HasFailure()) << "RUBATO_SEED=" << seed << "\n" << world.log;
    deaths += world.deaths();
    promised += world.faulty() ? 0 : world.promised();
  }
  if (!one) {
    EXPECT_GT(deaths, static_cast<int>(last / 4)) << "the world was too good to prove anything";
    EXPECT_GT(promised, static_cast<int>(last / 8)) << "so few promises prove nothing";
  }
}

// The same while decisions take up to two seconds, in which the world goes on.
TEST(FaultSimulation, DecisionsMayTakeTheirTime) {
  const auto one = only_seed();
  const auto first = one.value_or(1);
  const auto last = one.value_or(seeds(40));
  for (auto seed = first; seed <= last; ++seed) {
    Scenario world(seed, {.late = true});
    ASSERT_NO_FATAL_FAILURE(world.live()) << "RUBATO_SEED=" << seed << "\n" << world.log;
    ASSERT_FALSE(HasFailure()) << "RUBATO_SEED=" << seed << "\n" << world.log;
  }
}

TEST(FaultSimulation, GuestsAndHostsLeaveEachOtherAlone) {
  const auto one = only_seed();
  const auto first = one.value_or(1);
  const auto last = one.value_or(seeds(60));
  for (auto seed = first; seed <= last; ++seed) {
    Scenario world(seed, {.late = seed % 3 == 0, .guests = true});
    ASSERT_NO_FATAL_FAILURE(world.live()) << "RUBATO_SEED=" << seed << "\n" << world.log;
    ASSERT_FALSE(HasFailure()) << "RUBATO_SEED=" << seed << "\n" << world.log;
  }
}

TEST(FaultSimulation, CellsComeAndGo) {
  const auto one = only_seed();
  const auto first = one.value_or(1);
  const auto last = one.value_or(seeds(100));
  int promised = 0;
  for (auto seed = first; seed <= last; ++seed) {
    Scenario world(seed, {.late = seed % 3 == 0, .cells = true});
    ASSERT_NO_FATAL_FAILURE(world.live()) << "RUBATO_SEED=" << seed << "\n" << world.log;
    ASSERT_FALSE(HasFailure()) << "RUBATO_SEED=" << seed << "\n" << world.log;
    promised += world.faulty() ? 0 : world.promised();
  }
  if (!one) {
    EXPECT_GT(promised, 0) << "no promise was made in cells";
  }
}

// A promise was lost because a decision fell between the command to grow and the growth (5160, in
// an earlier version of the world).
TEST(FaultSimulation, WhatWentWrongOnceDoesNotAgain) {
  for (const std::uint64_t seed : {5160U}) {
    Scenario world(seed);
    ASSERT_NO_FATAL_FAILURE(world.live()) << "RUBATO_SEED=" << seed << "\n" << world.log;
  }
}

// While a job was swept from a lost node, it ended, and the engine asked for what nobody knew any
// more.
TEST(FaultSimulation, AJobMayEndWhileItIsSwept) {
  Scenario world(929, {.cells = true});
  ASSERT_NO_FATAL_FAILURE(world.live()) << world.log;
}

TEST(FaultSimulation, ASeedLivesTheSameLifeAgain) {
  for (const std::uint64_t seed : {2U, 3U, 5U}) {
    const bool late = seed == 5;
    Scenario first(seed, {.late = late});
    Scenario second(seed, {.late = late});
    first.live();
    second.live();
    EXPECT_EQ(first.log, second.log);
    EXPECT_FALSE(first.log.empty());
  }
}

}  // namespace
}  // namespace rubato::daemon

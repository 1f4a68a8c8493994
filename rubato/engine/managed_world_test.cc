// The real EngineTable and ShareTable on the fake cluster of testing_manager.h, under a scheduler
// that starts, resizes and stops jobs at random on GPUs that the facts have set free. Answers of
// the manager are late, doubled or lost; shares are refused, preempted, run out of time and are
// made twice; others take GPUs; nodes fall silent or are declared dead, and get or lose GPUs; the
// front agent and the daemon are killed.
//
// What must hold at every step: a worker is only on GPUs that the scheduler counts as its job's, so
// no GPU is ever used by two jobs; no share is asked for twice; nothing is started on reserved
// GPUs, and whoever reserves them says why. When the faults end, every command is answered, and at
// the end no share is left. RUBATO_SEED=n runs one seed, RUBATO_SEEDS=n runs that many.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/testing_seeds.h"
#include "rubato/base/text.h"
#include "rubato/core/testing.h"
#include "rubato/engine/testing_front.h"
#include "rubato/launch/slots.h"
#include "rubato/loop/engine_contract.h"

namespace rubato::engine {
namespace {

using namespace std::chrono_literals;

class ManagedWorld {
  static constexpr std::size_t kNodes = 3;
  static constexpr int kGpus = 4;
  static constexpr int kMostGpus = 7;
  static constexpr std::size_t kJobs = 6;
  static constexpr Duration kStep = std::chrono::milliseconds(100);

 public:
  explicit ManagedWorld(std::uint64_t seed)
      : random_(seed),
        cluster_(machines(), Random(seed).split(1).next()),
        front_(cluster_, Random(seed).split(2).next()),
        jobs_(kJobs) {
    cluster_.faults = {random_.uniform(0, 0.15), random_.uniform(0, 0.15), random_.uniform(0, 0.1),
                       random_.uniform(0, 0.1), from_seconds(random_.uniform(0, 2))};
    // The journal begins with the nodes of a first listing; the last node joins later.
    for (std::size_t i = 0; i + 1 < kNodes; ++i) known_.add({machines()[i].name, "gpu", kGpus});
    new_engine();
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      faults();
      step();
    }
  }
  void stop_all() {
    quiet_ = true;
    cluster_.faults = {0, 0, 0, 0, from_seconds(0.2)};
    for (std::size_t i = 0; i < kNodes; ++i) {
      if (cluster_.machines()[i].state == NodeState::unknown) cluster_.end_silence(i);
      cluster_.machines()[i].gpus = kMostGpus;
    }
    for (std::size_t i = 0; i < known_.nodes().size(); ++i) {
      if (down_.contains(node_id(i))) mark(node_id(i), false);
    }
    cluster_.end_foreign();
    // Blocks last up to 10 minutes. Commands on reserved GPUs are answered, because jobs leave
    // them.
    wait([&] { return answered(); }, "a command is never answered");
    for (std::size_t i = 0; i < kJobs; ++i) {
      if (jobs_[i].on_gpus) issue(Stop{job_id(i), next_generation(i)});
    }
    wait([&] { return answered(); }, "a stop is never answered");
    for (const Job& job : jobs_) {
      if (!job.held.empty()) fail("GPUs are lost");
    }
    wait([&] { return cluster_.alive() == 0; }, "a share is left");
    wait([&] { return known_.installed() == static_cast<int>(kNodes) * kMostGpus; },
         "GPUs have not joined");
    wait([&] { return usable() == known_.installed(); }, "GPUs stay reserved");
    parts = static_cast<int>(known_.nodes().size() - kNodes);
  }

  int finishes = 0, crashes = 0, downs = 0, failures = 0, reservations = 0, quotas = 0;
  int parts = 0;  // that joined later
  [[nodiscard]] const FakeCluster& cluster() const { return cluster_; }

 private:
  struct Job {
    Generation generation{0};
    std::optional<Command> last;
    NodeId home;
    Allocation held, target;
    bool on_gpus = false, waits = false, letting_go = false, finished = false;
  };

  static std::vector<FakeCluster::Machine> machines() {
    std::vector<FakeCluster::Machine> all;
    for (std::size_t i = 0; i < kNodes; ++i) all.push_back({fmt::format("tux{:02}", i), kGpus});
    return all;
  }
  [[noreturn]] void fail(const std::string& why) const {
    std::string text = fmt::format("{}\nat {:.2f} s\n", why, seconds(now_));
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      text += fmt::format("job {}: told {} of kind {}, holds {} GPUs, shares on {}{}{}\n", i,
                          job.generation.value(), job.last ? job.last->index() : 9, job.held.gpus(),
                          front_.shares().held(job_id(i)).gpus(), job.waits ? ", waits" : "",
                          job.letting_go ? ", lets go" : "");
    }
    for (const auto& [id, master] : front_.masters()) {
      const JobStatus status = master.status();
      text += fmt::format("master {}: obeys {}.{}, {} slots in use{}{}\n", id.value(),
                          status.generation.value(), status.revision, status.in_use.size(),
                          status.running ? ", runs" : "", status.ended ? ", has ended" : "");
      for (const PlacedShare& share : front_.shares().placed(id))
        text += fmt::format("  wants {}\n", share.name);
      for (const ShareView& share : status.shares) text += fmt::format("  has {}\n", share.name);
    }
    for (const auto& [native, entry] : cluster_.entries())
      text += fmt::format("{} {} on {} is {}\n", native, entry.share.name, entry.share.node,
                          static_cast<int>(entry.share.state));
    throw std::runtime_error(text);
  }
  bool chance(double p) { return random_.uniform() < p; }
  [[nodiscard]] bool answered() const {
    return std::none_of(jobs_.begin(), jobs_.end(),
                        [](const Job& job) { return job.waits || job.letting_go; });
  }
  [[nodiscard]] int usable() const { return known_.usable(); }
  template <class Done>
  void wait(const Done& done, const std::string& otherwise) {
    for (int i = 0; !done(); ++i) {
      if (i > 20'000) fail(otherwise);
      step();
    }
  }

  // --- the daemon ---

  void new_engine() {
    std::vector<KnownJob> jobs;
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      if (job.on_gpus) jobs.push_back({job_id(i), job.home, *job.last, job.held});
    }
    front_.new_engine(now_, known_, jobs, down_);
  }

  void step() {
    now_ += kStep;
    const std::vector<Fact> facts = front_.step(now_);
    check();
    for (const Fact& fact : facts) std::visit([&](const auto& f) { fold(f); }, fact);
    leave_reserved();
    if (!quiet_) command_something();
    check();
  }

  // --- what the scheduler knows is the fold of the facts ---

  void fold(const RunningFact& fact) {
    Job& job = jobs_[fact.job.index()];
    if (fact.generation == job.generation) job.waits = false;
  }
  void fold(const ReleasedFact& fact) {
    Job& job = jobs_[fact.job.index()];
    if (fact.generation != job.generation) return;
    job.held = fact.stopped ? Allocation() : minus(job.held, fact.gpus);
    job.letting_go = !minus(job.held, job.target).empty();
    if (!fact.stopped) return;
    job.on_gpus = job.waits = job.letting_go = false;
    front_.engine().forget(fact.job);
  }
  void fold(const Finished& fact) {
    ++finishes;
    Job& job = jobs_[fact.job.index()];
    job.finished = true;
    release_all(job);
    front_.engine().forget(fact.job);
  }
  void fold(const FailedFact& fact) {
    Job& job = jobs_[fact.job.index()];
    if (fact.generation != job.generation) return;
    ++failures;
    release_all(job);
  }
  static void release_all(Job& job) {
    job.held = job.target = Allocation();
    job.on_gpus = job.waits = job.letting_go = false;
  }
  void fold(const NodeChanged& fact) { known_.set_state(fact.node, fact.state); }
  void fold(const NodeAdded& fact) {
    if (fact.node.index() < known_.nodes().size()) return;  // said again after a crash
    if (!known_.can_add(fact.added)) fail("a node joins twice");
    known_.add(fact.added);
  }
  void fold(const QuotaFact& fact) {
    ++quotas;
    if (fact.why.empty()) fail("nobody knows why a job is limited");
    const Job& job = jobs_[fact.job.index()];
    if (fact.generation == job.generation && !minus(fact.gpus, job.target).empty())
      fail("a job is said to have GPUs that it was not given");
  }
  void fold(const Reserved& fact) {
    ++reservations;
    if (fact.gpus != 0 && fact.why.empty()) fail("nobody knows why GPUs are reserved");
    known_.set_reserved(fact.node, fact.gpus);
  }

  // As the loop does it.
  void leave_reserved() {
    for (std::size_t i = 0; i < kJobs; ++i) {
      Job& job = jobs_[i];
      Allocation rest = job.target;
      for (const Slice& slice : job.target.slices())
        rest.remove({slice.node, slice.mask & known_.node(slice.node).reserved});
      if (rest == job.target || job.letting_go || std::holds_alternative<Stop>(*job.last)) continue;
      if (rest.empty()) {
        issue(Stop{job_id(i), next_generation(i)});
      } else {
        issue(Resize{job_id(i), next_generation(i), rest});
      }
    }
  }
  void command_something() {
    const std::size_t i = random_.below(kJobs);
    Job& job = jobs_[i];
    if (job.finished || job.letting_go || !chance(0.1)) return;
    Allocation gpus;
    for (std::size_t n = 0; n < known_.nodes().size(); ++n) {
      std::uint64_t free = known_.node(node_id(n)).usable();
      for (const Job& other : jobs_) {
        if (&other != &job) free &= ~other.held.mask_on(node_id(n));
      }
      const std::uint64_t some = free & random_.next();
      if (some != 0) gpus.add({node_id(n), some});
    }
    if (job.on_gpus && chance(0.2)) return issue(Stop{job_id(i), next_generation(i)});
    if (gpus.empty() || (job.on_gpus && std::holds_alternative<Stop>(*job.last))) return;
    // A job first lets go of what it should not have; only then it gets more.
    if (job.on_gpus && !minus(job.held, gpus).empty()) gpus = common(job.held, gpus);
    if (gpus.empty()) return;
    if (job.on_gpus) {
      issue(Resize{job_id(i), next_generation(i), gpus});
    } else {
      issue(Start{job_id(i), next_generation(i), gpus});
    }
  }
  Generation next_generation(std::size_t i) { return jobs_[i].generation.next(); }

  // It is stored, then sent. The daemon may die in between.
  void issue(const Command& command) {
    const JobId id = std::visit([](const auto& c) { return c.job; }, command);
    Job& job = jobs_[id.index()];
    job.generation = std::visit([](const auto& c) { return c.generation; }, command);
    job.last = command;
    job.waits = true;
    if (const auto* start = std::get_if<Start>(&command)) {
      job.home = start->gpus.slices().front().node;
      job.held = job.target = start->gpus;
      job.on_gpus = true;
    } else if (const auto* resize = std::get_if<Resize>(&command)) {
      job.target = resize->gpus;
      job.held.add(minus(resize->gpus, job.held));
      job.letting_go = !minus(job.held, job.target).empty();
    } else {
      job.target = Allocation();
      job.letting_go = true;
    }
    if (!quiet_ && chance(0.03)) return crash();
    front_.told(command);
  }
  void crash() {
    ++crashes;
    new_engine();
  }
  void mark(NodeId node, bool down) {
    down ? static_cast<void>(down_.insert(node)) : static_cast<void>(down_.erase(node));
    front_.mark(node, down);
  }

  // --- faults ---

  void faults() {
    const double what = random_.uniform();
    const std::size_t node = random_.below(kNodes);
    if (what < 0.01) {
      crash();
    } else if (what < 0.015) {
      cluster_.preempt("PREEMPTED");
    } else if (what < 0.02) {
      cluster_.add_foreign(node, 1 + static_cast<int>(random_.below(kGpus)));
    } else if (what < 0.03) {
      cluster_.end_foreign();
    } else if (what < 0.032) {
      if (cluster_.machines()[node].state == NodeState::up) cluster_.silence(node);
    } else if (what < 0.045) {
      if (cluster_.machines()[node].state == NodeState::unknown) cluster_.end_silence(node);
    } else if (what < 0.048) {
      // Only a node that is dead is declared dead: whoever is wrong there has two of a share.
      const NodeId part = node_id(random_.below(known_.nodes().size()));
      if (down_.contains(part)) return;
      ++downs;
      kill_node(machine_of(part));
      mark(part, true);
    } else if (what < 0.06) {
      const NodeId part = node_id(random_.below(known_.nodes().size()));
      if (down_.contains(part)) mark(part, false);
    } else if (what < 0.07) {
      front_.disconnect();
    } else if (what < 0.072) {
      const auto master = front_.masters().find(job_id(random_.below(kJobs)));
      if (master != front_.masters().end()) master->second.fail();
    } else if (what < 0.077) {
      const auto master = front_.masters().find(job_id(random_.below(kJobs)));
      if (master != front_.masters().end()) master->second.finish();
    } else if (what < 0.08) {
      cluster_.machines()[node].gpus = 1 + static_cast<int>(random_.below(kMostGpus));
    }
  }
  [[nodiscard]] std::size_t machine_of(NodeId part) {
    const auto& all = cluster_.machines();
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& one) {
      return one.name == node_of_part(known_.name(part));
    });
    return static_cast<std::size_t>(found - all.begin());
  }
  void kill_node(std::size_t node) {
    cluster_.silence(node);
    cluster_.end_silence(node);
  }

  void check() const {
    if (!cluster_.violations.empty()) fail(cluster_.violations.front());
    std::map<Slot, std::size_t> used;
    for (const auto& [id, master] : front_.masters()) {
      const std::size_t i = id.index();
      for (const auto& [name, slots] : master.workers()) {
        if (!cluster_.runs(name)) continue;
        for (const Slot& slot : slots) {
          // A share of the daemon before may come late, when another one has its slot. The manager
          // gives the two different GPUs, and their master ends the first.
          if (used.emplace(slot, i).first->second != i) fail("a GPU is used by two jobs");
          const auto place = parse_slot(slot);
          if ((jobs_[i].held.mask_on(place->node) >> static_cast<unsigned>(place->gpu) & 1U) == 0)
            fail(fmt::format("job {} is on GPUs that are not its own", i));
        }
      }
    }
  }

  Random random_;
  FakeCluster cluster_;
  FakeFront front_;
  Cluster known_;
  std::vector<Job> jobs_;
  std::set<NodeId> down_;
  Time now_ = kStart;
  bool quiet_ = false;
};

TEST(ManagedWorld, NoGpuIsEverUsedByTwoAndEveryCommandIsAnswered) {
  int finishes = 0, crashes = 0, downs = 0, failures = 0, reservations = 0, quotas = 0, parts = 0;
  int submissions = 0, refusals = 0, preemptions = 0, doubles = 0;
  const auto only = only_seed();
  const auto first = only.value_or(0);
  const auto last = first + (only ? 1 : seeds(200));
  for (std::uint64_t seed = first; seed < last; ++seed) {
    try {
      ManagedWorld world(seed);
      for (int i = 0; i < 3; ++i) world.run(400);
      world.stop_all();
      finishes += world.finishes;
      crashes += world.crashes;
      downs += world.downs;
      failures += world.failures;
      reservations += world.reservations;
      quotas += world.quotas;
      parts += world.parts;
      submissions += world.cluster().submissions;
      refusals += world.cluster().refusals;
      preemptions += world.cluster().preemptions;
      doubles += world.cluster().doubles;
    } catch (const std::runtime_error& problem) {
      FAIL() << "seed " << seed << ": " << problem.what();
    }
  }
  std::printf(
      "%d submissions, %d refusals, %d doubles, %d preemptions, %d reservations, %d crashes, "
      "%d nodes declared dead, %d parts of nodes, %d failures, %d finishes\n",
      submissions, refusals, doubles, preemptions, reservations, crashes, downs, parts, failures,
      finishes);
  if (only) return;
  // The test would prove little if little happened.
  for (const int count :
       {finishes, crashes, downs, failures, reservations, quotas, parts, refusals, preemptions})
    EXPECT_GT(count, static_cast<int>(last - first) / 4);
}

// --- the contract of an engine ---

// Two nodes of four GPUs under a manager without faults.
class ManagedHarness {
 public:
  ManagedHarness() : cluster_({{"tux0", 4}, {"tux1", 4}}, 1), front_(cluster_, 1) {
    cluster_.faults.latest = from_seconds(0.3);
    Cluster known;
    for (const char* name : {"tux0", "tux1"}) known.add({name, "gpu", 4});
    front_.new_engine(now_, known, {});
    pass(5);
  }

  Facts carry_out(const std::vector<Command>& commands) {
    for (const Command& command : commands) front_.told(command);
    return pass(60);
  }
  Facts finish(JobId job) {
    front_.masters().at(job).finish();
    return pass(60);
  }
  Facts break_node(NodeId node) {
    break_unnoticed(node);
    return pass(60);
  }
  void break_unnoticed(NodeId node) {
    cluster_.silence(node.index());
    front_.mark(node, true);
  }

 private:
  Facts pass(double for_s) {
    Facts facts;
    for (const Time end = now_ + from_seconds(for_s); now_ < end;) {
      now_ += from_seconds(0.1);
      for (Fact& fact : front_.step(now_)) facts.push_back(std::move(fact));
    }
    return facts;
  }

  Time now_ = kStart;
  FakeCluster cluster_;
  FakeFront front_;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Managed, EngineContract, ManagedHarness);

// A ShareTable with one node and one job on its first GPU, whose share runs.
class OneShare : public ::testing::Test {
 protected:
  OneShare() {
    list({});
    table_.want(now_, job_id(7), Generation(1), gpus_on({{0, 0b1}}), false);
    first_ = submitted();
    table_.answered(now_, ShareTaken{first_, "1"});
    list({{first_, "1", "tux0", ManagedShare::State::running, "", 10min}});
  }
  void list(std::vector<ManagedShare> shares, int gpus = 2, int others = 0) {
    table_.listing_began(++number_);
    ManagedNode node;
    node.name = "tux0";
    node.gpus = gpus;
    node.others = others;
    table_.answered(now_, Listing{number_, {node}, std::move(shares), {}});
  }
  // What is reserved now, by node, and why.
  [[nodiscard]] std::map<NodeId, Reserved> reserved() {
    std::map<NodeId, Reserved> all;
    for (const Fact& fact : table_.take_facts()) {
      if (const auto* one = std::get_if<Reserved>(&fact)) all[one->node] = *one;
    }
    return all;
  }
  [[nodiscard]] ManagedShare running() const {
    return {first_, "1", "tux0", ManagedShare::State::running, "", std::nullopt};
  }
  // The name of the only share that is asked for now; empty if there is none.
  ShareName submitted() {
    table_.pass(now_);
    ShareName name;
    for (const ShareTable::Order& order : table_.take_orders()) {
      if (const auto* submit = std::get_if<ShareTable::Submit>(&order)) name = submit->name;
    }
    return name;
  }

  static Cluster cluster() {
    Cluster cluster;
    cluster.add({"tux0", "gpu", 2});
    return cluster;
  }
  Time now_ = kStart;
  std::int64_t number_ = 0;
  ShareTable table_{cluster(), "j1", "x"};
  ShareName first_;
};

TEST_F(OneShare, NearItsTimeLimitIsReplacedOnTheSameGpu) {
  now_ += 5min;
  list({{first_, "1", "tux0", ManagedShare::State::running, "", 80s}});
  const auto placed = table_.placed(job_id(7));
  ASSERT_EQ(placed.size(), 1U);
  EXPECT_NE(placed[0].name, first_) << "the master must move the worker";
  EXPECT_EQ(submitted(), "") << "the GPU is not free yet";
  list({{first_, "1", "tux0", ManagedShare::State::gone, ""}});
  EXPECT_EQ(submitted(), placed[0].name);
  EXPECT_TRUE(table_.take_facts().empty()) << "nothing changes for the policy";
}

// Otherwise a partition with a short limit would let workers do nothing but move.
TEST_F(OneShare, ThatHasJustBegunIsNotReplaced) {
  list({{first_, "1", "tux0", ManagedShare::State::running, "", 80s}});
  EXPECT_EQ(table_.placed(job_id(7))[0].name, first_);
}

// Otherwise a job that grows while the manager is slow would lose its GPUs.
TEST_F(OneShare, IsNotCalledStuckBeforeAListingSaysSo) {
  table_.want(now_, job_id(7), Generation(2), gpus_on({{0, 0b11}}), false);
  const ShareName second = submitted();
  table_.answered(now_, ShareTaken{second, "2"});
  now_ += 40s;
  table_.pass(now_);
  EXPECT_TRUE(reserved().empty()) << "nothing was heard";
  list({running(), {second, "2", "tux0", ManagedShare::State::waiting, "Resources"}});
  table_.pass(now_);
  EXPECT_EQ(reserved().at(node_id(0)).why, "Resources");
}

// A manager that was started again has not heard of its nodes for a moment. A job that has been
// told to grow there need not be stopped for this.
TEST_F(OneShare, IsNotToldOfANodeThatIsSilentForAMoment) {
  const auto words = [&](NodeState state) {
    table_.listing_began(++number_);
    ManagedNode node;
    node.name = "tux0";
    node.gpus = 2;
    node.state = state;
    table_.answered(now_, Listing{number_, {node}, {running()}, {}});
    std::vector<NodeState> told;
    for (const ShareTable::Order& order : table_.take_orders()) {
      if (const auto* word = std::get_if<ShareTable::NodeWord>(&order)) told.push_back(word->state);
    }
    return told;
  };
  EXPECT_TRUE(words(NodeState::unknown).empty());
  now_ += 3s;
  EXPECT_TRUE(words(NodeState::up).empty());
  EXPECT_TRUE(words(NodeState::unknown).empty());
  now_ += 11s;
  EXPECT_EQ(words(NodeState::unknown), std::vector<NodeState>{NodeState::unknown});
  EXPECT_EQ(words(NodeState::up), std::vector<NodeState>{NodeState::up});
  EXPECT_EQ(words(NodeState::down), std::vector<NodeState>{NodeState::unknown}) << "this is sure";
}

TEST_F(OneShare, ThatIsLostKeepsItsGpuFromOthersUntilItIsGone) {
  ManagedShare lost = running();
  lost.state = ManagedShare::State::lost;
  lost.why = "its node failed";
  for (int i = 0; i < 60; ++i) {
    now_ += 1s;
    list({lost});
    table_.pass(now_);
  }
  const auto while_lost = reserved();
  EXPECT_EQ(while_lost.at(node_id(0)).gpus, 0b1U);
  EXPECT_EQ(while_lost.at(node_id(0)).why, "its node failed");
  lost.state = ManagedShare::State::gone;
  list({lost});
  EXPECT_EQ(reserved().at(node_id(0)).gpus, 0U) << "its node answers again";
}

TEST_F(OneShare, IsNotTouchedWhenItsNodeGetsAndLosesGpus) {
  list({running()}, 5);
  const auto facts = table_.take_facts();
  ASSERT_EQ(facts.size(), 1U);
  const auto& added = std::get<NodeAdded>(facts[0]);
  EXPECT_EQ(added.node, node_id(1));
  EXPECT_EQ(added.added.name, "tux0+1");
  EXPECT_EQ(added.added.gpus, 3);
  EXPECT_EQ(table_.managed_name(node_id(1)), "tux0");

  // Those of others are the newest ones. Lost GPUs are those of the newest parts, too.
  list({running()}, 5, 2);
  EXPECT_EQ(reserved()[node_id(1)].gpus, 0b110U);
  list({running()}, 3, 2);
  auto now = reserved();
  EXPECT_EQ(now[node_id(1)].gpus, 0b111U);
  EXPECT_EQ(now[node_id(0)].gpus, 0b10U);
  EXPECT_NE(now[node_id(1)].why.find("tux0 has only 3 GPUs now"), std::string::npos);
  list({running()}, 6);
  EXPECT_EQ(table_.cluster().nodes().size(), 3U);
  EXPECT_EQ(table_.cluster().name(node_id(2)), "tux0+2");
  EXPECT_EQ(table_.cluster().installed(), 6);
  EXPECT_EQ(table_.cluster().usable(), 6);
  EXPECT_EQ(table_.held(job_id(7)), gpus_on({{0, 0b1}}));
}

TEST_F(OneShare, OnAPartOfItsNodeIsAskedForOnThatNode) {
  list({running()}, 3);
  // The next table has the parts from the journal.
  ShareTable next(table_.cluster(), "j1", "y");
  next.listing_began(1);
  ManagedNode node;
  node.name = "tux0";
  node.gpus = 3;
  next.answered(now_, Listing{1, {node}, {running()}, {}});
  next.want(now_, job_id(7), Generation(2), gpus_on({{0, 0b1}, {1, 0b1}}), false);
  next.pass(now_);
  std::vector<std::string> nodes;
  for (const ShareTable::Order& order : next.take_orders()) {
    if (const auto* submit = std::get_if<ShareTable::Submit>(&order))
      nodes.push_back(next.managed_name(submit->node));
  }
  EXPECT_TRUE(next.take_facts().empty()) << "nothing joins again";
  EXPECT_EQ(nodes, std::vector<std::string>{"tux0"});
}

TEST(PartsOfNodes, HaveNamesThatSayWhichNodeTheyAreOf) {
  EXPECT_EQ(name_of_part("n1/a100", 0), "n1/a100");
  EXPECT_EQ(name_of_part("n1/a100", 12), "n1/a100+12");
  EXPECT_EQ(node_of_part("n1/a100+12"), "n1/a100");
  for (const char* whole : {"n1", "n1+", "n1+0", "n1+01", "n1+x", "+1", "n1+-1", ""})
    EXPECT_EQ(node_of_part(whole), whole);
}

TEST(ShareNames, SayWhichGpusTheyHave) {
  const NamedShare share{JobId(7), Generation(300), NodeId(12), 0b101, "x1a"};
  const ShareName name = name_of("j1", share);
  EXPECT_EQ(name, "j1-7-12c-c-5-x1a");
  EXPECT_EQ(parse_share_name("j1", name), share);
  for (const char* no : {"j2-7-12c-c-5-x1a", "j1-7-12c-c-0-x1a", "j1-7-12c-c-5-", "j1-7-12c-c-5",
                         "j1-07-1-1-1-x", "j1-7-12C-c-5-x", "j1-7-1ffffffff-c-5-x", "j1-7-1-1-1-X",
                         "j1-7-1-1-11111111111111111-x", ""})
    EXPECT_FALSE(parse_share_name("j1", no)) << no;
  const NamedShare largest{JobId(UINT32_MAX), Generation(UINT32_MAX), NodeId(99'999), UINT64_MAX,
                           "abcdef"
                           "1234"};
  EXPECT_LE(name_of("12345678", largest).size(), 63U);
}

}  // namespace
}  // namespace rubato::engine

// A whole live cluster without clock, socket or process: the real EngineTable, a real NodeJobs for
// each node, toy masters with toy workers, a disk, and a scheduler that grants only what the facts
// have set free. A random choice of what happens next: messages late or lost, connections cut or
// frozen, agents, masters, workers and the daemon killed, nodes given up by the operator.
//
// What must hold at every step: a process sits only on GPUs that the scheduler counts as its job's,
// so no GPU is ever used by two jobs; no job is started that has finished. And when the faults end,
// every command is answered. A seed that fails is printed; RUBATO_SEED=n runs it alone,
// RUBATO_SEEDS=n runs that many.
#include <cstdlib>
#include <deque>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <stdexcept>

#include "rubato/base/random.h"
#include "rubato/base/text.h"
#include "rubato/core/testing.h"
#include "rubato/engine/engine_table.h"
#include "rubato/node/node_jobs.h"

namespace rubato::engine {
namespace {

constexpr std::size_t kNodes = 3;
constexpr std::size_t kGpus = 3;
constexpr std::size_t kJobs = 8;

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {
    nodes_.resize(kNodes);
    jobs_.resize(kJobs);
    new_engine();
  }

  void run(int steps) {
    for (int i = 0; i < steps; ++i) {
      faults();
      step();
    }
  }

  // No more faults, no more wishes: every command must be answered, and every node be up.
  void come_to_rest() {
    for (std::size_t i = 0; i < kNodes; ++i) {
      nodes_[i].frozen_until = kStart;
      nodes_[i].sick = false;
      if (nodes_[i].down) mark_up(i);
    }
    quiet_ = true;
    const auto restless = [&] {
      for (const Job& job : jobs_) {
        if (job.waits) return true;
      }
      for (const Node& node : nodes_) {
        if (node.state != NodeState::up) return true;
      }
      return false;
    };
    for (int i = 0; restless(); ++i) {
      if (i > 20'000) fail("a command is never answered, or a node never comes back");
      step();
    }
    for (std::size_t i = 0; i < kJobs; ++i) {
      if (jobs_[i].on_gpus) issue(Stop{job_id(i), next_generation(i)});
    }
    for (int i = 0; restless(); ++i) {
      if (i > 20'000) fail("a stop is never answered");
      step();
    }
    for (const Job& job : jobs_) {
      if (!job.held.empty()) fail("GPUs are lost");
      if (job.master && !job.master->procs.empty()) fail("processes are left");
    }
  }

  int starts = 0, finishes = 0, crashes = 0, downs = 0, failures = 0, sick_starts = 0;

 private:
  // --- the truth

  struct Master {
    Generation start;
    bool named = false;  // master.json is written, and exit.json was looked at after that
    Generation obeyed;
    std::set<Slot> wanted, procs;
    bool stopping = false;
    std::optional<JobEnd> ended;  // exit.json is written, the process not gone yet
    bool managed = false;         // its agent is connected
  };
  struct Job {
    // on the disk
    std::optional<JobLaunch> launch;
    std::optional<JobExit> exit;
    Generation forgotten{0}, fence{0};
    std::vector<Slot> workers;  // workers.json
    std::optional<Master> master;
    std::set<Slot> orphans;  // workers of a dead master
    bool finished = false;   // in truth
    // what the scheduler knows: the fold of the facts, which is the journal
    Generation generation{0};
    std::optional<Command> last;
    NodeId home;
    Allocation held;
    bool on_gpus = false;
    bool waits = false;       // for the answer to `last`
    bool letting_go = false;  // of some GPUs
    bool known_finished = false;
  };
  struct Link {
    std::deque<FromAgent> to_engine;
    std::deque<ToAgent> to_agent;
    bool engine_open = true, agent_open = true;
    bool hello_said = false;
  };
  struct Node {
    std::unique_ptr<NodeJobs> agent;
    std::shared_ptr<Link> link;
    std::set<JobId> sweeping;
    Time frozen_until;
    NodeState state = NodeState::up;  // by the facts
    bool down = false;                // by the operator
    bool sick = false;                // no master can be started there
    Time beat;
  };

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error(why + "\n" + to_text());
  }
  [[nodiscard]] std::string to_text() const {
    std::string text;
    for (std::size_t i = 0; i < kNodes; ++i) {
      const Node& node = nodes_[i];
      text += fmt::format("node {}: state {}{}{}{}\n", i, static_cast<int>(node.state),
                          node.down ? ", given up" : "", node.agent ? ", agent" : "",
                          node.link ? ", linked" : "");
    }
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      text += fmt::format(
          "job {}: told {} of kind {}, home {}, held {}{}{}; launched {} on {}, exit {}, master "
          "{}\n",
          i, job.generation.value(), job.last ? job.last->index() : 9, job.home.value(),
          job.held.gpus(), job.waits ? ", waits" : "", job.finished ? ", finished" : "",
          job.launch ? job.launch->generation.value() : 0,
          job.launch ? job.launch->home.value() : 0, job.exit ? job.exit->generation.value() : 0,
          job.master ? static_cast<int>(job.master->obeyed.value()) : -1);
    }
    return text;
  }
  bool chance(double p) { return random_.uniform() < p; }
  Job& job_of(JobId id) { return jobs_[id.index()]; }

  void check() {
    std::map<Slot, std::size_t> users;
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      std::set<Slot> procs = job.orphans;
      if (job.master) procs.insert(job.master->procs.begin(), job.master->procs.end());
      std::set<Slot> held;
      for (const Slot& slot : slots_of(job.held)) held.insert(slot);
      for (const Slot& slot : procs) {
        if (!held.contains(slot))
          fail(fmt::format("job {} is on {}, which is not its own", i, slot));
        if (!users.emplace(slot, i).second) fail(fmt::format("{} is used twice", slot));
      }
    }
  }

  // --- masters and workers

  void toil(JobId id) {
    Job& job = job_of(id);
    if (!job.master) return;
    Master& master = *job.master;
    if (!master.named) {
      if (!chance(0.3)) return;
      if ((job.exit && job.exit->generation >= master.start) || job.fence >= master.start) {
        job.master.reset();
        return gone(id);
      }
      master.named = true;
    } else if (master.ended) {
      if (!chance(0.3)) return;
      job.master.reset();
      return gone(id);
    } else if (master.stopping) {
      if (master.procs.empty()) return leave(id, {JobEnd::How::stopped, 0, "stopped"});
      master.procs.erase(master.procs.begin());
    } else {
      work(id, master);
    }
    report(id);
  }

  void work(JobId id, Master& master) {
    for (const Slot& slot : master.procs) {
      if (master.wanted.contains(slot)) continue;
      master.procs.erase(slot);
      return;
    }
    for (const Slot& slot : master.wanted) {
      if (master.procs.contains(slot)) continue;
      job_of(id).workers.push_back(slot);
      master.procs.insert(slot);
      return;
    }
    if (!quiet_ && chance(0.003)) {
      job_of(id).finished = true;
      ++finishes;
      master.procs.clear();
      leave(id, {JobEnd::How::finished, 0, ""});
    }
  }

  void leave(JobId id, JobEnd end) {
    Job& job = job_of(id);
    job.exit = JobExit{job.master->start, end, {}, 0, 0};
    job.master->ended = std::move(end);
    report(id);
  }

  void report(JobId id) {
    Job& job = job_of(id);
    if (!job.master || !job.master->managed) return;
    Node& node = nodes_[job.launch->home.index()];
    if (node.agent) node.agent->master_said(now_, id, status_of(id));
  }

  JobStatus status_of(JobId id) {
    const Master& master = *job_of(id).master;
    JobStatus status;
    status.job = id;
    status.generation = master.obeyed;
    status.in_use.assign(master.procs.begin(), master.procs.end());
    status.running = !master.stopping && !master.ended && master.procs == master.wanted;
    status.ended = master.ended;
    return status;
  }

  void master_hears(JobId id, const ToMaster& message) {
    Job& job = job_of(id);
    if (!job.master || job.master->ended || !job.master->named) return;
    Master& master = *job.master;
    if (const auto* place = std::get_if<Place>(&message)) {
      if (place->generation <= master.obeyed || master.stopping) return;
      master.obeyed = place->generation;
      master.wanted = {place->slots.begin(), place->slots.end()};
    } else if (const auto* stop = std::get_if<StopJob>(&message)) {
      if (stop->generation <= master.obeyed) return;
      master.obeyed = stop->generation;
      master.stopping = true;
    } else if (std::holds_alternative<KillJob>(message)) {
      master.procs.clear();
      return leave(id, {JobEnd::How::failed, 1, "killed"});
    }
    report(id);
  }

  void kill_master(JobId id) {
    Job& job = job_of(id);
    if (!job.master) return;
    job.orphans.insert(job.master->procs.begin(), job.master->procs.end());
    job.master.reset();
    gone(id);
  }

  // The agent of its home sees it by the process descriptor.
  void gone(JobId id) {
    Node& node = nodes_[job_of(id).launch->home.index()];
    if (!node.agent) return;
    const JobLaunch* launch = node.agent->launch_of(id);
    if (launch != nullptr) node.agent->master_gone(id, exit_that_counts(*launch));
  }

  std::optional<JobExit> exit_that_counts(const JobLaunch& launch) {
    const Job& job = job_of(launch.job);
    const bool finished = job.exit && job.exit->end.how == JobEnd::How::finished;
    if (finished || (job.exit && job.exit->generation >= launch.generation)) return job.exit;
    if (job.fence < launch.generation) return std::nullopt;
    return JobExit{launch.generation, {JobEnd::How::failed, 1, "fenced"}, {}, 0, 0};
  }

  // --- agents

  void start_agent(std::size_t i) {
    Node& node = nodes_[i];
    node.agent = std::make_unique<NodeJobs>(node_id(i), NodeJobs::Limits{});
    node.link.reset();
    node.sweeping.clear();
    for (Job& job : jobs_) {
      if (!job.launch || job.launch->home != node_id(i)) continue;
      if (job.forgotten >= job.launch->generation) continue;
      NodeJobs::Found found{*job.launch, job.master && job.master->named, job.workers,
                            exit_that_counts(*job.launch)};
      if (!found.master_lives && !found.exit) {
        job.exit = JobExit{job.launch->generation, {JobEnd::How::failed, 1, "died"}, {}, 0, 0};
        found.exit = job.exit;
      }
      node.agent->found(found);
      if (job.master) job.master->managed = false;
    }
  }

  void kill_agent(std::size_t i) {
    Node& node = nodes_[i];
    node.agent.reset();
    node.sweeping.clear();
    if (node.link) node.link->agent_open = false;
    for (Job& job : jobs_) {
      if (job.master && job.launch->home == node_id(i)) job.master->managed = false;
    }
  }

  void agent_turn(std::size_t i) {
    Node& node = nodes_[i];
    if (!node.agent) {
      if (!node.down && chance(0.2)) start_agent(i);
      return;
    }
    if (!node.link && engine_ != nullptr && chance(0.3)) {
      node.link = std::make_shared<Link>();
      links_.push_back({i, node.link});
      node.link->to_engine.push_back(AgentHello{node_id(i), "", {}, node.agent->statuses()});
      node.link->to_engine.push_back(AgentBeat{node.agent->trouble()});
    }
    if (node.link) {
      Link& link = *node.link;
      if (now_ < node.frozen_until) return;
      if (!link.to_agent.empty()) {
        if (chance(0.7)) {
          const ToAgent message = link.to_agent.front();
          link.to_agent.pop_front();
          node.agent->engine_said(now_, message);
        }
      } else if (!link.engine_open && chance(0.5)) {
        link.agent_open = false;
        node.link.reset();
        node.agent->engine_lost();
      }
      if (node.link && now_ >= node.beat) {
        node.beat = now_ + from_seconds(1);
        tell_engine(node, AgentBeat{node.agent->trouble()});
      }
    }
    for (auto at = node.sweeping.begin(); at != node.sweeping.end();) {
      if (!chance(0.3)) {
        ++at;
        continue;
      }
      const JobId id = *at;
      at = node.sweeping.erase(at);
      job_of(id).orphans.clear();
      if (job_of(id).master && job_of(id).master->named) kill_master(id);
      job_of(id).orphans.clear();
      node.agent->swept(id);
    }
    node.agent->pass(now_);
    agent_orders(i);
  }

  void tell_engine(Node& node, const FromAgent& message) {
    if (node.link && node.link->agent_open) node.link->to_engine.push_back(message);
  }

  void agent_orders(std::size_t i) {
    Node& node = nodes_[i];
    for (auto orders = node.agent->take_orders(); !orders.empty();
         orders = node.agent->take_orders()) {
      for (const NodeJobs::Order& order : orders) {
        std::visit([&](const auto& o) { obey(i, o); }, order);
      }
    }
  }

  void obey(std::size_t i, const NodeJobs::StartMaster& order) {
    const JobId id = order.launch.job;
    Job& job = job_of(id);
    if (const auto exit = exit_that_counts(order.launch)) {
      return nodes_[i].agent->master_gone(id, exit);
    }
    if (job.finished) fail("a finished job is started");
    if (nodes_[i].sick) {
      return nodes_[i].agent->could_not_start(id, {JobEnd::How::failed, 1, "sick", true, {}});
    }
    // One that comes too late finds the socket taken, or its start ended, and starts nothing.
    const bool late =
        job.master && !job.master->named &&
        (job.fence >= job.master->start || (job.exit && job.exit->generation >= job.master->start));
    if ((job.master && !late) || !job.orphans.empty()) fail("it still runs elsewhere");
    job.launch = order.launch;
    job.workers.clear();
    ++starts;
    Master master;
    master.start = master.obeyed = order.launch.generation;
    master.wanted = {order.launch.slots.begin(), order.launch.slots.end()};
    job.master = std::move(master);
    nodes_[i].agent->started(id);
  }
  void obey(std::size_t /*node*/, const NodeJobs::Connect& order) { wish_.insert(order.job); }
  void obey(std::size_t /*node*/, const NodeJobs::HangUp& order) { wish_.erase(order.job); }
  void obey(std::size_t /*node*/, const NodeJobs::SendToMaster& order) {
    if (job_of(order.job).master && job_of(order.job).master->managed) {
      master_hears(order.job, order.message);
    }
  }
  void obey(std::size_t /*node*/, const NodeJobs::KillMaster& order) { kill_master(order.job); }
  void obey(std::size_t i, const NodeJobs::Sweep& order) { nodes_[i].sweeping.insert(order.job); }
  void obey(std::size_t i, const NodeJobs::RecordExit& order) {
    job_of(order.job).exit = order.exit;
    nodes_[i].agent->recorded(order.job);
  }
  void obey(std::size_t /*node*/, const NodeJobs::RecordForgotten& order) {
    job_of(order.job).forgotten = order.start;
  }
  void obey(std::size_t i, const NodeJobs::TellEngine& order) {
    tell_engine(nodes_[i], order.message);
  }
  void obey(std::size_t i, const NodeJobs::Probe& /*order*/) {
    nodes_[i].agent->probed(now_, nodes_[i].sick ? "sick" : "");
  }

  void connect_masters(JobId id) {
    Job& job = job_of(id);
    if (!job.master || !job.master->named || job.master->managed || !wish_.contains(id)) return;
    Node& node = nodes_[job.launch->home.index()];
    if (!node.agent || node.agent->launch_of(id) == nullptr || !chance(0.4)) return;
    job.master->managed = true;
    node.agent->connected(now_, id);
    report(id);
    agent_orders(job.launch->home.index());
  }

  // --- the engine

  void new_engine() {
    Cluster cluster = cluster_of(fmt::format("{}x{}", kNodes, kGpus));
    for (std::size_t i = 0; i < kNodes; ++i) cluster.set_state(node_id(i), nodes_[i].state);
    engine_ = std::make_unique<EngineTable>(cluster, from_seconds(5), now_);
    for (std::size_t i = 0; i < kJobs; ++i) {
      const Job& job = jobs_[i];
      if (job.on_gpus) engine_->know({job_id(i), job.home, *job.last, job.held});
    }
    // The daemon has stored the operator's words and says them again.
    for (std::size_t i = 0; i < kNodes; ++i) {
      nodes_[i].down ? engine_->mark_down(node_id(i)) : engine_->mark_up(node_id(i));
    }
    engine_orders();
  }

  void crash_engine() {
    ++crashes;
    engine_.reset();
    engine_sweeps_.clear();
    for (auto& [node, link] : links_) link->engine_open = false;
    links_.clear();
  }

  void engine_turn() {
    if (!engine_) {
      if (chance(0.05)) new_engine();
      return;
    }
    for (std::size_t k = 0; k < links_.size(); ++k) {
      auto [i, link] = links_[k];
      if (now_ < nodes_[i].frozen_until || !link->engine_open) continue;
      if (!link->to_engine.empty()) {
        if (!chance(0.7)) continue;
        const FromAgent message = link->to_engine.front();
        link->to_engine.pop_front();
        engine_hears(i, link, message);
      } else if (!link->agent_open && chance(0.5)) {
        link->engine_open = false;
        if (link->hello_said) engine_->lost(node_id(i));
      }
    }
    std::erase_if(links_, [](const auto& entry) { return !entry.second->engine_open; });
    for (auto at = engine_sweeps_.begin(); at != engine_sweeps_.end();) {
      if (!chance(0.3)) {
        ++at;
        continue;
      }
      const JobId id = *at;
      at = engine_sweeps_.erase(at);
      Job& job = job_of(id);
      if (job.master && job.master->named) kill_master(id);
      job.orphans.clear();
      const bool finished = job.exit && job.exit->end.how == JobEnd::How::finished;
      engine_->swept(id, finished ? std::optional(job.exit->end) : std::nullopt);
    }
    engine_->pass(now_);
    engine_orders();
    fold_facts();
  }

  void engine_hears(std::size_t i, const std::shared_ptr<Link>& link, const FromAgent& message) {
    if (const auto* hello = std::get_if<AgentHello>(&message)) {
      for (auto& [other, old] : links_) {
        if (other != i || old == link || !old->hello_said || !old->engine_open) continue;
        old->engine_open = false;
        engine_->lost(node_id(i));
      }
      link->hello_said = true;
      engine_->said_hello(now_, node_id(i), hello->jobs);
    } else if (const auto* status = std::get_if<JobStatus>(&message)) {
      engine_->heard(now_, node_id(i), *status);
    } else if (std::holds_alternative<AgentSettled>(message)) {
      engine_->settled(now_, node_id(i));
    } else {
      engine_->heard_beat(now_, node_id(i), std::get<AgentBeat>(message).trouble);
    }
    engine_orders();
  }

  void engine_orders() {
    for (const EngineTable::Order& order : engine_->take_orders()) {
      std::visit([&](const auto& o) { obey(o); }, order);
    }
  }
  void send(NodeId node, const ToAgent& message) {
    for (auto& [i, link] : links_) {
      if (node_id(i) == node && link->engine_open && link->hello_said) {
        link->to_agent.push_back(message);
      }
    }
  }
  void obey(const EngineTable::Launch& order) {
    JobLaunch launch;
    launch.job = order.job;
    launch.home = order.node;
    launch.generation = order.generation;
    launch.slots = slots_of(order.gpus);
    send(order.node, LaunchJob{launch});
  }
  void obey(const EngineTable::Tell& order) { send(order.node, order.message); }
  void obey(const EngineTable::Sweep& order) {
    job_of(order.job).fence = order.generation;
    engine_sweeps_.insert(order.job);
  }
  void obey(const EngineTable::Disconnect& order) {
    for (auto& [i, link] : links_) {
      if (node_id(i) == order.node && link->hello_said) link->engine_open = false;
    }
  }

  // --- the scheduler

  Generation next_generation(std::size_t i) const { return jobs_[i].generation.next(); }

  // Stored, then told: the daemon may die in between.
  void issue(const Command& command) {
    const JobId id = std::visit([](const auto& c) { return c.job; }, command);
    Job& job = job_of(id);
    job.generation = std::visit([](const auto& c) { return c.generation; }, command);
    job.last = command;
    job.waits = true;
    job.letting_go = std::holds_alternative<Stop>(command);
    if (const auto* start = std::get_if<Start>(&command)) {
      job.home = start->gpus.slices().front().node;
      job.on_gpus = true;
      job.held = start->gpus;
    } else if (const auto* resize = std::get_if<Resize>(&command)) {
      job.letting_go = !minus(job.held, resize->gpus).empty();
      job.held.add(minus(resize->gpus, job.held));
    }
    if (!quiet_ && chance(0.02)) return crash_engine();
    if (engine_) {
      engine_->told(command);
      engine_orders();
    }
  }

  void fold_facts() {
    for (const Event& fact : engine_->take_facts()) {
      if (!quiet_ && chance(0.005)) return crash_engine();  // before it is stored
      std::visit([&](const auto& f) { fold(f); }, fact);
    }
  }
  template <class Other>
  void fold(const Other& /*fact*/) {
    fail("an engine does not say this");
  }
  void fold(const NodeChanged& fact) { nodes_[fact.node.index()].state = fact.state; }
  void fold(const Running& fact) {
    Job& job = job_of(fact.job);
    if (fact.generation != job.generation) return;
    if (!job.on_gpus) fail("it runs without GPUs");
    if (job.letting_go) fail("it runs before it has let go");
    job.waits = false;
  }
  void fold(const Released& fact) {
    Job& job = job_of(fact.job);
    if (fact.generation != job.generation) return;
    if (fact.stopped) return idle(job);
    if (!minus(fact.gpus, job.held).empty()) fail("it lets go what it does not have");
    job.held.remove(fact.gpus);
    const auto* resize = std::get_if<Resize>(&*job.last);
    job.letting_go = resize != nullptr && !minus(job.held, resize->gpus).empty();
  }
  void fold(const Failed& fact) {
    if (fact.generation != job_of(fact.job).generation) return;
    ++failures;
    sick_starts += fact.why == "sick" ? 1 : 0;
    if (fact.why == "sick" && !fact.infrastructure) fail("it is blamed for a sick node");
    idle(job_of(fact.job));
  }
  void fold(const Finished& fact) {
    Job& job = job_of(fact.job);
    if (!job.finished) fail("it has not finished");
    if (job.known_finished) return;
    idle(job);
    job.known_finished = true;
    if (engine_) engine_->forget(fact.job);
  }
  static void idle(Job& job) {
    job.held = Allocation();
    job.on_gpus = job.waits = job.letting_go = false;
  }

  Allocation free_gpus() {
    Allocation free;
    for (std::size_t i = 0; i < kNodes; ++i) {
      if (nodes_[i].state == NodeState::up) free.add({node_id(i), (1U << kGpus) - 1});
    }
    for (const Job& job : jobs_) free.remove(common(free, job.held));
    return free;
  }
  Allocation some_of(const Allocation& gpus, double share) {
    Allocation some;
    for (const Slice& slice : gpus.slices()) {
      std::uint64_t mask = 0;
      for (unsigned bit = 0; bit < kGpus; ++bit) {
        if ((slice.mask >> bit & 1U) != 0 && chance(share)) mask |= std::uint64_t{1} << bit;
      }
      if (mask != 0) some.add({slice.node, mask});
    }
    return some;
  }

  void scheduler_turn() {
    if (quiet_ || !engine_ || !chance(0.2)) return;
    const std::size_t i = random_.below(kJobs);
    Job& job = jobs_[i];
    if (job.known_finished) return;
    if (!job.on_gpus) {
      const Allocation gpus = some_of(free_gpus(), 0.5);
      if (!gpus.empty()) issue(Start{job_id(i), next_generation(i), gpus});
    } else if (job.letting_go) {
      return;
    } else if (chance(0.2)) {
      issue(Stop{job_id(i), next_generation(i)});
    } else if (chance(0.5)) {
      const Allocation gpus = some_of(job.held, 0.6);
      if (!gpus.empty()) issue(Resize{job_id(i), next_generation(i), gpus});
    } else {
      Allocation gpus = job.held;
      gpus.add(some_of(free_gpus(), 0.4));
      issue(Resize{job_id(i), next_generation(i), gpus});
    }
  }

  // --- chance

  void mark_up(std::size_t i) {
    nodes_[i].down = false;
    if (engine_) engine_->mark_up(node_id(i));
  }

  void faults() {
    const std::size_t i = random_.below(kNodes);
    Node& node = nodes_[i];
    if (chance(0.004)) kill_agent(i);
    if (chance(0.004)) node.frozen_until = now_ + from_seconds(random_.uniform(0, 12));
    if (node.link && chance(0.004)) {  // a cut: what was under way is lost
      node.link->to_agent.clear();
      node.link->to_engine.clear();
      node.link->engine_open = node.link->agent_open = false;
      if (engine_ && node.link->hello_said) engine_->lost(node_id(i));
      std::erase_if(links_, [](const auto& entry) { return !entry.second->engine_open; });
      node.link.reset();
      if (node.agent) node.agent->engine_lost();
    }
    if (chance(0.003)) kill_master(job_id(random_.below(kJobs)));
    if (chance(node.sick ? 0.02 : 0.004)) node.sick = !node.sick;
    if (engine_ && chance(0.002)) crash_engine();
    if (!engine_) return;
    if (!node.down && chance(0.001)) {
      ++downs;
      node.down = true;
      kill_agent(i);
      engine_->mark_down(node_id(i));
      engine_orders();
    } else if (node.down && chance(0.02)) {
      mark_up(i);
    }
  }

  void step() {
    now_ += from_seconds(0.05);
    for (std::size_t i = 0; i < kJobs; ++i) {
      toil(job_id(i));
      connect_masters(job_id(i));
    }
    for (std::size_t i = 0; i < kNodes; ++i) agent_turn(i);
    engine_turn();
    scheduler_turn();
    check();
  }

  Random random_;
  Time now_ = kStart;
  std::vector<Node> nodes_;
  std::vector<Job> jobs_;
  std::unique_ptr<EngineTable> engine_;
  std::vector<std::pair<std::size_t, std::shared_ptr<Link>>> links_;  // that the engine has
  std::set<JobId> engine_sweeps_, wish_;
  bool quiet_ = false;
};

int number_from(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  const auto number = text == nullptr ? std::nullopt : parse_integer(text);
  return number ? static_cast<int>(*number) : otherwise;
}

TEST(LiveWorld, NothingIsGrantedTwiceAndEveryCommandIsAnswered) {
  const int only = number_from("RUBATO_SEED", -1);
  const int seeds = number_from("RUBATO_SEEDS", 300);
  int starts = 0, finishes = 0, crashes = 0, downs = 0, failures = 0, sick_starts = 0;
  for (int seed = only < 0 ? 0 : only; seed < (only < 0 ? seeds : only + 1); ++seed) {
    World world(static_cast<std::uint64_t>(seed));
    try {
      world.run(2000);
      world.come_to_rest();
    } catch (const std::runtime_error& error) {
      FAIL() << "seed " << seed << ": " << error.what();
    }
    starts += world.starts;
    finishes += world.finishes;
    crashes += world.crashes;
    downs += world.downs;
    failures += world.failures;
    sick_starts += world.sick_starts;
  }
  if (only >= 0) return;
  // It has been through what it is there for.
  EXPECT_GT(starts, seeds * 5);
  EXPECT_GT(finishes, seeds);
  EXPECT_GT(crashes, seeds);
  EXPECT_GT(failures, seeds);
  EXPECT_GT(downs, seeds / 2);
  EXPECT_GT(sick_starts, seeds / 2);
}

}  // namespace
}  // namespace rubato::engine

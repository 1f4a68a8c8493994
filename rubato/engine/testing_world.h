// One deterministic cluster for fault tests, without clock, socket or process. The decisions are
// made by the real code: an EngineTable, and a NodeJobs for each node. The rest is a toy:
//
//   TestWorld    the nodes: agents that carry out what their NodeJobs order, toy masters, the files
//                of jobs, the connections. It outlives the daemon. It reports at once
//                (`violations`) if two jobs use the same GPU (a guest and its host may), if a job
//                runs twice at a time, or if a finished job is started again.
//   TestEngine   the daemon's end: a LiveEngine around an EngineTable. It dies with the daemon.
//
// A connection is a stream, as in the real cluster. Its messages may be late, but they arrive in
// order. A lost message takes the connection and everything under way with it; each end notices
// that later. The messages promise more than a stream needs: statuses are complete and commands
// carry generations. So statuses may overtake each other, and a status, place or stop may arrive a
// second time, after newer ones. A silent node hears nothing and is not heard; its jobs continue.
//
// Time passes in advance(). Whatever happens has its moment, so one seed is one life.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/engine/engine_table.h"
#include "rubato/engine/live_engine.h"
#include "rubato/engine/testing_master.h"
#include "rubato/node/node_jobs.h"
#include "rubato/node/recorded_end.h"

namespace rubato::engine {

struct WireFaults {
  double drop = 0;      // the part of the messages that get lost, each with its connection
  double twice = 0;     // that arrive again, perhaps after newer ones
  double overtake = 0;  // of the statuses that overtake the one before
  Duration latest{};    // a message takes up to so long
};

class TestEngine;

class TestWorld {
 public:
  TestWorld(Cluster cluster, std::uint64_t seed)
      : cluster_(std::move(cluster)), random_(seed), nodes_(cluster_.nodes().size()) {}

  // The clock of the machines; without it a master does not say when it ended.
  std::function<WallTime(Time)> wall;
  Pace pace;
  WireFaults faults;
  std::set<NodeId> sick;  // no master can be started there, and no end can be written
  std::vector<std::string> violations;

  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] Time clock() const { return clock_; }
  // Everything that happens up to now.
  void advance(Time now) {
    for (Time at = next(); at <= now; at = next()) {
      clock_ = std::max(clock_, at);
      happen();
    }
    clock_ = std::max(clock_, now);
  }

  // How a job really is. What was said of it first counts.
  void set_truth(JobId id, ToyJob truth) {
    Job& job = jobs_[id];
    if (!std::exchange(job.known, true)) job.truth = std::move(truth);
  }
  [[nodiscard]] Work done(JobId id) const {
    const Job* job = find(id);
    return job == nullptr ? 0 : job->truth.done;
  }
  [[nodiscard]] int finishes(JobId id) const {
    const Job* job = find(id);
    return job == nullptr ? 0 : job->finishes;
  }
  [[nodiscard]] bool finished(JobId id) const { return finishes(id) > 0; }
  // The GPUs on which there are processes of each job that has any.
  [[nodiscard]] std::map<JobId, Allocation> processes() const {
    std::map<JobId, Allocation> all;
    for (const auto& [id, job] : jobs_) {
      Allocation gpus = used_by(job);
      if (!gpus.empty()) all.emplace(id, std::move(gpus));
    }
    return all;
  }
  // The jobs that have a master.
  [[nodiscard]] const std::set<JobId>& masters() const { return masters_; }
  int starts = 0;

  // --- faults ---

  void kill_agent(NodeId node) {
    Node& here = at(node);
    if (!here.agent) return;
    here.agent.reset();
    here.wanted.clear();
    ++here.life;
    if (here.wire) close_agent_end(here);
    for (const JobId id : masters_) {
      Job& job = jobs_.at(id);
      if (job.launch->home == node) job.managed = false;
    }
  }
  // Its workers live on until they are swept.
  void kill_master(JobId id) {
    Job& job = jobs_[id];
    if (!job.master && !job.coming) return;
    if (job.master) job.orphans.add(job.master->in_use());
    end_process(id, job);
  }
  // Everything on the node dies, and every run that has a worker there fails.
  void break_node(NodeId node) {
    broken_.insert(node);
    kill_agent(node);
    for (auto& [id, job] : jobs_) {
      if (job.launch && job.launch->home == node) kill_master(id);
      if (const std::uint64_t mask = job.orphans.mask_on(node)) job.orphans.remove({node, mask});
      if (job.master) settle_master(id, job);
    }
  }
  void mend_node(NodeId node) { broken_.erase(node); }
  // Nothing comes through to its agent or from it. Everything on it goes on.
  void silence(NodeId node) { silent_.insert(node); }
  void end_silence(NodeId node) {
    if (silent_.erase(node) == 0) return;
    for (const auto& wire : wires_) {
      if (wire->node == node) pump_later(wire, clock_);
    }
  }
  // The connection of its agent breaks.
  void cut(NodeId node) {
    if (at(node).wire) cut(at(node).wire);
  }
  // The agent loses its connection to a master that lives.
  void cut_master(JobId id) {
    Job& job = jobs_[id];
    if (!std::exchange(job.managed, false)) return;
    Node& home = at(job.launch->home);
    home.agent->disconnected(id);
    carry_out_orders(job.launch->home);
    connect(id);
  }

 private:
  friend class TestEngine;

  // One connection of an agent to an engine. No message: the other end is closed.
  struct Wire {
    template <class Message>
    struct Sent {
      Time at;
      std::optional<Message> message;
    };
    NodeId node;
    std::deque<Sent<FromAgent>> up;
    std::deque<Sent<ToAgent>> down;
    bool agent_end = true, engine_end = true;  // open
    bool broken = false;
    bool greeted = false;  // the engine has read the Hello
  };
  struct Job {
    ToyJob truth;
    bool known = false;
    int finishes = 0;
    // in the job's directory
    std::optional<JobLaunch> launch;
    std::optional<JobExit> exit;
    Generation forgotten, fence;
    // processes
    std::uint64_t process = 0;        // names the newest master
    bool coming = false;              // it is started, but has not looked at the files yet
    std::optional<ToyMaster> master;  // from then on
    bool managed = false;             // its agent is connected
    Allocation orphans;               // workers of a dead master
  };
  struct Node {
    std::unique_ptr<NodeJobs> agent;
    std::uint64_t life = 0;  // names the agent
    bool coming = false;     // an agent is being started
    std::set<JobId> wanted;  // the agent connects to the masters of these jobs
    std::shared_ptr<Wire> wire;
    bool carrying_out = false;
  };

  [[nodiscard]] Node& at(NodeId node) { return nodes_[node.index()]; }
  [[nodiscard]] static NodeId id_of(std::size_t i) { return NodeId(static_cast<NodeId::rep>(i)); }
  [[nodiscard]] const Job* find(JobId id) const {
    const auto found = jobs_.find(id);
    return found == jobs_.end() ? nullptr : &found->second;
  }
  [[nodiscard]] static Allocation used_by(const Job& job) {
    Allocation gpus = job.orphans;
    if (job.master) gpus.add(minus(job.master->in_use(), gpus));
    return gpus;
  }
  void violate(JobId id, std::string_view what) {
    violations.push_back(fmt::format("{:.3f} s: job {} {}", seconds(clock_), id.value(), what));
  }
  bool chance(double part) { return part > 0 && random_.uniform() < part; }

  // --- time ---

  static constexpr Duration kTick = std::chrono::milliseconds(500);
  static constexpr int kTicksOfBeat = 2;

  void happens_at(Time at, std::function<void()> what) {
    events_.emplace(std::pair(std::max(at, clock_), ++numbered_), std::move(what));
  }
  // Some time after now, as long as a step of a process takes.
  void happens_soon(std::function<void()> what) {
    happens_at(clock_ + up_to(random_, pace.step), std::move(what));
  }
  [[nodiscard]] Time next() const {
    Time next = tick_;
    if (!events_.empty()) next = std::min(next, events_.begin()->first.first);
    for (const JobId id : masters_) {
      const Job& job = jobs_.at(id);
      if (job.master) next = std::min(next, job.master->next());
    }
    return next;
  }
  // One thing that is due.
  void happen() {
    if (!events_.empty() && events_.begin()->first.first <= clock_) {
      const auto event = events_.extract(events_.begin());
      return event.mapped()();
    }
    for (const JobId id : masters_) {
      Job& job = jobs_.at(id);
      if (job.master && job.master->next() <= clock_) return settle_master(id, job);
    }
    tick();
  }
  void tick() {
    tick_ += kTick;
    ++ticks_;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      Node& node = nodes_[i];
      if (!node.agent) continue;
      if (!node.wire) connect_to_engine(id_of(i));
      if (ticks_ % kTicksOfBeat == 0) tell_engine(node, AgentBeat{node.agent->trouble()});
      node.agent->pass(clock_);
      carry_out_orders(id_of(i));
    }
    for (const JobId id : std::vector(masters_.begin(), masters_.end())) {
      Job& job = jobs_.at(id);
      if (!job.master || !job.master->trains(clock_)) continue;
      job.master->pass(clock_);
      report(id, job);
    }
  }

  // --- masters ---

  // After anything that has happened to it.
  void settle_master(JobId id, Job& job) {
    job.master->pass(clock_);
    const Allocation& gpus = job.master->in_use();
    for (const NodeId node : broken_) {
      if (gpus.mask_on(node) != 0) job.master->fail(clock_, "its node died", true);
    }
    if (!job.master->take_changed()) return;
    if (!job.master->in_use().empty()) check_use(id, job);
    if (job.master->ended()) leave(id, job);
    report(id, job);
  }
  void check_use(JobId id, const Job& job) {
    for (const auto& [other_id, other] : jobs_) {
      if (other_id == id || common(used_by(other), job.master->in_use()).empty()) continue;
      const auto yields = [](const Job& one) { return one.launch && one.launch->opportunistic; };
      if (yields(job) != yields(other)) continue;
      violate(id, fmt::format("is given GPUs that job {} uses", other_id.value()));
    }
  }
  // It writes how it ended; the process ends a little later.
  void leave(JobId id, Job& job) {
    JobStatus status = job.master->status(clock_, id);
    if (wall) status.ended->at = wall(clock_);
    if (status.ended->how == JobEnd::How::finished) ++job.finishes;
    job.exit = JobExit{status.generation, *status.ended, status.progress, 0, 0};
    happens_soon([this, id, process = job.process] {
      Job& same = jobs_.at(id);
      if (same.process == process && same.master) end_process(id, same);
    });
  }
  void report(JobId id, Job& job) {
    if (!job.master || !job.managed) return;
    JobStatus status = job.master->status(clock_, id);
    if (status.ended && job.exit) status.ended = job.exit->end;
    at(job.launch->home).agent->master_said(clock_, id, status);
    carry_out_orders(job.launch->home);
  }
  // The agent of its home sees that the process has ended.
  void end_process(JobId id, Job& job) {
    const bool came_up = job.master.has_value();
    job.coming = job.managed = false;
    job.master.reset();
    masters_.erase(id);
    Node& home = at(job.launch->home);
    const JobLaunch* launch = home.agent ? home.agent->launch_of(id) : nullptr;
    if (launch == nullptr) return;
    const auto exit = exit_that_counts(recorded_end(job), *launch);
    if (came_up || exit) {
      home.agent->master_gone(id, exit);
    } else {
      home.agent->could_not_start(id, not_its_fault("its launcher ended before it could begin"));
    }
    carry_out_orders(job.launch->home);
  }
  // It looks at the files of its job before it starts anything.
  void come_up(JobId id, Job& job) {
    const Generation start = job.launch->generation;
    const NodeId home = job.launch->home;
    if (must_not_begin(recorded_end(job), start) || sick.contains(home))
      return end_process(id, job);
    job.coming = false;
    job.master.emplace(clock_, start, allocation_of(job.launch->slots, cluster_).value(), job.truth,
                       pace, Random(random_.next()));
    settle_master(id, job);
    connect(id);
  }
  static JobEnd not_its_fault(std::string why) {
    return {JobEnd::How::failed, 1, std::move(why), true, std::nullopt};
  }
  [[nodiscard]] static RecordedEnd recorded_end(const Job& job) {
    RecordedEnd recorded{Generation(0), "", job.exit, job.fence};
    if (job.launch) {
      recorded.start = job.launch->generation;
      recorded.token = job.launch->token;
    }
    return recorded;
  }
  void hear(JobId id, Job& job, const ToMaster& message) {
    ToyMaster& master = *job.master;
    if (const auto* place = std::get_if<Place>(&message)) {
      master.place(clock_, place->generation, allocation_of(place->slots, cluster_).value());
    } else if (const auto* stop = std::get_if<StopJob>(&message)) {
      master.stop(clock_, stop->generation);
    } else if (std::holds_alternative<KillJob>(message)) {
      master.fail(clock_, "killed", false);
    }
    settle_master(id, job);
  }
  // Everything that can be found of the job is killed. A master that has not looked at the files
  // yet finds that it is too late.
  void sweep(JobId id) {
    Job& job = jobs_[id];
    if (job.master) kill_master(id);
    job.orphans = Allocation();
  }

  // --- agents ---

  void start_agent(NodeId node) {
    Node& here = at(node);
    here.coming = false;
    if (broken_.contains(node)) return;
    here.agent = std::make_unique<NodeJobs>(node, NodeJobs::Limits{});
    ++here.life;
    for (auto& [id, job] : jobs_) {
      if (job.launch && job.launch->home == node && job.forgotten < job.launch->generation) {
        adopt(*here.agent, job);
      }
    }
    connect_to_engine(node);
    carry_out_orders(node);
  }
  void adopt(NodeJobs& agent, Job& job) const {
    NodeJobs::Found found{*job.launch, job.master.has_value(), slots_of(used_by(job)),
                          exit_that_counts(recorded_end(job), *job.launch)};
    if (!found.master_lives && !found.exit) {
      job.exit =
          JobExit{job.launch->generation, {JobEnd::How::failed, 1, "its launcher died"}, {}, 0, 0};
      found.exit = job.exit;
    }
    agent.found(found);
  }
  // If its master is there and its agent wants to.
  void connect(JobId id) {
    happens_soon([this, id] {
      Job& job = jobs_.at(id);
      if (!job.master || job.managed) return;
      Node& home = at(job.launch->home);
      if (!home.agent || !home.wanted.contains(id) || home.agent->launch_of(id) == nullptr) return;
      job.managed = true;
      home.agent->connected(clock_, id);
      report(id, job);
      carry_out_orders(job.launch->home);
    });
  }

  void carry_out_orders(NodeId node) {
    Node& here = at(node);
    if (std::exchange(here.carrying_out, true)) return;
    for (auto orders = here.agent->take_orders(); !orders.empty();
         orders = here.agent->take_orders()) {
      for (const NodeJobs::Order& order : orders) {
        std::visit([&](const auto& o) { carry_out(node, o); }, order);
      }
    }
    here.carrying_out = false;
  }
  void carry_out(NodeId node, const NodeJobs::StartMaster& order) {
    const JobId id = order.launch.job;
    Job& job = jobs_[id];
    NodeJobs& agent = *at(node).agent;
    const RecordedEnd recorded = recorded_end(job);
    if (const auto exit = exit_that_counts(recorded, order.launch)) {
      return agent.master_gone(id, exit);
    }
    if (job.finishes > 0) violate(id, "is started although it has finished");
    if (sick.contains(node)) return agent.could_not_start(id, not_its_fault("its disk is full"));
    // A master that comes too late starts nothing, so it is not in the way. It exits, and the agent
    // that has started it sees that.
    const bool there = job.master || (job.coming && !must_not_begin(recorded, recorded.start));
    if (there || !job.orphans.empty()) violate(id, "is started twice at a time");
    if (job.coming && job.launch->home != node) end_process(id, job);
    ++starts;
    job.launch = order.launch;
    job.coming = true;
    job.process = ++numbered_;
    masters_.insert(id);
    agent.started(id);
    happens_soon([this, id, process = job.process] {
      Job& same = jobs_.at(id);
      if (same.process == process && same.coming) come_up(id, same);
    });
  }
  void carry_out(NodeId node, const NodeJobs::Connect& order) {
    at(node).wanted.insert(order.job);
    connect(order.job);
  }
  void carry_out(NodeId node, const NodeJobs::HangUp& order) {
    at(node).wanted.erase(order.job);
    jobs_.at(order.job).managed = false;
  }
  void carry_out(NodeId /*node*/, const NodeJobs::SendToMaster& order) {
    Job& job = jobs_.at(order.job);
    if (job.master && job.managed) hear(order.job, job, order.message);
  }
  void carry_out(NodeId /*node*/, const NodeJobs::KillMaster& order) { kill_master(order.job); }
  void carry_out(NodeId node, const NodeJobs::Sweep& order) {
    happens_soon([this, node, id = order.job, life = at(node).life] {
      if (!at(node).agent || at(node).life != life) return;
      sweep(id);
      at(node).agent->swept(id);
      carry_out_orders(node);
    });
  }
  void carry_out(NodeId node, const NodeJobs::RecordExit& order) {
    if (sick.contains(node)) return;
    Job& job = jobs_[order.job];
    if (may_record(recorded_end(job), order.exit)) job.exit = order.exit;
    at(node).agent->recorded(order.job);
  }
  void carry_out(NodeId /*node*/, const NodeJobs::RecordForgotten& order) {
    jobs_[order.job].forgotten = order.start;
  }
  void carry_out(NodeId node, const NodeJobs::TellEngine& order) {
    tell_engine(at(node), order.message);
  }
  void carry_out(NodeId node, const NodeJobs::Probe& /*order*/) {
    at(node).agent->probed(clock_, sick.contains(node) ? "its disk is full" : "");
  }

  // --- connections ---

  void connect_to_engine(NodeId node) {
    if (engine_ == nullptr || silent_.contains(node)) return;
    Node& here = at(node);
    here.wire = std::make_shared<Wire>();
    here.wire->node = node;
    wires_.push_back(here.wire);
    tell_engine(here, AgentHello{node, "", {}, here.agent->statuses()});
    tell_engine(here, AgentBeat{here.agent->trouble()});
  }
  void tell_engine(Node& node, const FromAgent& message) {
    if (node.wire) send(node.wire, node.wire->up, message);
  }
  template <class Message>
  void send(const std::shared_ptr<Wire>& wire, std::deque<Wire::Sent<Message>>& way,
            const Message& message) {
    if (wire->broken) return;
    if (chance(faults.drop)) return cut(wire);
    const Time last = way.empty() ? clock_ : way.back().at;
    const Time at = std::max(last, clock_ + up_to(random_, faults.latest));
    const bool overtakes = chance(faults.overtake) && may_overtake(way, message);
    way.insert(overtakes ? std::prev(way.end()) : way.end(), {at, message});
    if (overtakes) std::swap(way.back().at, std::prev(way.end(), 2)->at);
    pump_later(wire, at);
    if (!ages_well(message) || !chance(faults.twice)) return;
    happens_at(at + up_to(random_, 2 * faults.latest), [this, wire, &way, message] {
      if (wire->broken || (!way.empty() && !way.back().message)) return;
      way.push_back({way.empty() ? clock_ : way.back().at, message});
      pump_later(wire, way.back().at);
    });
  }
  // Whether the message is recognised as old if newer ones have come before it. A launch is not:
  // the job may have moved to another node since, and only the order of the stream rules that out.
  static bool ages_well(const ToAgent& message) {
    return std::holds_alternative<PlaceJob>(message) || std::holds_alternative<HaltJob>(message);
  }
  static bool ages_well(const FromAgent& message) {
    return std::holds_alternative<JobStatus>(message);
  }
  static bool may_overtake(const std::deque<Wire::Sent<ToAgent>>& /*way*/, const ToAgent&) {
    return false;
  }
  static bool may_overtake(const std::deque<Wire::Sent<FromAgent>>& way, const FromAgent& message) {
    return !way.empty() && way.back().message && std::holds_alternative<JobStatus>(message) &&
           std::holds_alternative<JobStatus>(*way.back().message);
  }
  // The end of a stream comes after everything that was sent before.
  template <class Message>
  void send_end(const std::shared_ptr<Wire>& wire, std::deque<Wire::Sent<Message>>& way) {
    const Time last = way.empty() ? clock_ : way.back().at;
    const Time at = std::max(last, clock_ + up_to(random_, faults.latest));
    way.push_back({at, std::nullopt});
    pump_later(wire, at);
  }
  void cut(const std::shared_ptr<Wire>& wire) {
    if (std::exchange(wire->broken, true)) return;
    wire->up.clear();
    wire->down.clear();
    send_end(wire, wire->up);
    send_end(wire, wire->down);
  }
  void close_agent_end(Node& node) {
    node.wire->agent_end = false;
    if (!node.wire->broken) send_end(node.wire, node.wire->up);
    node.wire.reset();
  }
  void close_engine_end(const std::shared_ptr<Wire>& wire) {
    wire->engine_end = false;
    if (!wire->broken) send_end(wire, wire->down);
  }
  void pump_later(const std::shared_ptr<Wire>& wire, Time at) {
    happens_at(at, [this, wire] { pump(wire); });
  }
  // Messages that have arrived are read.
  void pump(const std::shared_ptr<Wire>& wire) {
    if (silent_.contains(wire->node)) return;
    while (!wire->down.empty() && wire->down.front().at <= clock_) {
      const auto message = std::move(wire->down.front().message);
      wire->down.pop_front();
      if (wire->agent_end) agent_reads(wire, message);
    }
    while (!wire->up.empty() && wire->up.front().at <= clock_) {
      const auto message = std::move(wire->up.front().message);
      wire->up.pop_front();
      if (wire->engine_end) engine_reads(wire, message);
    }
    if (!wire->agent_end && !wire->engine_end) std::erase(wires_, wire);
  }
  void agent_reads(const std::shared_ptr<Wire>& wire, const std::optional<ToAgent>& message) {
    Node& node = at(wire->node);
    if (message) {
      node.agent->engine_said(clock_, *message);
    } else {
      wire->agent_end = false;
      node.wire.reset();
      node.agent->engine_lost();
    }
    carry_out_orders(wire->node);
  }
  inline void engine_reads(const std::shared_ptr<Wire>& wire,
                           const std::optional<FromAgent>& message);

  Cluster cluster_;
  Random random_;
  Time clock_ = kStart;
  Time tick_ = kStart;
  int ticks_ = 0;
  std::map<std::pair<Time, std::uint64_t>, std::function<void()>> events_;
  std::uint64_t numbered_ = 0;
  std::vector<Node> nodes_;
  std::set<NodeId> broken_, silent_;
  std::map<JobId, Job> jobs_;
  std::set<JobId> masters_;  // jobs with a master
  std::vector<std::shared_ptr<Wire>> wires_;
  TestEngine* engine_ = nullptr;
};

class TestEngine final : public LiveEngine {
 public:
  // `cluster` has the states that the nodes are believed to be in.
  TestEngine(TestWorld& world, const Cluster& cluster, std::function<JobLaunch(JobId)> launch_of)
      : world_(world),
        table_(cluster, from_seconds(5), world.clock()),
        launch_of_(std::move(launch_of)) {}
  ~TestEngine() override {
    if (world_.engine_ != this) return;
    world_.engine_ = nullptr;
    for (const auto& wire : world_.wires_) {
      if (wire->engine_end) world_.close_engine_end(wire);
    }
  }
  TestEngine(const TestEngine&) = delete;
  TestEngine& operator=(const TestEngine&) = delete;

  [[nodiscard]] Result<void> open(const std::vector<KnownJob>& jobs) override {
    for (const KnownJob& job : jobs) table_.know(job);
    world_.engine_ = this;
    life_ = ++world_.numbered_;
    see_to_agents();
    carry_out_orders();
    return {};
  }
  void carry_out(Time /*now*/, std::span<const Command> commands) override {
    for (const Command& command : commands) table_.told(command);
    carry_out_orders();
  }
  void collect(Time /*now*/, std::vector<Fact>& facts) override {
    see_to_agents();
    if (world_.clock() >= beat_due_) beat();
    table_.pass(world_.clock());
    carry_out_orders();
    for (Fact& fact : table_.take_facts()) facts.push_back(std::move(fact));
  }
  [[nodiscard]] std::vector<JobStatus> take_reports() override { return table_.take_reports(); }
  void forget(JobId job) override {
    table_.forget(job);
    carry_out_orders();
  }
  void mark_down(NodeId node) override {
    table_.mark_down(node);
    carry_out_orders();
  }
  void mark_up(NodeId node) override {
    table_.mark_up(node);
    carry_out_orders();
  }
  void keep_reachable() override {}
  void retire() override {}

 private:
  friend class TestWorld;
  using Wire = TestWorld::Wire;

  // Where a node has no agent, one is started.
  void see_to_agents() {
    for (std::size_t i = 0; i < world_.nodes_.size(); ++i) {
      const NodeId node = TestWorld::id_of(i);
      TestWorld::Node& there = world_.at(node);
      if (there.agent || there.coming || table_.state_of(node) == NodeState::down) continue;
      there.coming = true;
      world_.happens_soon([&world = world_, node] { world.start_agent(node); });
    }
  }
  void beat() {
    beat_due_ = world_.clock() + from_seconds(1);
    for (std::size_t i = 0; i < world_.nodes_.size(); ++i) tell(TestWorld::id_of(i), EngineBeat{});
  }

  // --- agents ---

  [[nodiscard]] std::shared_ptr<Wire> wire_of(NodeId node) const {
    for (const auto& wire : world_.wires_) {
      if (wire->node == node && wire->engine_end && wire->greeted) return wire;
    }
    return nullptr;
  }
  void tell(NodeId node, const ToAgent& message) {
    if (const auto wire = wire_of(node)) world_.send(wire, wire->down, message);
  }
  void hear(const std::shared_ptr<Wire>& wire, const std::optional<FromAgent>& message) {
    const NodeId node = wire->node;
    const Time now = world_.clock();
    if (!message) {
      wire->engine_end = false;
      if (wire->greeted) table_.lost(node);
    } else if (const auto* hello = std::get_if<AgentHello>(&*message)) {
      if (const auto older = wire_of(node)) hang_up(older);
      wire->greeted = true;
      table_.said_hello(now, node, hello->jobs);
    } else if (const auto* status = std::get_if<JobStatus>(&*message)) {
      table_.heard(now, node, *status);
    } else if (std::holds_alternative<AgentSettled>(*message)) {
      table_.settled(now, node);
    } else {
      table_.heard_beat(now, node, std::get<AgentBeat>(*message).trouble);
    }
    carry_out_orders();
  }
  void hang_up(const std::shared_ptr<Wire>& wire) {
    world_.close_engine_end(wire);
    table_.lost(wire->node);
  }

  // --- orders ---

  void carry_out_orders() {
    for (auto orders = table_.take_orders(); !orders.empty(); orders = table_.take_orders()) {
      for (const EngineTable::Order& order : orders) {
        std::visit(
            [this](const auto& o) {
              if constexpr (requires { this->carry_out(o); }) this->carry_out(o);
            },
            order);
      }
    }
  }
  void carry_out(const EngineTable::Launch& order) {
    JobLaunch launch = launch_of_(order.job);
    launch.job = order.job;
    launch.home = order.node;
    launch.generation = order.generation;
    launch.slots = slots_of(order.gpus);
    launch.batch = order.batch;
    tell(order.node, LaunchJob{std::move(launch)});
  }
  void carry_out(const EngineTable::Tell& order) { tell(order.node, order.message); }
  void carry_out(const EngineTable::Disconnect& order) {
    if (const auto wire = wire_of(order.node)) hang_up(wire);
  }
  // Whoever is about to start the job finds that it is too late.
  void carry_out(const EngineTable::Sweep& order) {
    TestWorld::Job& job = world_.jobs_[order.job];
    job.fence = order.generation;
    world_.happens_soon([&world = world_, life = life_, id = order.job] {
      if (world.engine_ == nullptr || world.engine_->life_ != life) return;
      world.sweep(id);
      world.engine_->swept(id);
    });
  }
  void swept(JobId id) {
    if (!table_.sweeping(id)) return;
    const TestWorld::Job& job = world_.jobs_.at(id);
    table_.swept(id, had_finished(TestWorld::recorded_end(job), launch_of_(id).token));
    carry_out_orders();
  }

  TestWorld& world_;
  EngineTable table_;
  std::function<JobLaunch(JobId)> launch_of_;
  std::uint64_t life_ = 0;
  Time beat_due_;
};

void TestWorld::engine_reads(const std::shared_ptr<Wire>& wire,
                             const std::optional<FromAgent>& message) {
  if (engine_ != nullptr) engine_->hear(wire, message);
}

}  // namespace rubato::engine

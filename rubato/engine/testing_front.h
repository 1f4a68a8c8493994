// The daemon's side of the fake cluster of testing_manager.h, without clock, socket or process: the
// real ManagedCluster, a front agent and toy masters, whose workers are in the shares that run.
//
// Masters outlive the engine. A step is a tenth of a second.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/engine/managed_cluster.h"
#include "rubato/engine/testing_manager.h"
#include "rubato/launch/slots.h"

namespace rubato::engine {

// The master of a job, beside the daemon: it has workers in those of its shares that run, and takes
// its time for everything.
class ToyShareMaster {
 public:
  ToyShareMaster(JobId job, Generation generation, std::vector<PlacedShare> shares)
      : job_(job), generation_(generation), shares_(std::move(shares)) {}

  void place(const Place& place) {
    if (std::pair(place.generation, place.revision) <= std::pair(generation_, revision_)) return;
    if (stops_) return;
    generation_ = place.generation;
    revision_ = place.revision;
    shares_ = place.shares;
    for (const ShareName& name : place.ended_shares) workers_.erase(name);
  }
  void stop(Generation generation) {
    if (generation <= generation_) return;
    generation_ = generation;
    stops_ = true;
    shares_.clear();
  }
  void finish() { finishes_ = true; }
  void fail() { ended_ = JobEnd{JobEnd::How::failed, 1, "its launcher died", true, std::nullopt}; }

  // One step of its life; true if its status is not what it said last.
  bool pass(FakeCluster& cluster, Random& random) {
    if (!ended_) live(cluster, random);
    const bool news = said_ != status();
    said_ = status();
    return news;
  }
  void live(FakeCluster& cluster, Random& random) {
    std::set<ShareName> wanted;
    for (const PlacedShare& share : shares_) {
      wanted.insert(share.name);
      known_.insert(share.name);
      if (!workers_.contains(share.name) && cluster.runs(share.name) && random.uniform() < 0.3)
        workers_[share.name] = share.slots;
    }
    if (finishes_) wanted.clear();
    std::erase_if(workers_, [&](const auto& worker) {
      return !cluster.runs(worker.first) ||
             (!wanted.contains(worker.first) && random.uniform() < 0.2);
    });
    for (auto at = known_.begin(); at != known_.end();) {
      const bool over = !wanted.contains(*at) && !workers_.contains(*at);
      if (over) cluster.leave(*at);
      at = over ? known_.erase(at) : std::next(at);
    }
    if ((stops_ || finishes_) && workers_.empty()) {
      ended_ = JobEnd{finishes_ ? JobEnd::How::finished : JobEnd::How::stopped, 0, "", false,
                      std::nullopt};
    }
  }
  [[nodiscard]] JobStatus status() const {
    JobStatus status;
    status.job = job_;
    status.generation = generation_;
    status.revision = revision_;
    for (const auto& [name, slots] : workers_)
      status.in_use.insert(status.in_use.end(), slots.begin(), slots.end());
    for (const ShareName& name : known_)
      status.shares.push_back({name, workers_.contains(name), ""});
    status.running = !stops_ && workers_.size() == shares_.size() &&
                     std::all_of(shares_.begin(), shares_.end(), [&](const PlacedShare& share) {
                       return workers_.contains(share.name);
                     });
    status.ended = ended_;
    if (ended_) status.in_use.clear();
    return status;
  }
  // Where it has workers that live.
  [[nodiscard]] const std::map<ShareName, std::vector<Slot>>& workers() const { return workers_; }

 private:
  JobId job_;
  Generation generation_;
  std::int64_t revision_ = 0;
  std::vector<PlacedShare> shares_;
  std::map<ShareName, std::vector<Slot>> workers_;
  std::set<ShareName> known_;
  bool stops_ = false, finishes_ = false;
  std::optional<JobEnd> ended_;
  std::optional<JobStatus> said_;
};

class FakeFront {
 public:
  static constexpr const char* kIdentity = "j1";

  FakeFront(FakeCluster& cluster, std::uint64_t seed) : cluster_(cluster), random_(seed) {}

  // The daemon starts, or starts again.
  void new_engine(Time now, const Cluster& known, const std::vector<KnownJob>& jobs,
                  const std::set<NodeId>& down = {}) {
    now_ = now;
    tables_.reset();
    manager_ = std::make_unique<FakeManager>(cluster_);
    tables_ = std::make_unique<ManagedCluster>(known, from_seconds(5), now_, kIdentity,
                                               fmt::format("x{}x", ++lives_),
                                               [](JobId job) { return job.value() % 3 == 2; });
    connected_ = false;
    for (const KnownJob& job : jobs) engine().know(job);
    for (const NodeId node : down) engine().mark_down(node);
    carry_out_orders();
  }
  [[nodiscard]] EngineTable& engine() { return tables_->engine(); }
  [[nodiscard]] const ShareTable& shares() const { return tables_->shares(); }
  [[nodiscard]] std::map<JobId, ToyShareMaster>& masters() { return masters_; }
  [[nodiscard]] const std::map<JobId, ToyShareMaster>& masters() const { return masters_; }

  std::vector<Fact> step(Time now) {
    now_ = now;
    cluster_.advance(now_);
    pass_masters();
    if (!connected_ && random_.uniform() < 0.5) connect();
    if (connected_) engine().heard_beat(now_, NodeId(0), "");
    for (const ManagerAnswer& answer : manager_->take_answers()) tables_->answered(now_, answer);
    tables_->pass(now_);
    carry_out_orders();
    return tables_->take_facts();
  }
  void told(const Command& command) {
    engine().told(command);
    carry_out_orders();
  }
  void mark(NodeId node, bool down) {
    down ? engine().mark_down(node) : engine().mark_up(node);
    carry_out_orders();
  }
  void disconnect() {
    if (!std::exchange(connected_, false)) return;
    engine().lost(NodeId(0));
    carry_out_orders();
  }

 private:
  [[noreturn]] static void fail(const std::string& why) { throw std::runtime_error(why); }

  // --- orders ---

  void carry_out_orders() {
    for (const ManagedCluster::Order& order : tables_->take_orders(now_))
      std::visit([&](const auto& o) { carry_out(o); }, order);
  }
  static void check_slots(const std::vector<PlacedShare>& shares, const std::vector<Slot>& slots) {
    std::set<Slot> named;
    std::size_t all = 0;
    for (const PlacedShare& share : shares) {
      named.insert(share.slots.begin(), share.slots.end());
      all += share.slots.size();
    }
    if (all != slots.size() || named != std::set<Slot>(slots.begin(), slots.end()))
      fail("a command names shares for other slots");
  }
  void carry_out(const ManagedCluster::Launch& launch) {
    if (!connected_) return;
    const EngineTable::Launch& order = launch.order;
    const std::vector<Slot> slots = slots_of(order.gpus);
    check_slots(launch.shares, slots);
    const auto found = masters_.find(order.job);
    // To a master that lives, a later launch is a place, as for the real agent.
    if (found != masters_.end() && !found->second.status().ended)
      return found->second.place({order.generation, slots, std::nullopt, 0, launch.shares, {}});
    masters_.erase(order.job);
    masters_.emplace(order.job, ToyShareMaster(order.job, order.generation, launch.shares));
  }
  void carry_out(const EngineTable::Tell& order) {
    if (!connected_) return;
    if (const auto* place = std::get_if<PlaceJob>(&order.message)) {
      check_slots(place->place.shares, place->place.slots);
      const auto found = masters_.find(place->job);
      if (found != masters_.end()) return found->second.place(place->place);
      report(place->job, place->place.generation, JobEnd::How::failed);
    } else if (const auto* halt = std::get_if<HaltJob>(&order.message)) {
      const auto found = masters_.find(halt->job);
      if (found != masters_.end()) return found->second.stop(halt->stop.generation);
      report(halt->job, halt->stop.generation, JobEnd::How::stopped);
    } else if (const auto* forget = std::get_if<ForgetJob>(&order.message)) {
      masters_.erase(forget->job);
    } else if (const auto* table = std::get_if<NodeTable>(&order.message)) {
      std::set<JobId> there;
      for (const auto& entry : table->jobs) there.insert(entry.job);
      std::erase_if(masters_, [&](const auto& job) { return !there.contains(job.first); });
    }
  }
  // An agent that is told about a job that it does not have.
  void report(JobId id, Generation generation, JobEnd::How how) {
    JobStatus status;
    status.job = id;
    status.generation = generation;
    status.ended = JobEnd{how, 1, "it is not there", how == JobEnd::How::failed, std::nullopt};
    said_.push_back(status);
  }
  void carry_out(const EngineTable::Sweep& order) {
    masters_.erase(order.job);
    swept_.push_back(order.job);
  }
  void carry_out(const EngineTable::Disconnect& /*order*/) { disconnect(); }
  void carry_out(const ShareTable::Submit& order) {
    const Cluster& cluster = shares().cluster();
    const auto named = parse_share_name(kIdentity, order.name);
    if (!named || order.name.size() > kLongestShareName) fail("a bad name");
    if ((cluster.node(order.node).reserved & named->gpus) != 0)
      fail("a share is asked for on GPUs that others use");
    ShareSpec spec;
    spec.name = order.name;
    spec.node = shares().managed_name(order.node);
    spec.gpus = order.gpus;
    manager_->submit(spec);
  }
  void carry_out(const ShareTable::Cancel& order) { manager_->cancel(order.name); }
  void carry_out(const ShareTable::List& /*order*/) { tables_->listing_began(manager_->list()); }

  // --- the agent and the masters ---

  void connect() {
    connected_ = true;
    std::vector<JobStatus> jobs;
    for (const auto& [id, master] : masters_) jobs.push_back(master.status());
    engine().said_hello(now_, NodeId(0), jobs);
    carry_out_orders();
    engine().settled(now_, NodeId(0));
    carry_out_orders();
  }
  void pass_masters() {
    for (auto& [id, master] : masters_) {
      if (master.pass(cluster_, random_)) said_.push_back(master.status());
    }
    for (const JobStatus& status : std::exchange(said_, {})) {
      if (connected_) engine().heard(now_, NodeId(0), status);
      carry_out_orders();
    }
    for (const JobId id : std::exchange(swept_, {})) {
      engine().swept(id, std::nullopt);
      carry_out_orders();
    }
  }

  FakeCluster& cluster_;
  Random random_;
  Time now_ = kStart;
  int lives_ = 0;
  bool connected_ = false;
  std::unique_ptr<FakeManager> manager_;
  std::unique_ptr<ManagedCluster> tables_;
  std::map<JobId, ToyShareMaster> masters_;
  std::vector<JobStatus> said_;
  std::vector<JobId> swept_;
};

}  // namespace rubato::engine

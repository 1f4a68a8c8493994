#include "rubato/policy/edge_cloud.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <queue>
#include <utility>

namespace rubato::policy {
namespace {

using EdgeRecord = EdgeCloud::Record;

// One decision.
class EdgeRound {
 public:
  EdgeRound(const EdgeCloud::Config& config, const Snapshot& snapshot, EdgeCloud::State& state)
      : config_(config), snapshot_(snapshot), state_(state), now_(snapshot.now) {
    list_workers();
  }

  Decision decide() {
    meet();
    for (const std::size_t r : homeless_) dispatch(r);
    return run();
  }

 private:
  struct Worker {
    NodeId node;
    GpuType type;
    bool up = false;
    double transfer_s = 0;
    std::vector<double> left_s;  // of its chunks
  };

  void list_workers() {
    const auto& nodes = snapshot_.cluster.nodes();
    least_transfer_s_.assign(static_cast<std::size_t>(snapshot_.cluster.types()),
                             std::numeric_limits<double>::infinity());
    std::size_t node = 0;
    std::size_t site = 0;
    for (const NodeGroup& group : snapshot_.cluster.groups()) {
      const bool far = site < config_.bandwidth.size();
      const double transfer_s = far ? 8 * config_.data / config_.bandwidth[site] : 0;
      for (int n = 0; n < group.nodes; ++n, ++node) {
        const int usable = std::popcount(nodes[node].usable());
        double& least = least_transfer_s_[nodes[node].type.index()];
        if (usable > 0) least = std::min(least, transfer_s);
        for (int g = 0; g < nodes[node].gpus; ++g)
          workers_.push_back({NodeId(static_cast<NodeId::rep>(node)),
                              nodes[node].type,
                              g < usable,
                              transfer_s,
                              {}});
      }
      ++site;
    }
  }

  // On so many GPUs of a type; infinite where it does not run.
  [[nodiscard]] double left_s(const JobView& job, GpuType type) const {
    const WorkRate rate = job.speed->on(type, job.spec->requested);
    return rate > 0 ? job.progress.left(now_) / rate : std::numeric_limits<double>::infinity();
  }

  void meet() {
    std::vector<EdgeRecord> records;
    records.reserve(snapshot_.jobs.size());
    auto known = state_.records.begin();
    for (const JobView& job : snapshot_.jobs) {
      while (known != state_.records.end() && known->job < job.id) ++known;
      const bool here = known != state_.records.end() && known->job == job.id;
      records.push_back(here ? std::move(*known) : EdgeRecord{job.id, {}});
      EdgeRecord& record = records.back();
      const bool all_up = std::all_of(record.workers.begin(), record.workers.end(), [&](int w) {
        return static_cast<std::size_t>(w) < workers_.size() && at(w).up;
      });
      if (!all_up) record.workers.clear();
      if (record.workers.size() != static_cast<std::size_t>(job.spec->requested)) {
        record.workers.clear();
        homeless_.push_back(records.size() - 1);
      }
    }
    state_.records = std::move(records);
    views_.reserve(state_.records.size());
    for (const EdgeRecord& record : state_.records) {
      views_.push_back(snapshot_.jobs.find(record.job));
      add_chunks(record, *views_.back());
    }
  }

  [[nodiscard]] Worker& at(int worker) { return workers_[static_cast<std::size_t>(worker)]; }

  void add_chunks(const EdgeRecord& record, const JobView& job) {
    if (record.workers.empty()) return;
    const double left = left_s(job, at(record.workers.front()).type);
    for (const int w : record.workers) at(w).left_s.push_back(left);
  }

  void dispatch(std::size_t r) {
    const JobView& job = *views_[r];
    const auto chunks = static_cast<std::size_t>(job.spec->requested);
    double least = std::numeric_limits<double>::infinity();
    std::vector<int> best;
    for (int t = 0; t < snapshot_.cluster.types(); ++t) {
      const GpuType type = type_at(static_cast<std::size_t>(t));
      const double chunk_s = seconds(job.spec->restart_cost) + left_s(job, type);
      if (snapshot_.cluster.usable(type) < job.spec->requested || !(chunk_s < least)) continue;
      auto [sum, workers] = cheapest(type, chunk_s, chunks);
      if (workers.size() < chunks || !(sum < least)) continue;
      least = sum;
      best = std::move(workers);
    }
    std::sort(best.begin(), best.end());
    state_.records[r].workers = std::move(best);
    add_chunks(state_.records[r], job);
  }

  // So many workers of a type for which chunks cost least, and that sum. The cheapest of all are
  // those without chunks that data reaches soonest: with enough of them, the search is over.
  [[nodiscard]] std::pair<double, std::vector<int>> cheapest(GpuType type, double chunk_s,
                                                             std::size_t chunks) const {
    std::priority_queue<std::pair<double, int>> chosen;  // the dearest on top
    std::size_t as_cheap_as_can_be = 0;
    for (std::size_t w = 0; w < workers_.size() && as_cheap_as_can_be < chunks; ++w) {
      const Worker& worker = workers_[w];
      if (!worker.up || worker.type != type) continue;
      const double cost = dispatch_cost(chunk_s, worker.transfer_s, worker.left_s);
      if (chosen.size() < chunks || cost < chosen.top().first)
        chosen.emplace(cost, static_cast<int>(w));
      if (chosen.size() > chunks) chosen.pop();
      as_cheap_as_can_be += cost <= least_transfer_s_[type.index()] + chunk_s ? 1 : 0;
    }
    std::pair<double, std::vector<int>> result;
    for (; !chosen.empty(); chosen.pop()) {
      result.first += chosen.top().first;
      result.second.push_back(chosen.top().second);
    }
    return result;
  }

  Decision run() {
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t r = 0; r < state_.records.size(); ++r) {
      const auto& workers = state_.records[r].workers;
      if (!workers.empty()) order.emplace_back(left_s(*views_[r], at(workers.front()).type), r);
    }
    std::sort(order.begin(), order.end());
    std::vector<bool> busy(workers_.size(), false);
    Decision decision;
    for (const auto& [left, r] : order) {
      const auto& workers = state_.records[r].workers;
      const auto is_busy = [&](int w) { return busy[static_cast<std::size_t>(w)]; };
      if (std::any_of(workers.begin(), workers.end(), is_busy)) continue;
      Spread spread;
      for (const int w : workers) {
        busy[static_cast<std::size_t>(w)] = true;
        if (spread.gpus.empty() || spread.gpus.back().first != at(w).node)
          spread.gpus.emplace_back(at(w).node, 0);
        ++spread.gpus.back().second;
      }
      decision.run.push_back({state_.records[r].job, std::move(spread)});
    }
    return decision;
  }

  const EdgeCloud::Config& config_;
  const Snapshot& snapshot_;
  EdgeCloud::State& state_;
  Time now_;
  std::vector<Worker> workers_;
  std::vector<double> least_transfer_s_;  // by type
  std::vector<const JobView*> views_;     // by record
  std::vector<std::size_t> homeless_;     // records without workers
};

}  // namespace

double dispatch_cost(double chunk_s, double transfer_s, const std::vector<double>& left_s) {
  double cost = transfer_s + chunk_s;
  for (const double left : left_s) cost += left > chunk_s ? chunk_s : left;
  return cost;
}

Decision EdgeCloud::decide(const Snapshot& snapshot, State& state) const {
  return EdgeRound(config, snapshot, state).decide();
}

Json EdgeCloud::State::save() const {
  Json json = Json::array();
  for (const EdgeRecord& record : records)
    json.push_back({{"job", record.job.value()}, {"workers", record.workers}});
  return json;
}

Result<EdgeCloud::State> EdgeCloud::State::load(const Json& json) {
  try {
    State state;
    for (const auto& row : json) {
      EdgeRecord record{JobId(row.at("job").get<JobId::rep>()),
                        row.at("workers").get<std::vector<int>>()};
      const auto& workers = record.workers;
      const bool ascend = std::adjacent_find(workers.begin(), workers.end(),
                                             std::greater_equal<>()) == workers.end();
      if (!ascend || (!workers.empty() && workers.front() < 0))
        return Error{"saved edge-cloud state: the workers of a job are not in order"};
      if (!state.records.empty() && !(state.records.back().job < record.job))
        return Error{"saved edge-cloud state: the jobs are not in order"};
      state.records.push_back(std::move(record));
    }
    return state;
  } catch (const nlohmann::json::exception& problem) {
    return Error{fmt::format("saved edge-cloud state: {}", problem.what())};
  }
}

std::vector<PolicyEntry> edge_cloud_rows() {
  PolicyEntry entry;
  entry.name = "edge-cloud";
  entry.group = "heterogeneous";
  entry.paper = "Wang et al., JSAC'22";
  entry.summary =
      "dispatches the chunks of a job to GPUs of edge and cloud sites when it comes; each GPU runs "
      "its shortest chunk first";
  entry.knows = "GPUs asked for, work left, speed by type, restart cost";
  entry.work_conserving = false;
  entry.keys = {list_key("bandwidth",
                         "Gbit/s to each site (group of nodes), in their order; sites "
                         "that are not named have their data"),
                number_key("data", 1, 0, 1e9, "GB that a chunk brings to its site")};
  entry.make = [](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    return erase(EdgeCloud{{values.numbers("bandwidth"), values.number("data")}});
  };
  return {entry};
}

}  // namespace rubato::policy

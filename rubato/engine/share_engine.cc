#include "rubato/engine/share_engine.h"

#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <thread>
#include <utility>

#include "rubato/node/state_directory.h"
#include "rubato/wire/random_hex.h"

namespace rubato::engine {
namespace {

constexpr std::size_t kLifeBytes = 3;
constexpr std::chrono::milliseconds kLookAgain{20};

// Its path, also if a newer one has replaced it there.
std::string running_program() {
  constexpr std::string_view kReplaced = " (deleted)";
  std::error_code unknown;
  std::string path = std::filesystem::read_symlink(kRunningProgram, unknown).string();
  if (path.ends_with(kReplaced)) path.resize(path.size() - kReplaced.size());
  return unknown ? "rubato" : path;
}

ShareEngineOptions complete(ShareEngineOptions options) {
  options.seats = 1;
  if (options.shared.empty()) options.shared = options.state_directory;
  if (options.share_program.empty())
    options.share_program = options.program.empty() ? running_program() : options.program;
  fill_in(options);
  return options;
}

}  // namespace

Result<Cluster> cluster_of(ClusterManager& manager) {
  manager.list();
  for (;;) {
    manager.turn();
    for (const ManagerAnswer& answer : manager.take_answers()) {
      if (const auto* trouble = std::get_if<ManagerTrouble>(&answer)) return Error{trouble->why};
      const auto* listing = std::get_if<Listing>(&answer);
      if (listing == nullptr) continue;
      Cluster cluster;
      for (const ManagedNode& node : listing->nodes) {
        if (cluster.can_add(new_node(node))) cluster.add(new_node(node));
      }
      if (cluster.nodes().empty()) return Error{"it lists no node with GPUs"};
      return cluster;
    }
    std::this_thread::sleep_for(kLookAgain);
  }
}

ShareEngine::ShareEngine(wire::Poller& poller, ShareEngineOptions options)
    : ShareEngine(complete(std::move(options)), poller) {}

ShareEngine::ShareEngine(ShareEngineOptions options, wire::Poller& poller)
    : paths_{options.shared, options.share_program, options.native_env, options.host_address},
      launch_of_(options.launch_of),
      manager_(std::move(options.manager)),
      tables_(options.cluster, options.lease, options.clock(), options.identity,
              wire::random_hex(kLifeBytes), [this](JobId job) { return !launch_of_(job).live; }),
      agents_(poller, static_cast<const AgentsOptions&>(options), tables_.engine(),
              [this] { carry_out_orders(); }) {}

Result<void> ShareEngine::open(const std::vector<KnownJob>& jobs) {
  for (const KnownJob& job : jobs) {
    tables_.engine().know(job);
    agents_.limit_silence(job.job);
  }
  carry_out_orders();
  return agents_.open();
}

void ShareEngine::carry_out(Time /*now*/, std::span<const Command> commands) {
  for (const Command& command : commands) {
    tables_.engine().told(command);
    if (const auto* start = std::get_if<Start>(&command)) agents_.limit_silence(start->job);
  }
  carry_out_orders();
}

void ShareEngine::collect(Time /*now*/, std::vector<Fact>& facts) {
  manager_->turn();
  for (const ManagerAnswer& answer : manager_->take_answers())
    tables_.answered(agents_.now(), answer);
  agents_.pass();
  tables_.pass(agents_.now());
  carry_out_orders();
  for (Fact& fact : tables_.take_facts()) facts.push_back(std::move(fact));
}

std::vector<JobStatus> ShareEngine::take_reports() { return tables_.engine().take_reports(); }

void ShareEngine::forget(JobId job) {
  tables_.engine().forget(job);
  carry_out_orders();
}

void ShareEngine::mark_down(NodeId node) {
  tables_.engine().mark_down(node);
  carry_out_orders();
}

void ShareEngine::mark_up(NodeId node) {
  tables_.engine().mark_up(node);
  carry_out_orders();
}

void ShareEngine::carry_out_orders() {
  for (const ManagedCluster::Order& order : tables_.take_orders(agents_.now()))
    std::visit([this](const auto& one) { carry_out(one); }, order);
}

std::string ShareEngine::directory_of(JobId job) const { return job_directory(paths_.shared, job); }

void ShareEngine::carry_out(const ManagedCluster::Launch& order) {
  agents_.carry_out(order.order,
                    SharesLaunch{directory_of(order.order.job), order.shares, paths_.address});
}

// The master writes the file that the share reads, and the share waits for it.
void ShareEngine::carry_out(const ShareTable::Submit& order) {
  const JobLaunch launch = launch_of_(order.job);
  const std::string shares = directory_of(order.job) + "/shares/";
  ShareSpec spec;
  spec.name = order.name;
  spec.node = tables_.shares().managed_name(order.node);
  spec.gpus = order.gpus;
  spec.command = {paths_.program, "share", "--config", shares + order.name + ".json"};
  if (!paths_.native_env.empty()) {
    spec.command.emplace_back("--native-env");
    spec.command.push_back(paths_.native_env);
  }
  spec.directory = launch.directory.empty() ? directory_of(order.job) : launch.directory;
  spec.log = shares + order.name + ".log";
  spec.user = launch.user;
  spec.comment = fmt::format("Rubato job {}", order.job.value());
  manager_->submit(spec);
}

void ShareEngine::carry_out(const ShareTable::List& /*order*/) {
  tables_.listing_began(manager_->list());
}

}  // namespace rubato::engine

#include "rubato/engine/agents.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "rubato/launch/process.h"
#include "rubato/launch/processes.h"
#include "rubato/node/job_files.h"
#include "rubato/node/recorded_end.h"
#include "rubato/node/state_directory.h"
#include "rubato/wire/random_hex.h"

namespace rubato::engine {
namespace {

using namespace std::chrono_literals;

constexpr Duration kBeatEvery = 1s;
constexpr Duration kShortestPatience = 50ms;
constexpr Duration kLongestPatience = 5s;
// Added to stop_after: the time in which an agent hangs up or a master waits for its first manager,
// and in which workers write a checkpoint.
constexpr Duration kAloneMargin = 20s;
constexpr std::string_view kUnix = "unix:";
constexpr std::size_t kTokenBytes = 32;

Result<std::string> agent_token(const std::string& path) {
  const auto there = read_json_file(path);
  if (!there) return there.error();
  if (*there && (*there)->is_string()) return (*there)->get<std::string>();
  std::string token = wire::random_hex(kTokenBytes);
  if (auto written = write_json_file(path, Json(token)); !written) return written.error();
  return token;
}

// The sockets of masters are the deepest.
Result<void> check_length(const std::string& state_directory) {
  const std::string longest = JobFiles{job_directory(state_directory, JobId(UINT32_MAX))}.socket();
  constexpr std::size_t kMost = sizeof(sockaddr_un::sun_path) - 1;
  if (longest.size() <= kMost) return {};
  return Error{fmt::format(
      "the state directory {} is too long by {} bytes for the sockets in it; choose a shorter one",
      state_directory, longest.size() - kMost)};
}

// Empty if the address is not that of a unix socket.
std::string socket_path(const std::string& address) {
  return address.starts_with(kUnix) ? address.substr(kUnix.size()) : "";
}

// Others can go through the directory that it is in.
Result<void> keep_private(const std::string& path) {
  if (path.empty() || chmod(path.c_str(), S_IRUSR | S_IWUSR) == 0) return {};
  return Error{fmt::format("cannot make {} private: {}", path, std::strerror(errno))};
}

}  // namespace

void fill_in(AgentsOptions& options) {
  if (options.address.empty()) {
    options.address = "unix:" + options.state_directory + "/agents.sock";
  }
  if (options.dial.empty()) options.dial = options.address;
  if (!options.clock) {
    options.clock = [began = std::chrono::steady_clock::now()] {
      const auto since = std::chrono::steady_clock::now() - began;
      return kStart + std::chrono::duration_cast<Duration>(since);
    };
  }
}

// --- life ----------------------------------------------------------------------------------------

Agents::Agents(wire::Poller& poller, AgentsOptions options, EngineTable& table, Changed changed)
    : poller_(poller),
      options_(std::move(options)),
      table_(table),
      changed_(std::move(changed)),
      server_(poller_, {.message = [this](int key, const Json& json) { handle(key, json); },
                        .dropped = [this](int key) { dropped(key); },
                        .handled = [this] { changed_(); }}),
      agents_(options_.seats) {}

Agents::~Agents() {
  for (const AgentProcess& agent : agents_) {
    if (agent.ended.valid()) poller_.remove(agent.ended.get());
  }
}

Result<void> Agents::prepare() {
  if (auto fits = check_length(options_.state_directory); !fits) return fits;
  if (auto made = make_state_directory(options_.state_directory); !made) return made;
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    const NodeId node(static_cast<NodeId::rep>(i));
    if (auto made = make_own_directory(node_directory(options_.state_directory, node)); !made) {
      return made;
    }
  }
  auto token = agent_token(agent_token_file(options_.state_directory));
  if (!token) return token.error();
  token_ = std::move(*token);
  return listen();
}

// Only the daemon that holds the state directory listens there.
Result<void> Agents::listen() {
  const std::string path = socket_path(options_.address);
  if (!path.empty()) unlink(path.c_str());
  auto listener = wire::listen_on(options_.address);
  if (!listener) return listener.error();
  if (auto kept = keep_private(path); !kept) return kept;
  server_.listen(std::move(*listener));
  socket_ = path.empty() ? std::nullopt : wire::inode_at(path);
  return {};
}

// If it fails, it is tried again.
void Agents::keep_reachable() {
  if (!socket_ || !wire::leads_elsewhere(socket_path(options_.address), *socket_)) return;
  [[maybe_unused]] const auto listens = listen();
}

Result<void> Agents::open() {
  if (auto prepared = prepare(); !prepared) return prepared;
  for (std::size_t i = 0; i < agents_.size(); ++i) see_to(NodeId(static_cast<NodeId::rep>(i)));
  return {};
}

void Agents::limit_silence(JobId job) {
  const JobLaunch launch = options_.launch_of(job);
  if (!launch.stop_after) return;
  // An agent that we do not hear may still hear us, and manage the job, until its lease ends.
  table_.ends_alone_after(job,
                          options_.lease + *launch.stop_after + 2 * launch.grace + kAloneMargin);
}

void Agents::retire() {
  retired_ = true;
  for (const auto& [key, node] : links_) server_.send(key, to_json(ToAgent(DismissAgent{})));
}

std::optional<ProcessName> Agents::process_of(NodeId seat) const {
  return agents_[seat.index()].process;
}

void Agents::pass() {
  if (now() >= beat_due_) {
    beat_due_ = now() + kBeatEvery;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      tell(NodeId(static_cast<NodeId::rep>(i)), EngineBeat{});
    }
  }
  for (std::size_t i = 0; i < agents_.size(); ++i) {
    if (!agents_[i].process && now() >= agents_[i].start_at) {
      see_to(NodeId(static_cast<NodeId::rep>(i)));
    }
  }
  for (const JobId job : leftovers_.pass()) {
    if (const auto home = table_.home_of(job)) {
      unlink(cgroup_file(options_.state_directory, *home, job).c_str());
    }
    remove_secrets_of(options_.state_directory, job);
    // Nobody knows a job any more that has ended meanwhile.
    if (table_.sweeping(job)) table_.swept(job, end_of_finished(job));
  }
}

// --- agents --------------------------------------------------------------------------------------

void Agents::see_to(NodeId seat) {
  AgentProcess& agent = agents_[seat.index()];
  if (agent.process || retired_ || table_.is_closed(seat)) return;
  agent.patience = std::clamp(agent.patience * 2, kShortestPatience, kLongestPatience);
  agent.start_at = now() + agent.patience;
  const std::string directory = node_directory(options_.state_directory, seat);
  const auto written = read_json_file(directory + "/agent.json");
  if (written && *written) {
    const auto there = parse_process_name(**written);
    if (there && lives(*there)) return watch_agent(seat, *there);
  }
  Detached process;
  const bool itself = options_.program.empty();
  process.command = {itself ? "rubato" : options_.program,
                     "agent",
                     "--state",
                     options_.state_directory,
                     "--node",
                     std::to_string(seat.value()),
                     "--engine",
                     options_.dial};
  if (itself) process.image = kRunningProgram;
  process.environment = own_environment();
  process.output = directory + "/agent.log";
  // It is our child, so the pid is its own until we collect it.
  const auto pid = start_detached(process);
  if (!pid) return table_.has_no_agent(seat, pid.error().message);
  watch_agent(seat, {*pid, wire::start_time_of(*pid)});
}

void Agents::watch_agent(NodeId node, const ProcessName& process) {
  AgentProcess& agent = agents_[node.index()];
  agent.process = process;
  agent.ended = wire::watch_process(process.pid);
  if (!agent.ended.valid()) return agent_ended(node);
  poller_.add(agent.ended.get(), [this, node](wire::Poller::Ready) { agent_ended(node); });
}

void Agents::agent_ended(NodeId node) {
  AgentProcess& agent = agents_[node.index()];
  if (agent.ended.valid()) poller_.remove(agent.ended.get());
  agent.ended.close();
  if (agent.process) collect_child(agent.process->pid);
  agent.process.reset();
  agent.start_at = now() + agent.patience;
}

void Agents::dropped(int key) {
  const auto link = links_.find(key);
  if (link == links_.end()) return;
  const NodeId node = link->second;
  links_.erase(link);
  table_.lost(node);
}

// A message that cannot be parsed comes from an agent of another version, or from no agent at all.
void Agents::handle(int key, const Json& json) {
  const auto message = parse_from_agent(json);
  const auto* hello = message ? std::get_if<AgentHello>(&*message) : nullptr;
  if (hello != nullptr) return greet(key, *hello);
  const auto link = links_.find(key);
  if (!message || link == links_.end()) return server_.drop(key);
  const NodeId node = link->second;
  if (const auto* status = std::get_if<JobStatus>(&*message)) {
    if (!is_of_another(*status)) table_.heard(now(), node, *status);
  } else if (std::holds_alternative<AgentSettled>(*message)) {
    table_.settled(now(), node);
  } else {
    table_.heard_beat(now(), node, std::get<AgentBeat>(*message).trouble);
  }
}

void Agents::greet(int key, const AgentHello& hello) {
  const bool known = hello.token == token_ && hello.node.index() < agents_.size();
  if (!known || links_.contains(key)) return server_.drop(key);
  if (hello.protocol != kAgentProtocol) {
    server_.send(key, to_json(ToAgent(DismissAgent{})));
    return server_.drop(key);
  }
  // The newer connection counts: the lock of the node allows one agent at a time.
  if (const auto older = link_of(hello.node)) server_.drop(*older);
  links_[key] = hello.node;
  agents_[hello.node.index()].patience = {};
  std::vector<JobStatus> jobs = hello.jobs;
  std::erase_if(jobs, [this](const JobStatus& status) { return is_of_another(status); });
  table_.said_hello(now(), hello.node, jobs);
}

// An agent reports what it finds in a job's directory, which may belong to another job that had
// this number before. Finished is final, so such a report is checked more closely.
bool Agents::is_of_another(const JobStatus& status) const {
  const bool finished = status.ended && status.ended->how == JobEnd::How::finished;
  if (!finished || !table_.home_of(status.job)) return false;
  const auto launch = read_launch({job_directory(options_.state_directory, status.job)});
  return launch && *launch && (*launch)->token != options_.launch_of(status.job).token;
}

std::optional<int> Agents::link_of(NodeId node) const {
  for (const auto& [key, its_node] : links_) {
    if (its_node == node) return key;
  }
  return std::nullopt;
}

void Agents::tell(NodeId node, const ToAgent& message) {
  if (const auto link = link_of(node)) server_.send(*link, to_json(message));
}

// --- orders --------------------------------------------------------------------------------------

void Agents::carry_out(const EngineTable::Launch& order, std::optional<SharesLaunch> shares) {
  JobLaunch launch = options_.launch_of(order.job);
  launch.job = order.job;
  launch.home = order.node;
  launch.generation = order.generation;
  launch.slots = slots_of(order.gpus);
  launch.node_gpus.clear();
  for (const Node& node : table_.cluster().nodes()) launch.node_gpus.push_back(node.gpus);
  launch.batch = order.batch;
  launch.shares = std::move(shares);
  tell(order.node, LaunchJob{std::move(launch)});
}

void Agents::carry_out(const EngineTable::Tell& order) { tell(order.node, order.message); }

void Agents::carry_out(const EngineTable::Disconnect& order) {
  if (const auto link = link_of(order.node)) server_.drop(*link);
}

// A master that is just starting finds that it is too late. An exit.json that a master has written
// stays: the job may have finished just now.
void Agents::carry_out(const EngineTable::Sweep& order) {
  const JobLaunch launch = options_.launch_of(order.job);
  const std::string& state = options_.state_directory;
  if (!check_submission(state, order.job, launch.token)) {
    return leftovers_.add(order.job, owner_of_job(state, order.job), launch.token, {});
  }
  // The job may be about to start for the first time, and its master must be able to read the file.
  // If this fails because the disk is full or the user no longer exists, no master can start
  // either.
  if (const auto user = run_as(launch.user)) {
    [[maybe_unused]] const auto made = make_job_directory(state, order.job, *user);
  }
  [[maybe_unused]] const auto written =
      write_job_file(state, order.job, "fence.json", generation_file(order.generation));
  const auto home = table_.home_of(order.job);
  leftovers_.add(order.job, owner_of_job(state, order.job), launch.token,
                 processes_named_in(job_directory(state, order.job)),
                 home ? cgroup_of_job(state, *home, order.job) : "");
}

std::optional<JobEnd> Agents::end_of_finished(JobId job) const {
  const JobFiles files{job_directory(options_.state_directory, job)};
  const auto exit = read_exit(files);
  const auto launch = read_launch(files);
  if (!exit || !launch || !*launch) return std::nullopt;
  return had_finished({(*launch)->generation, (*launch)->token, *exit, Generation(0)},
                      options_.launch_of(job).token);
}

}  // namespace rubato::engine

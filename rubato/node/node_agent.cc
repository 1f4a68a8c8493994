#include "rubato/node/node_agent.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/launch/process.h"
#include "rubato/launch/processes.h"
#include "rubato/node/cgroup.h"
#include "rubato/node/state_directory.h"
#include "rubato/wire/signals.h"

namespace rubato::node {
namespace {

using namespace std::chrono_literals;

constexpr Duration kTick = 100ms;
constexpr Duration kTickWhileSweeping = 20ms;
constexpr Duration kBeatEvery = 1s;
constexpr Duration kShortestPatience = 20ms;
constexpr Duration kLongestPatience = 1s;
// As much as a job's own files may need.
constexpr std::size_t kProbeSize = std::size_t{64} << 10U;

void say(const std::string& text) { fmt::print(stderr, "rubato agent: {}\n", text); }

Result<wire::Fd> take_lock(const std::string& path, int flags, NodeId node) {
  wire::Fd lock(open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!lock.valid()) return Error{fmt::format("cannot open {}: {}", path, std::strerror(errno))};
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    return Error{fmt::format("node {} has an agent already, which holds {}", node.value(), path)};
  }
  return lock;
}

// The machine or Rubato itself could not run the job.
JobEnd not_its_fault(std::string why) {
  return {JobEnd::How::failed, 1, std::move(why), true, std::nullopt};
}

Duration longer(Duration patience) {
  return std::clamp(patience * 2, kShortestPatience, kLongestPatience);
}

// A job without a directory runs in its user's home, as after a login. Some users have no home.
std::vector<std::string> homes_in(const Environment& environment) {
  constexpr std::string_view kHome = "HOME=/";
  std::vector<std::string> homes;
  for (const std::string& line : environment) {
    if (line.starts_with(kHome)) homes.push_back(line.substr(kHome.size() - 1));
  }
  homes.emplace_back("/");
  return homes;
}

}  // namespace

// --- life ----------------------------------------------------------------------------------------

Result<std::unique_ptr<NodeAgent>> NodeAgent::open(NodeAgentOptions options) {
  const std::string directory = node_directory(options.state_directory, options.node);
  if (auto made = make_state_directory(options.state_directory); !made) return made.error();
  if (auto made = make_own_directory(directory); !made) return made.error();
  // An agent of an older version has only the file, which somebody may have deleted.
  auto file = take_lock(directory + "/lock", O_RDWR | O_CREAT, options.node);
  if (!file) return file.error();
  auto lock = take_lock(directory, O_RDONLY | O_DIRECTORY, options.node);
  if (!lock) return lock.error();
  const auto home = wire::inode_at(options.state_directory);
  if (!home) return Error{fmt::format("cannot look at {}", options.state_directory)};
  const auto token = read_json_file(agent_token_file(options.state_directory));
  if (!token) return token.error();
  if (!*token || !(*token)->is_string()) {
    return Error{fmt::format("{} has no token for agents; is this the state directory of a daemon?",
                             agent_token_file(options.state_directory))};
  }
  const auto written = write_json_file(directory + "/agent.json", to_json(own_name()));
  if (!written) return written.error();
  return std::unique_ptr<NodeAgent>(new NodeAgent(std::move(options), (*token)->get<std::string>(),
                                                  {std::move(*file), std::move(*lock)}, *home));
}

NodeAgent::NodeAgent(NodeAgentOptions options, std::string token, Locks locks, wire::Inode home)
    : options_(std::move(options)),
      token_(std::move(token)),
      locks_(std::move(locks)),
      home_(home),
      jobs_(options_.node, {}) {}

Time NodeAgent::now() const {
  return kStart + std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began_);
}

void NodeAgent::watch_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  signals_ = wire::take_signals({SIGINT, SIGTERM});
  poller_.add(signals_.get(), [this](wire::Poller::Ready) { over_ = true; });
}

void NodeAgent::run() {
  watch_signals();
  // An agent that cannot read the files of its jobs would report them as gone. So it exits; the
  // next one may be able to read them.
  if (const auto looked = look_at_disk(); !looked) return say(looked.error().message);
  carry_out();
  while (!over_) {
    poller_.wait(std::chrono::duration_cast<std::chrono::milliseconds>(idle_time()));
    pass();
    if (!over_) carry_out();
  }
}

Duration NodeAgent::idle_time() const {
  if (leftovers_.busy()) return kTickWhileSweeping;
  Time next = now() + kTick;
  if (!engine_.open()) next = std::min(next, connect_at_);
  for (const auto& [id, master] : masters_) {
    if (master.wanted && !master.stream.open()) next = std::min(next, master.connect_at);
  }
  return std::max(next - now(), Duration(1ms));
}

void NodeAgent::pass() {
  if (leave_if_moved()) return;
  if (!engine_.open() && now() >= connect_at_) connect_to_engine();
  if (now() >= beat_due_) {
    beat_due_ = now() + kBeatEvery;
    tell_engine(AgentBeat{jobs_.trouble()});
  }
  for (auto& [id, master] : masters_) {
    if (master.wanted && !master.stream.open() && now() >= master.connect_at) {
      connect_to_master(id, master);
    }
  }
  sweep();
  jobs_.pass(now());
}

// Children that are not masters were left by dead masters. They are all killed.
void NodeAgent::sweep() {
  std::set<int> own;
  for (const auto& [id, master] : masters_) own.insert(master.process.pid);
  orphans_.collect(own);
  if (!leftovers_.busy()) return;
  for (const JobId id : leftovers_.pass(orphans_.end(own))) {
    if (!refused_.contains(id)) {
      unlink(cgroup_file(options_.state_directory, options_.node, id).c_str());
      remove_secrets_of(options_.state_directory, id);
    }
    jobs_.swept(id);
  }
}

// The files at the old path are no longer those of our jobs. The daemon at the new path starts
// another agent, which finds the masters.
bool NodeAgent::leave_if_moved() {
  if (over_ || !wire::leads_elsewhere(options_.state_directory, home_)) return over_;
  say(fmt::format("{} was moved, deleted or replaced: this agent exits, jobs continue",
                  options_.state_directory));
  over_ = true;
  return true;
}

// --- what is there -------------------------------------------------------------------------------

JobFiles NodeAgent::files_of(JobId job) const {
  return {job_directory(options_.state_directory, job)};
}

Result<void> NodeAgent::look_at_disk() {
  const auto jobs = jobs_with_directory(options_.state_directory);
  if (!jobs) return jobs.error();
  for (const JobId id : *jobs) {
    const auto launch = read_launch(files_of(id));
    if (!launch) {
      say(launch.error().message);
    } else if (*launch && (*launch)->home == options_.node && (*launch)->job == id &&
               read_generation(files_of(id).forgotten()) < (*launch)->generation) {
      look_at_job(id, **launch);
    }
  }
  return {};
}

void NodeAgent::look_at_job(JobId id, const JobLaunch& launch) {
  const JobFiles files = files_of(id);
  NodeJobs::Found found;
  found.launch = launch;
  found.exit = exit_that_counts(recorded_end(id), launch);
  std::optional<ProcessName> master = living_master(id);
  // A job in shares gets another master, which finds out whether the first one lives after all.
  if (!master && !found.exit && !launch.shares) {
    // The master has died, or our predecessor died while it was starting the master. A master that
    // finds an exit of its own start exits before it starts anything. A master that does not find
    // it has written master.json before we look again.
    const JobExit exit{launch.generation, {JobEnd::How::failed, 1, "its launcher died"}, {}, 0, 0};
    write(id, "exit.json", to_json(exit));
    master = living_master(id);
    if (master) {
      unlink(files.exit().c_str());
    } else {
      found.exit = exit;
    }
  }
  // If there is an exit, a master that is still alive is about to exit.
  found.master_lives = master.has_value();
  if (const auto workers = read_workers(files)) {
    for (const WorkerRecord& worker : *workers) found.in_use.push_back(worker.slot);
  }
  jobs_.found(found);
  if (master) watch(id, *master);
}

std::optional<ProcessName> NodeAgent::living_master(JobId job) const {
  const auto master = read_master(files_of(job));
  return master && *master && lives(**master) ? *master : std::nullopt;
}

RecordedEnd NodeAgent::recorded_end(JobId job) const {
  const JobFiles files = files_of(job);
  RecordedEnd recorded;
  recorded.fence = read_generation(files.fence());
  if (const auto launch = read_launch(files); launch && *launch) {
    recorded.start = (*launch)->generation;
    recorded.token = (*launch)->token;
  }
  if (auto exit = read_exit(files)) {
    recorded.exit = std::move(*exit);
  } else {
    say(exit.error().message);
  }
  return recorded;
}

void NodeAgent::watch(JobId job, const ProcessName& process) {
  Master& master = masters_[job];
  master.process = process;
  master.ended = wire::watch_process(process.pid);
  // The pid may have passed to another process between the two calls.
  if (!master.ended.valid() || !lives(process)) return master_ended(job);
  poller_.add(master.ended.get(), [this, job](wire::Poller::Ready) {
    if (leave_if_moved()) return;  // how it ended is written elsewhere
    master_ended(job);
    carry_out();
  });
}

void NodeAgent::master_ended(JobId job) {
  const auto found = masters_.find(job);
  if (found == masters_.end()) return;
  // The last messages that it sent.
  if (found->second.stream.open()) read_master_of(job);
  hang_up(found->second);
  if (found->second.ended.valid()) poller_.remove(found->second.ended.get());
  const ProcessName process = found->second.process;
  collect_child(process.pid);
  masters_.erase(found);
  const JobLaunch* launch = jobs_.launch_of(job);
  const auto exit = launch == nullptr ? std::nullopt : exit_that_counts(recorded_end(job), *launch);
  // A master writes master.json before it starts anything of the job.
  const auto named = read_master(files_of(job));
  const bool came_up = exit || (named && *named && **named == process);
  if (came_up) return jobs_.master_gone(job, exit);
  jobs_.could_not_start(job, not_its_fault("its launcher ended before it could begin; master.err "
                                           "in the job's directory may say why"));
}

// --- the engine ----------------------------------------------------------------------------------

void NodeAgent::connect_to_engine() {
  patience_ = longer(patience_);
  connect_at_ = now() + patience_;
  auto fd = wire::connect_to(options_.engine);
  if (!fd) return;
  engine_ = wire::FrameStream(std::move(*fd));
  poller_.add(engine_.fd(), [this](wire::Poller::Ready ready) {
    if (ready.out) engine_.flush();
    if (ready.in) read_engine();
    if (engine_.open()) poller_.want_out(engine_.fd(), engine_.wants_out());
    carry_out();
  });
  tell_engine(AgentHello{options_.node, token_, own_name(), jobs_.statuses()});
  tell_engine(AgentBeat{jobs_.trouble()});
}

void NodeAgent::read_engine() {
  const int number = engine_.fd();
  const std::vector<Json> messages = engine_.receive();
  if (!engine_.open()) poller_.remove(number);
  for (const Json& json : messages) {
    const auto message = parse_to_agent(json);
    if (!message) {
      say(message.error().message);
      continue;
    }
    patience_ = {};
    if (std::holds_alternative<DismissAgent>(*message)) over_ = true;
    jobs_.engine_said(now(), *message);
  }
  if (!engine_.open()) drop_engine();
}

void NodeAgent::drop_engine() {
  engine_ = wire::FrameStream();
  patience_ = longer(patience_);
  connect_at_ = now() + patience_;
  jobs_.engine_lost();
}

void NodeAgent::tell_engine(const FromAgent& message) {
  if (!engine_.open()) return;
  engine_.send(to_json(message));
  poller_.want_out(engine_.fd(), engine_.wants_out());
}

// --- masters -------------------------------------------------------------------------------------

void NodeAgent::connect_to_master(JobId job, Master& master) {
  master.patience = longer(master.patience);
  master.connect_at = now() + master.patience;
  auto fd = wire::connect_to("unix:" + files_of(job).socket());
  if (!fd) return;
  // The directory belongs to the job's user, who may have put a link to another socket there.
  if (wire::user_at(*fd) != owner_of_job(options_.state_directory, job)) return;
  master.stream = wire::FrameStream(std::move(*fd));
  poller_.add(master.stream.fd(), [this, job](wire::Poller::Ready ready) {
    Master& there = masters_.at(job);
    if (ready.out) {
      there.stream.flush();
      poller_.want_out(there.stream.fd(), there.stream.wants_out());
    }
    if (ready.in) read_master_of(job);
    carry_out();
  });
  master.stream.send(to_json(ToMaster(Manage{jobs_.launch_of(job)->token})));
  jobs_.connected(now(), job);
}

void NodeAgent::read_master_of(JobId job) {
  Master& master = masters_.at(job);
  const int number = master.stream.fd();
  const std::vector<Json> messages = master.stream.receive();
  for (const Json& json : messages) {
    const auto status = parse_job_status(json);
    if (!status) {
      say(fmt::format("master of job {}: {}", job.value(), status.error().message));
      continue;
    }
    master.patience = {};
    jobs_.master_said(now(), job, *status);
  }
  if (master.stream.open()) return;
  poller_.remove(number);
  master.stream = wire::FrameStream();
  master.patience = longer(master.patience);
  master.connect_at = now() + master.patience;
  jobs_.disconnected(job);
}

void NodeAgent::hang_up(Master& master) {
  if (!master.stream.open()) return;
  poller_.remove(master.stream.fd());
  master.stream = wire::FrameStream();
}

// --- orders --------------------------------------------------------------------------------------

void NodeAgent::carry_out() {
  for (auto orders = jobs_.take_orders(); !orders.empty(); orders = jobs_.take_orders()) {
    for (const NodeJobs::Order& order : orders) {
      std::visit([this](const auto& o) { carry_out(o); }, order);
    }
  }
}

void NodeAgent::carry_out(const NodeJobs::StartMaster& order) {
  const JobId id = order.launch.job;
  if (const auto why = why_refused(order.launch)) {
    refused_.insert(id);
    say(why->why);
    return jobs_.could_not_start(id, *why);
  }
  refused_.erase(id);
  // Without launch.json nobody knows which job an exit.json belongs to.
  const JobFiles files = files_of(id);
  if (access(files.launch().c_str(), F_OK) != 0) unlink(files.exit().c_str());
  if (const auto exit = exit_that_counts(recorded_end(id), order.launch))
    return jobs_.master_gone(id, exit);
  // A master in shares that our predecessor had started: a second one could not have its socket.
  const auto there = order.launch.shares ? living_master(id) : std::nullopt;
  if (there) {
    watch(id, *there);
    return jobs_.started(id);
  }
  const auto process = start_master(order.launch);
  if (!process) {
    say(process.error().message);
    return jobs_.could_not_start(id, not_its_fault(process.error().message));
  }
  watch(id, *process);
  jobs_.started(id);
}

// Nothing is started in, or written to, a directory that belongs, or may belong, to another job.
std::optional<JobEnd> NodeAgent::why_refused(const JobLaunch& launch) const {
  if (const auto there = read_launch(files_of(launch.job)); !there)
    return not_its_fault(there.error().message);
  const auto own = check_submission(options_.state_directory, launch.job, launch.token);
  if (own) return std::nullopt;
  return JobEnd{JobEnd::How::failed, 1, own.error().message};
}

Result<ProcessName> NodeAgent::start_master(const JobLaunch& launch) {
  const JobFiles files = files_of(launch.job);
  const auto user = run_as(launch.user);
  if (!user) return user.error();
  const auto made = make_job_directory(options_.state_directory, launch.job, *user);
  if (!made) return made.error();
  if (launch.shares && launch.shares->directory != files.directory) {
    const auto shared = make_shared_directory(launch.shares->directory, *user);
    if (!shared) return shared.error();
  }
  const auto written =
      write_job_file(options_.state_directory, launch.job, "launch.json", to_json(launch));
  if (!written) return written.error();
  Detached master;
  master.command = {"rubato", "master", files.directory};
  master.image = kRunningProgram;
  master.environment = *user ? clean_environment(**user) : own_environment();
  master.user = *user;
  master.directories = homes_in(master.environment);
  master.output = files.directory + "/master.err";
  const wire::Fd cgroup = make_cgroup_of(launch);
  master.cgroup = cgroup.get();
  const auto pid = start_detached(master);
  if (!pid) {
    remove_cgroup(cgroup_of_job(options_.state_directory, options_.node, launch.job));
    return pid.error();
  }
  // It is our child, so the pid is its own until we collect it.
  return ProcessName{*pid, wire::start_time_of(*pid)};
}

// Its path is stored first, so that the next agent can empty the cgroup.
wire::Fd NodeAgent::make_cgroup_of(const JobLaunch& launch) const {
  const ProcessName self = own_name();
  const auto path = make_cgroup(fmt::format("rubato-{}-{}-{}-{}", self.pid, self.start_time,
                                            launch.job.value(), launch.generation.value()));
  if (!path) return {};
  if (write_cgroup_of_job(options_.state_directory, options_.node, launch.job, *path)) {
    return entrance_of(*path);
  }
  remove_cgroup(*path);
  return {};
}

void NodeAgent::carry_out(const NodeJobs::Connect& order) {
  const auto found = masters_.find(order.job);
  if (found == masters_.end()) return;
  found->second.wanted = true;
  found->second.connect_at = now();
}

void NodeAgent::carry_out(const NodeJobs::HangUp& order) {
  const auto found = masters_.find(order.job);
  if (found == masters_.end()) return;
  found->second.wanted = false;
  hang_up(found->second);
}

void NodeAgent::carry_out(const NodeJobs::SendToMaster& order) {
  const auto found = masters_.find(order.job);
  if (found == masters_.end() || !found->second.stream.open()) return;
  wire::FrameStream& stream = found->second.stream;
  stream.send(to_json(order.message));
  poller_.want_out(stream.fd(), stream.wants_out());
}

void NodeAgent::carry_out(const NodeJobs::KillMaster& order) {
  const auto found = masters_.find(order.job);
  const uid_t owner = owner_of_job(options_.state_directory, order.job);
  if (found != masters_.end() && lives_as(owner, found->second.process)) {
    const int pid = found->second.process.pid;
    if (const auto table = all_processes()) below_[order.job] = below(pid, *table);
    kill(pid, SIGKILL);
  }
}

void NodeAgent::carry_out(const NodeJobs::Sweep& order) {
  const JobLaunch* launch = jobs_.launch_of(order.job);
  if (launch == nullptr) return;
  // The files of a directory that belongs to another job are not used.
  const bool refused = refused_.contains(order.job);
  std::vector<ProcessName> named;
  if (!refused) named = processes_named_in(files_of(order.job).directory);
  if (const auto killed = below_.extract(order.job)) {
    named.insert(named.end(), killed.mapped().begin(), killed.mapped().end());
  }
  leftovers_.add(order.job, owner_of_job(options_.state_directory, order.job), launch->token,
                 std::move(named),
                 refused ? "" : cgroup_of_job(options_.state_directory, options_.node, order.job));
}

void NodeAgent::carry_out(const NodeJobs::RecordExit& order) {
  if (!may_record(recorded_end(order.job), order.exit) ||
      write(order.job, "exit.json", to_json(order.exit))) {
    jobs_.recorded(order.job);
  }
}

void NodeAgent::carry_out(const NodeJobs::RecordForgotten& order) {
  write(order.job, "forgotten.json", generation_file(order.start));
}

bool NodeAgent::write(JobId job, const std::string& name, const Json& content) const {
  if (refused_.contains(job)) return true;  // nothing is written for it
  const auto written = write_job_file(options_.state_directory, job, name, content);
  if (!written) say(written.error().message);
  return written.ok();
}

void NodeAgent::carry_out(const NodeJobs::TellEngine& order) { tell_engine(order.message); }

void NodeAgent::carry_out(const NodeJobs::Probe& /*order*/) {
  const auto tried = try_to_start();
  const std::string trouble = tried ? "" : tried.error().message;
  if (trouble != jobs_.trouble())
    say(tried ? "jobs can be started again" : "no job can be started: " + trouble);
  jobs_.probed(now(), trouble);
}

Result<void> NodeAgent::try_to_start() const {
  const std::string directory =
      fmt::format("{}/jobs/.probe-{}", options_.state_directory, options_.node.value());
  if (mkdir(directory.c_str(), S_IRWXU) != 0 && errno != EEXIST)
    return Error{fmt::format("cannot make the directory {}: {}", directory, std::strerror(errno))};
  const std::string file = directory + "/launch.json";
  const auto written = write_json_file(file, Json(std::string(kProbeSize, '.')));
  unlink(file.c_str());
  rmdir(directory.c_str());
  if (!written) return written.error();
  Detached process;
  process.command = {"rubato", "--version"};
  process.image = kRunningProgram;
  process.environment = own_environment();
  const auto pid = start_detached(process);
  if (!pid) return pid.error();
  end_child(*pid);
  return {};
}

}  // namespace rubato::node

#include "rubato/launch/launcher.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/launch/live_run.h"
#include "rubato/launch/processes.h"
#include "rubato/launch/restart_run.h"
#include "rubato/wire/random_hex.h"
#include "rubato/wire/signals.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kHurriedTick = 20ms;
constexpr Duration kLookAtSocketEvery = 1s;

constexpr std::size_t kTokenBytes = 16;

std::unique_ptr<LaunchState> new_state(const RunSpec& spec) {
  if (spec.live) return std::make_unique<LiveRun>(spec.limits);
  return std::make_unique<RestartRun>(spec.limits);
}

}  // namespace

std::string count_of(int number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// --- start and end
// --------------------------------------------------------------------------------

Launcher::Launcher(RunSpec spec, RunSocket socket, LauncherFace& face)
    : spec_(std::move(spec)),
      socket_(std::move(socket)),
      face_(face),
      may_nice_(may_undo_nice()),
      state_(new_state(spec_)),
      server_(poller_, {.message = [this](int key, const Json& message) { handle(key, message); },
                        .dropped = [this](int key) { dropped(key); },
                        .handled = [this] { carry_out(); }}) {
  if (spec_.token.empty()) spec_.token = wire::random_hex(kTokenBytes);
}

Launcher::~Launcher() {
  if (!wire::leads_elsewhere(socket_.path, socket_.inode)) unlink(socket_.path.c_str());
}

Time Launcher::now() const {
  return kStart + std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began_);
}

void Launcher::watch_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::vector<int> taken;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // A signal that our parent told us to ignore stays ignored, as nohup does.
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal != SIGHUP || action.sa_handler != SIG_IGN) taken.push_back(signal);
  }
  signals_ = wire::take_signals(taken);
  poller_.add(signals_.get(), [this](wire::Poller::Ready) {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      state_->stop(now(), static_cast<int>(info.ssi_signo));
    }
  });
}

Outcome Launcher::run() {
  watch_signals();
  server_.listen(std::move(socket_.listener));
  face_.log("run", {{"name", spec_.name},
                    {"mode", spec_.live ? "live" : "restart"},
                    {"command", spec_.command}});
  if (!spec_.slots.empty()) CHECK(state_->place(now(), spec_.slots).ok());
  state_->begin(now());
  carry_out();
  while (!state_->outcome()) {
    poller_.wait(face_.hurries() || someone_lingers() ? kHurriedTick : kTick);
    keep_listening();
    collect_ended();
    state_->pass(now());
    carry_out();
    face_.turn();
  }
  return *state_->outcome();
}

// If somebody has deleted the socket, it is created again. If that fails, the next call tries
// again.
void Launcher::keep_listening() {
  if (now() < listen_due_) return;
  listen_due_ = now() + kLookAtSocketEvery;
  if (!wire::leads_elsewhere(socket_.path, socket_.inode)) return;
  auto again = claim_socket(socket_.path, "");
  if (!again) return;
  socket_ = std::move(*again);
  server_.listen(std::move(socket_.listener));
}

void Launcher::serve(std::chrono::milliseconds longest) {
  const auto until = std::chrono::steady_clock::now() + longest;
  do {
    poller_.wait(kHurriedTick);
  } while (server_.any_unsent() && std::chrono::steady_clock::now() < until);
}

// --- connections ---------------------------------------------------------------------------------

void Launcher::dropped(int key) {
  const auto speaker = speakers_.find(key);
  if (speaker == speakers_.end()) return face_.hung_up(key);
  const auto worker = workers_.find(speaker->second);
  if (worker != workers_.end()) worker->second.connection = -1;
  speakers_.erase(speaker);
}

void Launcher::hang_up(int connection) { server_.drop(connection); }

void Launcher::send(int connection, const Json& message) { server_.send(connection, message); }

bool Launcher::unsent(int connection) const { return server_.unsent(connection); }

void Launcher::handle(int key, const Json& message) {
  const auto speaker = speakers_.find(key);
  if (speaker == speakers_.end()) return greet(key, message);
  const Uid uid = speaker->second;
  const auto parsed = wire::parse_from_worker(message);
  if (!parsed) {
    face_.say(fmt::format("worker {}: {}", uid, parsed.error().message));
    return;
  }
  state_->heard(now(), uid, *parsed);
  face_.heard(uid, *parsed);
}

// The first message of a connection: the Hello of a worker, or a request of somebody else.
void Launcher::greet(int key, const Json& message) {
  if (look_for_text(message, "type") != "hello") {
    face_.asked(key, message);
    return;
  }
  const auto parsed = wire::parse_from_worker(message);
  const auto* hello = parsed ? std::get_if<wire::Hello>(&*parsed) : nullptr;
  const auto worker = hello != nullptr ? workers_.find(hello->uid) : workers_.end();
  if (worker == workers_.end() || hello->token != spec_.token ||
      !state_->said_hello(now(), *hello)) {
    server_.drop(key);
    return;
  }
  speakers_[key] = hello->uid;
  worker->second.connection = key;
  face_.log("hello", {{"worker", hello->uid}, {"pid", hello->pid}});
}

// --- orders --------------------------------------------------------------------------------------

void Launcher::carry_out() {
  // Carrying out one order may create others. For example, a program that cannot be started ends
  // the run.
  for (auto orders = state_->take_orders(); !orders.empty(); orders = state_->take_orders()) {
    for (const Order& order : orders) {
      std::visit([this](const auto& one) { carry_out(one); }, order);
    }
  }
}

Environment Launcher::environment_of(const StartWorker& start, bool niced) const {
  Environment environment = spec_.environment;
  // Workers share the cores. Threads that spin while they wait for each other would use all of
  // them.
  set_default(environment, "OMP_NUM_THREADS", "1");
  set_default(environment, "OMP_WAIT_POLICY", "passive");
  if (spec_.live) {
    set(environment, "RUBATO_LAUNCHER", "unix:" + socket_.path);
    set(environment, "RUBATO_WORKER", fmt::format("{}", start.uid));
    set(environment, "RUBATO_TOKEN", spec_.token);
    if (niced) set(environment, "RUBATO_NICED", "1");
    face_.complete(environment, start);
    return environment;
  }
  const LaunchCounts& counts = state_->counts();
  set(environment, "RANK", fmt::format("{}", start.rank));
  set(environment, "LOCAL_RANK", fmt::format("{}", start.rank));
  set(environment, "WORLD_SIZE", fmt::format("{}", start.world));
  set(environment, "LOCAL_WORLD_SIZE", fmt::format("{}", start.world));
  set(environment, "MASTER_ADDR", "127.0.0.1");
  set(environment, "MASTER_PORT", fmt::format("{}", port_));
  set(environment, "TORCHELASTIC_RESTART_COUNT", fmt::format("{}", counts.failures));
  set(environment, "TORCHELASTIC_MAX_RESTARTS", fmt::format("{}", spec_.limits.max_failures));
  set(environment, "TORCHELASTIC_RUN_ID", spec_.name);
  // If we run under torchrun, this variable would make rank 0 look for a store that does not exist.
  set(environment, "TORCHELASTIC_USE_AGENT_STORE", "False");
  face_.complete(environment, start);
  return environment;
}

void Launcher::carry_out(const StartWorker& start) {
  if (!spec_.live && port_of_round_ != start.round) {
    const auto port = free_port();
    if (!port) {
      state_->could_not_start(now(), start.uid, port.error().message, true);
      return;
    }
    port_ = *port;
    port_of_round_ = start.round;
  }
  const bool niced = start.low_priority && may_nice_;
  bool shortage = false;
  auto process = spawn(spec_.command, environment_of(start, niced),
                       {niced, spec_.directory, spec_.close_others}, &shortage);
  if (!process) {
    state_->could_not_start(now(), start.uid, process.error().message, shortage);
    return;
  }
  WorkerProcess& worker = workers_[start.uid];
  worker.process = std::move(*process);
  worker.slot = start.slot;
  worker.mark =
      spec_.live ? fmt::format("RUBATO_WORKER={}", start.uid) : fmt::format("RANK={}", start.rank);
  worker.start_time = wire::start_time_of(worker.process.pid);
  Json fields = {{"worker", start.uid}, {"pid", worker.process.pid}};
  if (start.world > 0) {
    fields["rank"] = start.rank;
    fields["world"] = start.world;
  }
  if (!start.slot.empty()) fields["slot"] = start.slot;
  face_.log("start", fields);
  watch(start.uid, worker);
  face_.processes_changed();
}

void Launcher::watch(Uid uid, const WorkerProcess& worker) {
  poller_.add(worker.process.ended.get(), [this, uid](wire::Poller::Ready) {
    collect(uid);
    carry_out();
  });
  poller_.add(worker.process.out.get(),
              [this, uid](wire::Poller::Ready) { read_output(uid, false, false); });
  poller_.add(worker.process.err.get(),
              [this, uid](wire::Poller::Ready) { read_output(uid, true, false); });
}

void Launcher::carry_out(const SignalWorker& signal) {
  const auto found = workers_.find(signal.uid);
  if (found == workers_.end() || found->second.end) return;
  face_.log("signal", {{"worker", signal.uid}, {"signal", signal.signal}});
  send_signal(found->second.process, signal.signal);
}

void Launcher::carry_out(const SendToWorker& send) {
  if (const auto* plan = std::get_if<wire::MembershipPlan>(&send.message)) {
    face_.log("plan", {{"worker", send.uid}, {"plan", *plan}});
  }
  const auto found = workers_.find(send.uid);
  if (found == workers_.end() || found->second.connection < 0) return;
  this->send(found->second.connection, wire::to_json(send.message));
}

void Launcher::carry_out(const Tell& tell) {
  face_.log("say", {{"text", tell.text}});
  face_.say(tell.text);
}

// --- processes -----------------------------------------------------------------------------------

void Launcher::read_output(Uid uid, bool is_err, bool to_the_end) {
  WorkerProcess& worker = workers_.at(uid);
  wire::Fd& fd = is_err ? worker.process.err : worker.process.out;
  LineCutter& cutter = is_err ? worker.err : worker.out;
  const auto print = [&](std::string_view line) { face_.output(uid, is_err, line); };
  std::array<char, 65536> buffer;  // NOLINT: filled by read
  while (fd.valid()) {
    const ssize_t size = read(fd.get(), buffer.data(), buffer.size());
    if (size > 0) {
      cutter.feed({buffer.data(), static_cast<std::size_t>(size)}, print);
      if (!to_the_end) return;  // so that the others get their turn
    } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    } else {
      poller_.remove(fd.get());
      fd.close();
    }
  }
  if (to_the_end || !fd.valid()) cutter.finish(print);
}

// Whether the worker has ended. Reads its last output first, because it says why.
bool Launcher::take_leave(Uid uid, WorkerProcess& worker) {
  if (worker.end) return true;
  worker.end = reap(worker.process);
  if (!worker.end) return false;
  if (worker.connection >= 0) server_.read(worker.connection);
  read_output(uid, false, true);
  read_output(uid, true, true);
  if (worker.connection >= 0) server_.drop(worker.connection);
  for (wire::Fd* fd : {&worker.process.ended, &worker.process.out, &worker.process.err}) {
    if (fd->valid()) poller_.remove(fd->get());
    fd->close();
  }
  return true;
}

void Launcher::collect(Uid uid) {
  WorkerProcess& worker = workers_.at(uid);
  if (!take_leave(uid, worker) || !nothing_is_left()) return;
  const ProcessEnd end = *worker.end;
  workers_.erase(uid);
  face_.log("exit", {{"worker", uid}, {"killed", end.killed}, {"code", end.code}});
  state_->exited(now(), uid, end);
  face_.processes_changed();
}

// Collects workers whose processes could not all be killed at once.
void Launcher::collect_ended() {
  std::set<int> own;
  std::vector<Uid> ended;
  for (const auto& [uid, worker] : workers_) {
    if (worker.end) {
      ended.push_back(uid);
    } else {
      own.insert(worker.process.pid);
    }
  }
  orphans_.collect(own);
  for (const Uid uid : ended) collect(uid);
}

bool Launcher::someone_lingers() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [](const auto& entry) { return entry.second.end.has_value(); });
}

// Whether nothing is left of workers that have ended. Kills what is left.
bool Launcher::nothing_is_left() const {
  std::set<int> own;
  std::set<std::string> marks;
  for (const auto& [uid, worker] : workers_) {
    if (worker.end) continue;
    own.insert(worker.process.pid);
    marks.insert(worker.mark);
  }
  return orphans_.end(own, [&](int pid) {
    if (own.contains(getpgid(pid))) return true;
    const auto environment = environment_of_process(pid);
    return environment &&
           std::any_of(environment->begin(), environment->end(),
                       [&](const std::string& line) { return marks.contains(line); });
  });
}

void Launcher::collect_all() {
  std::vector<Uid> all;
  for (const auto& [uid, worker] : workers_) all.push_back(uid);
  for (const Uid uid : all) {
    if (workers_.contains(uid)) collect(uid);
  }
}

std::vector<WorkerRecord> Launcher::workers() const {
  std::vector<WorkerRecord> all;
  all.reserve(workers_.size());
  for (const auto& [uid, worker] : workers_) {
    all.push_back({uid, worker.slot, {worker.process.pid, worker.start_time}});
  }
  return all;
}

}  // namespace rubato::launch

#include "rubato/launch/launcher.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/launch/processes.h"
#include "rubato/launch/restart_run.h"
#include "rubato/wire/signals.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kHurriedTick = 20ms;
constexpr Duration kLookAtSocketEvery = 1s;

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::unique_ptr<LaunchState> new_state(const LaunchPlan& plan) {
  if (plan.live) return std::make_unique<LiveRun>(plan.limits);
  return std::make_unique<RestartRun>(plan.limits);
}

}  // namespace

std::optional<double> number_in(const Json& content, const char* field) {
  if (!content.is_object()) return std::nullopt;
  const auto found = content.find(field);
  if (found == content.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string count_of(int number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// --- life ----------------------------------------------------------------------------------------

Launcher::Launcher(LaunchPlan plan, RunSocket socket, LauncherFace& face)
    : plan_(std::move(plan)),
      socket_(std::move(socket)),
      face_(face),
      may_nice_(may_undo_nice()),
      state_(new_state(plan_)) {
  if (plan_.token.empty()) plan_.token = random_token();
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
    // One that our parent had us ignore stays ignored: nohup does this.
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
  poller_.add(socket_.listener.get(), [this](wire::Poller::Ready) { accept_all(); });
  face_.log("run", {{"name", plan_.name},
                    {"mode", plan_.live ? "live" : "restart"},
                    {"command", plan_.command}});
  if (!plan_.slots.empty()) CHECK(state_->place(now(), plan_.slots).ok());
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

// A socket that somebody has deleted is made again. If that fails, it is tried again.
void Launcher::keep_listening() {
  if (now() < listen_due_) return;
  listen_due_ = now() + kLookAtSocketEvery;
  if (!wire::leads_elsewhere(socket_.path, socket_.inode)) return;
  auto again = claim_socket(socket_.path, "");
  if (!again) return;
  poller_.remove(socket_.listener.get());
  socket_ = std::move(*again);
  poller_.add(socket_.listener.get(), [this](wire::Poller::Ready) { accept_all(); });
}

void Launcher::serve(std::chrono::milliseconds longest) {
  const auto unread = [this] {
    return std::any_of(connections_.begin(), connections_.end(),
                       [](const auto& entry) { return entry.second.stream.unsent(); });
  };
  const auto until = std::chrono::steady_clock::now() + longest;
  do {
    poller_.wait(kHurriedTick);
  } while (unread() && std::chrono::steady_clock::now() < until);
}

// --- connections ---------------------------------------------------------------------------------

void Launcher::accept_all() {
  for (;;) {
    wire::Fd fd = wire::accept_from(socket_.listener);
    if (!fd.valid()) return;
    const int key = next_connection_++;
    const int number = fd.get();
    connections_[key].stream = wire::FrameStream(std::move(fd));
    poller_.add(number, [this, key](wire::Poller::Ready ready) {
      if (ready.out) {
        wire::FrameStream& stream = connections_.at(key).stream;
        stream.flush();
        poller_.want_out(stream.fd(), stream.unsent());
      }
      if (ready.in) read_connection(key);
      carry_out();
    });
  }
}

void Launcher::read_connection(int key) {
  const int number = connections_.at(key).stream.fd();
  const std::vector<Json> messages = connections_.at(key).stream.receive();
  const bool ended = !connections_.at(key).stream.open();
  if (ended) poller_.remove(number);
  for (const Json& message : messages) {
    if (!connections_.contains(key)) return;
    handle(key, message);
  }
  if (ended) drop_connection(key);
}

void Launcher::drop_connection(int key) {
  const auto found = connections_.find(key);
  if (found == connections_.end()) return;
  if (found->second.stream.open()) poller_.remove(found->second.stream.fd());
  const Uid uid = found->second.worker;
  const auto worker = workers_.find(uid);
  if (worker != workers_.end()) worker->second.connection = -1;
  connections_.erase(found);
  if (uid == 0) face_.hung_up(key);
}

void Launcher::hang_up(int connection) { drop_connection(connection); }

void Launcher::send(int connection, const Json& message) {
  const auto found = connections_.find(connection);
  if (found == connections_.end()) return;
  wire::FrameStream& stream = found->second.stream;
  stream.send(message);
  if (stream.open()) poller_.want_out(stream.fd(), stream.unsent());
}

bool Launcher::unsent(int connection) const {
  const auto found = connections_.find(connection);
  return found != connections_.end() && found->second.stream.unsent();
}

void Launcher::handle(int key, const Json& message) {
  const Uid uid = connections_.at(key).worker;
  if (uid == 0) {
    greet(key, message);
    return;
  }
  const auto parsed = wire::parse_from_worker(message);
  if (!parsed) {
    face_.say(fmt::format("worker {}: {}", uid, parsed.error().message));
    return;
  }
  state_->heard(now(), uid, *parsed);
  face_.heard(uid, *parsed);
}

// The first message of a connection: a worker's Hello, or somebody else's business.
void Launcher::greet(int key, const Json& message) {
  if (!message.is_object() || message.value("type", Json()) != "hello") {
    face_.asked(key, message);
    return;
  }
  const auto parsed = wire::parse_from_worker(message);
  const auto* hello = parsed ? std::get_if<wire::Hello>(&*parsed) : nullptr;
  const auto worker = hello != nullptr ? workers_.find(hello->uid) : workers_.end();
  if (worker == workers_.end() || hello->token != plan_.token ||
      !state_->said_hello(now(), *hello)) {
    drop_connection(key);
    return;
  }
  connections_.at(key).worker = hello->uid;
  worker->second.connection = key;
  face_.log("hello", {{"worker", hello->uid}, {"pid", hello->pid}});
}

// --- orders --------------------------------------------------------------------------------------

void Launcher::carry_out() {
  // Carrying out one order may lead to others: a program that cannot be started ends the run.
  for (auto orders = state_->take_orders(); !orders.empty(); orders = state_->take_orders()) {
    for (const Order& order : orders) {
      std::visit([this](const auto& one) { carry_out(one); }, order);
    }
  }
}

Environment Launcher::environment_of(const StartWorker& start, bool niced) const {
  Environment environment = plan_.environment;
  // Workers share the cores: threads that spin while they wait for each other take them all.
  set_default(environment, "OMP_NUM_THREADS", "1");
  set_default(environment, "OMP_WAIT_POLICY", "passive");
  if (plan_.live) {
    set(environment, "RUBATO_LAUNCHER", "unix:" + socket_.path);
    set(environment, "RUBATO_WORKER", fmt::format("{}", start.uid));
    set(environment, "RUBATO_TOKEN", plan_.token);
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
  set(environment, "TORCHELASTIC_MAX_RESTARTS", fmt::format("{}", plan_.limits.max_failures));
  set(environment, "TORCHELASTIC_RUN_ID", plan_.name);
  // Left over from a torchrun around us it would make rank 0 look for a store that is not there.
  set(environment, "TORCHELASTIC_USE_AGENT_STORE", "False");
  face_.complete(environment, start);
  return environment;
}

void Launcher::carry_out(const StartWorker& start) {
  if (!plan_.live && port_of_round_ != start.round) {
    const auto port = free_port();
    if (!port) {
      state_->could_not_start(now(), start.uid, port.error().message, true);
      return;
    }
    port_ = *port;
    port_of_round_ = start.round;
  }
  const bool niced = start.shaded && may_nice_;
  bool shortage = false;
  auto process = spawn(plan_.command, environment_of(start, niced),
                       {niced, plan_.directory, plan_.close_others}, &shortage);
  if (!process) {
    state_->could_not_start(now(), start.uid, process.error().message, shortage);
    return;
  }
  WorkerProcess& worker = workers_[start.uid];
  worker.process = std::move(*process);
  worker.slot = start.slot;
  worker.mark =
      plan_.live ? fmt::format("RUBATO_WORKER={}", start.uid) : fmt::format("RANK={}", start.rank);
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
  if (const auto* plan = std::get_if<wire::Plan>(&send.message)) {
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
      if (!to_the_end) return;  // the others' turn
    } else if (size < 0 && (errno == EAGAIN || errno == EINTR)) {
      break;
    } else {
      poller_.remove(fd.get());
      fd.close();
    }
  }
  if (to_the_end || !fd.valid()) cutter.finish(print);
}

// Whether it has ended. Its last words first: they say why.
bool Launcher::take_leave(Uid uid, WorkerProcess& worker) {
  if (worker.end) return true;
  worker.end = reap(worker.process);
  if (!worker.end) return false;
  if (worker.connection >= 0) read_connection(worker.connection);
  read_output(uid, false, true);
  read_output(uid, true, true);
  if (worker.connection >= 0) drop_connection(worker.connection);
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

// Those whose processes could not be killed at once.
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

// Of workers that have ended; kills what is.
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

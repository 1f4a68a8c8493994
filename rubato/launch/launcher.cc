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
#include "rubato/launch/local_host.h"
#include "rubato/launch/remote_shells.h"
#include "rubato/launch/restart_run.h"
#include "rubato/launch/share_files.h"
#include "rubato/wire/random_hex.h"
#include "rubato/wire/signals.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kQuietTick = 500ms;
constexpr auto kHurriedTick = 20ms;
constexpr Duration kLookAtSocketEvery = 1s;

constexpr std::size_t kTokenBytes = 16;
constexpr std::size_t kSecretBytes = 32;
constexpr std::size_t kRunBytes = 8;
constexpr std::size_t kLongestName = 40;  // in the name of a job (wire/job_key.h)

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
      state_(new_state(spec_)),
      server_(poller_, {.message = [this](int key, const Json& message) { handle(key, message); },
                        .dropped = [this](int key) { dropped(key); },
                        .handled = [this] { carry_out(); }}) {
  if (spec_.token.empty()) spec_.token = wire::random_hex(kTokenBytes);
  if (spec_.hosts.hosts.empty() && !spec_.shares) {
    host_ = std::make_unique<LocalHost>(poller_, host_events(), spec_.warm);
  } else {
    open_shares();
  }
}

WorkerHost::Events Launcher::host_events() {
  WorkerHost::Events events;
  events.started = [this](Uid uid, const ProcessName& process) { started(uid, process); };
  events.could_not_start = [this](Uid uid, const std::string& why, bool shortage) {
    workers_.erase(uid);
    state_->could_not_start(now(), uid, why, shortage);
  };
  events.output = [this](Uid uid, bool is_err, std::string_view line) {
    face_.output(uid, is_err, line);
  };
  events.ending = [this](Uid uid) { ending(uid); };
  events.ended = [this](Uid uid, ProcessEnd end) { ended(uid, end); };
  events.handled = [this] { carry_out(); };
  return events;
}

void Launcher::open_shares() {
  live_ = dynamic_cast<LiveRun*>(state_.get());
  Shares::Hooks hooks;
  hooks.greeted = [this](const wire::Hello& hello) { return greeted(hello); };
  hooks.heard = [this](Uid uid, const wire::FromWorker& message) { heard(uid, message); };
  hooks.blameless = [this](Uid uid) { state_->blameless(uid); };
  hooks.say = [this](const std::string& text) {
    face_.log("say", {{"text", text}});
    face_.say(text);
  };
  if (spec_.shares) {
    open_managed(hooks.say, hooks);
  } else {
    open_hosts(hooks.say, hooks);
  }
}

void Launcher::open_hosts(const std::function<void(const std::string&)>& say, Shares::Hooks hooks) {
  SharesSpec spec;
  // Another run of the same name is another job, for its keys and its checkpoints.
  spec.job = fmt::format("{}-{}", spec_.name.substr(0, kLongestName), wire::random_hex(kRunBytes));
  spec.secret = wire::random_hex(kSecretBytes);
  spec.address = spec_.hosts.address;
  std::vector<ShareSpot> spots;
  for (const HostPlace& host : spec_.hosts.hosts) {
    spots.push_back({host.name, host.name, host.workers, {}});
  }
  auto shares = std::make_unique<Shares>(
      poller_, std::move(spec), std::make_shared<RosterInMemory>(),
      std::make_unique<RemoteShells>(poller_, spec_.hosts, say), host_events(), std::move(hooks));
  shares->set_shares(spots, {});
  shares_ = shares.get();
  host_ = std::move(shares);
}

void Launcher::open_managed(const std::function<void(const std::string&)>& say,
                            Shares::Hooks hooks) {
  SharesSpec spec;
  spec.job = spec_.shares->job;
  spec.start = spec_.shares->start;
  spec.secret = spec_.shares->roster->secret();
  spec.address = spec_.shares->launch.address;
  spec.secrets = spec_.shares->secrets;
  auto shares =
      std::make_unique<Shares>(poller_, std::move(spec), spec_.shares->roster,
                               std::make_unique<ShareFiles>(spec_.shares->launch.directory, say),
                               host_events(), std::move(hooks));
  shares_ = shares.get();
  host_ = std::move(shares);
  const auto adopted = adopted_run();
  if (adopted && adopted->place) {
    place_ = adopted->place;
    stopped_ = adopted->stopped;
    spec_.slots = place_->slots;
    set_shares(place_->shares, place_->ended_shares);
  } else {
    set_shares(spec_.shares->launch.placed, {});
  }
}

void Launcher::set_shares(const std::vector<PlacedShare>& placed,
                          const std::vector<ShareName>& ended) {
  std::vector<ShareSpot> spots;
  spots.reserve(placed.size());
  for (const PlacedShare& share : placed) {
    spots.push_back({share.name, share.node, static_cast<int>(share.slots.size()), share.slots});
  }
  shares_->set_shares(spots, ended);
}

Launcher::~Launcher() {
  host_.reset();  // it may still have something to say
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
  begin();
  carry_out();
  if (shares_ != nullptr) shares_->open();
  while (!state_->outcome() && !replaced()) {
    poller_.wait(tick());
    keep_listening();
    host_->turn();
    if (shares_ != nullptr) keep_shares();
    state_->pass(now());
    carry_out();
    face_.turn();
  }
  return state_->outcome().value_or(Outcome());
}

// What happens wakes the launcher at once. The rest is time limits, and most of the time none runs.
std::chrono::milliseconds Launcher::tick() const {
  if (face_.hurries() || host_->hurries()) return kHurriedTick;
  return face_.quiet() && host_->quiet() && state_->quiet() ? kQuietTick : kTick;
}

void Launcher::begin() {
  if (!spec_.slots.empty()) CHECK(state_->place(now(), spec_.slots).ok());
  if (shares_ != nullptr && shares_->adopted()) return adopt();
  state_->begin(now());
}

// An earlier launcher has died. Its workers go on.
void Launcher::adopt() {
  const Roster& roster = shares_->roster();
  AdoptedRun run;
  run.planned = roster.plan.workers;
  run.next_uid = roster.next_uid;
  run.founded = roster.founder != 0;
  run.ending = roster.ending;
  run.spoke = roster.run.spoke;
  run.counts.failures = roster.run.failures;
  run.counts.resizes = roster.run.resizes;
  run.counts.fresh_starts = roster.run.fresh_starts;
  for (const Uid uid : roster.not_gone()) {
    StartWorker start;
    start.uid = uid;
    start.slot = roster.workers.at(uid).slot;
    start.round = 1;
    run.workers[uid] = start.slot;
    workers_[uid].start = start;
    shares_->adopt(worker_start(start));
  }
  face_.log("adopt", {{"epoch", roster.epoch}, {"workers", roster.not_gone()}});
  state_->adopt(now(), run);
  if (stopped_) state_->stop_managed(now(), "stopped by its manager");
}

std::optional<RosterRun> Launcher::adopted_run() const {
  if (shares_ == nullptr || !shares_->adopted()) return std::nullopt;
  return shares_->roster().run;
}

RosterRun Launcher::roster_run() const {
  RosterRun run;
  run.start = spec_.shares ? spec_.shares->start : 0;
  run.place = place_;
  run.stopped = stopped_;
  run.failures = state_->counts().failures;
  run.resizes = state_->counts().resizes;
  run.fresh_starts = state_->counts().fresh_starts;
  run.spoke = state_->spoke();
  return run;
}

Result<void> Launcher::place(const Place& place) {
  if (spec_.shares) {
    place_ = place;
    if (!shares_->note(roster_run())) return Error{"it could not be stored"};
    set_shares(place.shares, place.ended_shares);
  }
  return state_->place(now(), place.slots);
}

void Launcher::stop_managed(Generation generation, const std::string& why) {
  stopped_ = generation;
  if (spec_.shares) (void)shares_->note(roster_run());
  state_->stop_managed(now(), why);
}

std::vector<ShareView> Launcher::shares() const {
  return spec_.shares ? shares_->views() : std::vector<ShareView>();
}

void Launcher::keep_shares() {
  // Silence of a host is not the silence of its workers.
  for (const Uid uid : shares_->excused()) state_->excuse(now(), uid);
  for (const Uid uid : shares_->misplaced()) state_->replace(now(), uid);
  if (shares_->lost() && live_ != nullptr) live_->give_up(now());
  shares_->set_ending(state_->ending());
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
  heard(uid, *parsed);
}

void Launcher::heard(Uid uid, const wire::FromWorker& message) {
  state_->heard(now(), uid, message);
  face_.heard(uid, message);
}

// The first message of a connection: the Hello of a worker, or a request of somebody else.
void Launcher::greet(int key, const Json& message) {
  if (look_for_text(message, "type") != "hello") {
    face_.asked(key, message);
    return;
  }
  const auto parsed = wire::parse_from_worker(message);
  const auto* hello = parsed ? std::get_if<wire::Hello>(&*parsed) : nullptr;
  if (hello == nullptr || shares_ != nullptr || hello->token != spec_.token || !greeted(*hello)) {
    server_.drop(key);
    return;
  }
  speakers_[key] = hello->uid;
  workers_.at(hello->uid).connection = key;
}

bool Launcher::greeted(const wire::Hello& hello) {
  if (!workers_.contains(hello.uid) || !state_->said_hello(now(), hello)) return false;
  face_.log("hello", {{"worker", hello.uid}, {"pid", hello.pid}});
  return true;
}

// --- orders --------------------------------------------------------------------------------------

void Launcher::carry_out() {
  // Carrying out one order may create others. For example, a program that cannot be started ends
  // the run.
  for (auto orders = state_->take_orders(); !orders.empty(); orders = state_->take_orders()) {
    // That the round ends is known before its workers are killed for it.
    if (live_ != nullptr && live_->starting_over()) shares_->give_up();
    for (const Order& order : orders) {
      std::visit([this](const auto& one) { carry_out(one); }, order);
    }
  }
  if (shares_ == nullptr) return;
  shares_->set_run(roster_run());
  if (live_ != nullptr) shares_->plan(live_->plan().workers);
  shares_->act();
}

Environment Launcher::environment_of(const StartWorker& start) const {
  Environment environment = spec_.environment;
  // Workers share the cores. Threads that spin while they wait for each other would use all of
  // them.
  set_default(environment, "OMP_NUM_THREADS", "1");
  set_default(environment, "OMP_WAIT_POLICY", "passive");
  if (spec_.live) {
    // A share sets where the master listens, and where the key is.
    if (shares_ == nullptr) set(environment, "RUBATO_LAUNCHER", "unix:" + socket_.path);
    set(environment, "RUBATO_WORKER", fmt::format("{}", start.uid));
    if (shares_ == nullptr) set(environment, "RUBATO_TOKEN", spec_.token);
    face_.complete(environment, start);
    return environment;
  }
  const LaunchCounts& counts = state_->counts();
  set(environment, "RANK", fmt::format("{}", start.rank));
  set(environment, "WORLD_SIZE", fmt::format("{}", start.world));
  if (shares_ == nullptr) {  // else shares.cc sets them
    set(environment, "LOCAL_RANK", fmt::format("{}", start.rank));
    set(environment, "LOCAL_WORLD_SIZE", fmt::format("{}", start.world));
    set(environment, "GROUP_RANK", "0");
    set(environment, "GROUP_WORLD_SIZE", "1");
    set(environment, "MASTER_ADDR", "127.0.0.1");
    set(environment, "MASTER_PORT", fmt::format("{}", port_));
  }
  set(environment, "TORCHELASTIC_RESTART_COUNT", fmt::format("{}", counts.failures));
  set(environment, "TORCHELASTIC_MAX_RESTARTS", fmt::format("{}", spec_.limits.max_failures));
  set(environment, "TORCHELASTIC_RUN_ID", spec_.name);
  // If we run under torchrun, this variable would make rank 0 look for a store that does not exist.
  set(environment, "TORCHELASTIC_USE_AGENT_STORE", "False");
  // Debian 13 builds torch without libuv, which torch would use by default to let ranks meet.
  set_default(environment, "USE_LIBUV", "0");
  face_.complete(environment, start);
  return environment;
}

void Launcher::carry_out(const StartWorker& start) {
  if (!spec_.live && shares_ == nullptr && port_of_round_ != start.round) {
    const auto port = free_port();
    if (!port) {
      state_->could_not_start(now(), start.uid, port.error().message, true);
      return;
    }
    port_ = *port;
    port_of_round_ = start.round;
  }
  workers_[start.uid].start = start;
  host_->start(worker_start(start));
}

WorkerStart Launcher::worker_start(const StartWorker& start) const {
  WorkerStart what;
  what.uid = start.uid;
  what.round = start.round;
  what.command = spec_.command;
  what.environment = environment_of(start);
  what.directory = spec_.directory;
  what.low_priority = start.low_priority;
  what.close_others = spec_.close_others;
  what.mark =
      spec_.live ? fmt::format("RUBATO_WORKER={}", start.uid) : fmt::format("RANK={}", start.rank);
  what.slot = start.slot;
  what.rank = start.rank;
  what.world = spec_.live ? 0 : start.world;
  what.inherits = spec_.shares.has_value();
  return what;
}

void Launcher::started(Uid uid, const ProcessName& process) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  found->second.process = process;
  const StartWorker& start = found->second.start;
  Json fields = {{"worker", uid}, {"pid", process.pid}};
  if (start.world > 0) {
    fields["rank"] = start.rank;
    fields["world"] = start.world;
  }
  if (!start.slot.empty()) fields["slot"] = start.slot;
  if (shares_ != nullptr) fields["host"] = host_of(uid);
  face_.log("start", fields);
  face_.processes_changed();
}

void Launcher::carry_out(const SignalWorker& signal) {
  if (!workers_.contains(signal.uid)) return;
  face_.log("signal", {{"worker", signal.uid}, {"signal", signal.signal}});
  host_->signal(signal.uid, signal.signal);
}

void Launcher::carry_out(const SendToWorker& send) {
  if (const auto* plan = std::get_if<wire::MembershipPlan>(&send.message)) {
    face_.log("plan", {{"worker", send.uid}, {"plan", *plan}});
  }
  if (shares_ != nullptr) return shares_->send(send.uid, send.message);
  const auto found = workers_.find(send.uid);
  if (found == workers_.end() || found->second.connection < 0) return;
  this->send(found->second.connection, wire::to_json(send.message));
}

void Launcher::carry_out(const Tell& tell) {
  face_.log("say", {{"text", tell.text}});
  face_.say(tell.text);
}

// --- processes -----------------------------------------------------------------------------------

// Its last messages say why.
void Launcher::ending(Uid uid) {
  const int connection = workers_.at(uid).connection;
  if (connection < 0) return;
  server_.read(connection);
  server_.drop(connection);
}

void Launcher::ended(Uid uid, ProcessEnd end) {
  if (workers_.erase(uid) == 0) return;
  face_.log("exit", {{"worker", uid}, {"killed", end.killed}, {"code", end.code}});
  state_->exited(now(), uid, end);
  face_.processes_changed();
}

void Launcher::collect_all() { host_->collect_all(); }

std::vector<WorkerRecord> Launcher::workers() const {
  std::vector<WorkerRecord> all;
  all.reserve(workers_.size());
  for (const auto& [uid, worker] : workers_) {
    all.push_back({uid, worker.start.slot, worker.process});
  }
  return all;
}

}  // namespace rubato::launch

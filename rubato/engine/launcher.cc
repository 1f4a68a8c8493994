#include "rubato/engine/launcher.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/engine/restart_run.h"

namespace rubato {
namespace {

using namespace std::chrono_literals;

constexpr auto kTick = 100ms;
constexpr auto kTickWhileUnwritten = 20ms;
constexpr auto kLastWords = 3s;
constexpr Duration kStatusEvery = 500ms;
constexpr Duration kLineEvery = 5s;

std::string random_token() {
  std::array<unsigned char, 16> bytes{};
  CHECK(getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string text;
  for (const unsigned char byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

std::unique_ptr<LaunchState> new_state(const LauncherOptions& options) {
  if (options.live) return std::make_unique<LiveRun>(options.limits);
  return std::make_unique<RestartRun>(options.limits);
}

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::optional<double> number_in(const Json& content, const char* field) {
  const auto found = content.find(field);
  if (found == content.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

std::string count_of(int number, const char* noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

// Any JSON text, also where a worker's message is not UTF-8.
std::string line_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

// --- life ----------------------------------------------------------------------------------------

Result<std::unique_ptr<Launcher>> Launcher::open(LauncherOptions options) {
  std::FILE* log = nullptr;
  if (!options.log.empty()) {
    log = std::fopen(options.log.c_str(), "ae");
    if (log == nullptr) {
      return Error{fmt::format("--log {}: {}", options.log, std::strerror(errno))};
    }
  }
  auto socket = claim_run(options.directory, options.name);
  if (!socket) {
    if (log != nullptr) std::fclose(log);
    return socket.error();
  }
  return std::unique_ptr<Launcher>(new Launcher(std::move(options), std::move(*socket), log));
}

Launcher::Launcher(LauncherOptions options, RunSocket socket, std::FILE* log)
    : options_(std::move(options)),
      socket_(std::move(socket)),
      log_(log),
      token_(random_token()),
      may_nice_(may_undo_nice()),
      state_(new_state(options_)),
      console_(options_.json ? STDERR_FILENO : STDOUT_FILENO, STDERR_FILENO,
               isatty(STDERR_FILENO) != 0 && !options_.quiet) {}

Launcher::~Launcher() {
  unlink(socket_.path.c_str());
  if (log_ != nullptr) std::fclose(log_);
}

Time Launcher::now() const {
  return kStart + std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began_);
}

void Launcher::watch_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    // One that our parent had us ignore stays ignored: nohup does this.
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (signal != SIGHUP || action.sa_handler != SIG_IGN) sigaddset(&set, signal);
  }
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signals_ = wire::Fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
  CHECK(signals_.valid());
  poller_.add(signals_.get(), [this](wire::Poller::Ready) {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      state_->stop(now(), static_cast<int>(info.ssi_signo));
    }
  });
}

int Launcher::run() {
  watch_signals();
  poller_.add(socket_.listener.get(), [this](wire::Poller::Ready) { accept_all(); });
  log("run", {{"name", options_.name},
              {"mode", options_.live ? "live" : "restart"},
              {"command", options_.command}});
  say(fmt::format("{}: {} of {}:{}", options_.name, count_of(options_.limits.start, "worker"),
                  options_.limits.least, options_.limits.most));
  state_->begin(now());
  carry_out();
  while (!state_->outcome()) {
    const auto timeout = console_.unwritten() ? kTickWhileUnwritten : kTick;
    poller_.wait(std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    state_->pass(now());
    carry_out();
    show_progress();
    console_.flush();
  }
  print_summary();
  console_.finish(kLastWords);
  return state_->outcome()->code;
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
  const auto worker = workers_.find(found->second.worker);
  if (worker != workers_.end()) worker->second.connection = -1;
  connections_.erase(found);
}

void Launcher::handle(int key, const Json& message) {
  const Uid uid = connections_.at(key).worker;
  if (uid == 0) {
    greet(key, message);
    return;
  }
  const auto parsed = wire::parse_from_worker(message);
  if (!parsed) {
    say(fmt::format("worker {}: {}", uid, parsed.error().message));
  } else {
    handle_worker(uid, *parsed);
  }
}

// The first message of a connection: a worker's Hello, or a request of a person.
void Launcher::greet(int key, const Json& message) {
  if (message.value("type", Json()) != "hello") {
    const Json reply = answer(message);
    wire::FrameStream& stream = connections_.at(key).stream;
    stream.send(reply);
    if (stream.open()) poller_.want_out(stream.fd(), stream.unsent());
    return;
  }
  const auto parsed = wire::parse_from_worker(message);
  const auto* hello = parsed ? std::get_if<wire::Hello>(&*parsed) : nullptr;
  const auto worker = hello != nullptr ? workers_.find(hello->uid) : workers_.end();
  if (worker == workers_.end() || hello->token != token_ || !state_->said_hello(now(), *hello)) {
    drop_connection(key);
    return;
  }
  connections_.at(key).worker = hello->uid;
  worker->second.connection = key;
  log("hello", {{"worker", hello->uid}, {"pid", hello->pid}});
}

void Launcher::handle_worker(Uid uid, const wire::FromWorker& message) {
  state_->heard(now(), uid, message);
  if (const auto* beat = std::get_if<wire::Beat>(&message)) {
    progress_.step = std::max(progress_.step, beat->step);
  } else if (const auto* report = std::get_if<wire::Report>(&message)) {
    if (report->content.is_object()) handle_report(uid, report->content);
  } else if (const auto* notice = std::get_if<wire::Notice>(&message)) {
    log("notice", {{"worker", uid}, {"kind", notice->kind}, {"content", notice->content}});
    show_notice(uid, *notice);
  }
}

// A leader that follows one that died tells again what it cannot know to have been told.
void Launcher::handle_report(Uid uid, const Json& content) {
  if (const auto step = number_in(content, "step")) {
    const int fresh_starts = state_->counts().fresh_starts;
    if (progress_.fresh_starts == fresh_starts && *step <= progress_.reported) return;
    progress_.fresh_starts = fresh_starts;
    progress_.reported = *step;
    progress_.step = static_cast<std::int64_t>(*step);
  }
  progress_.report = content;
  progress_.shown = false;
  log("report", {{"worker", uid}, {"content", content}});
}

// --- requests ------------------------------------------------------------------------------------

Json Launcher::answer(const Json& request) {
  // A process that has ended counts as ended, even if its news is still waiting behind this one.
  collect_all();
  const Json type = request.value("type", Json());
  const auto result = type == "info"     ? Result<Json>(info())
                      : type == "resize" ? resize(request)
                      : type == "kill"   ? kill_one(request)
                                         : Result<Json>(Error{"unknown request; the launcher and "
                                                              "this command must be of one version"});
  return result ? *result : Json{{"error", result.error().message}};
}

Result<Json> Launcher::resize(const Json& request) {
  const Json to = request.value("to", Json());
  const std::string text = to.is_string() ? to.get<std::string>() : "";
  const bool relative = text.starts_with('+') || text.starts_with('-');
  const auto number = parse_integer(text.starts_with('+') ? text.substr(1) : text);
  constexpr long long kMost = 1'000'000;
  if (!number || *number > kMost || *number < -kMost) {
    return Error{
        fmt::format("{} is not a number of workers; write 4, +1 or -1", rubato::quoted(text))};
  }
  const int before = state_->wanted();
  const int workers = static_cast<int>(*number) + (relative ? before : 0);
  if (auto done = state_->resize(now(), workers); !done) return done.error();
  log("resize", {{"from", before}, {"to", workers}});
  if (workers != before) say(fmt::format("from {} to {}", before, count_of(workers, "worker")));
  return Json{{"name", options_.name}, {"from", before}, {"to", workers}};
}

Result<Json> Launcher::kill_one(const Json& request) {
  const Json worker = request.value("worker", Json());
  const auto uid = worker.is_number_integer() ? std::optional(worker.get<Uid>()) : std::nullopt;
  const auto killed = state_->kill(uid);
  if (!killed) return killed.error();
  log("kill", {{"worker", *killed}});
  return Json{{"name", options_.name}, {"worker", *killed}};
}

Json Launcher::info() const {
  const LaunchCounts& counts = state_->counts();
  Json content = {{"name", options_.name},
                  {"pid", getpid()},
                  {"mode", options_.live ? "live" : "restart"},
                  {"command", options_.command},
                  {"workers", state_->living()},
                  {"wanted", state_->wanted()},
                  {"least", options_.limits.least},
                  {"most", options_.limits.most},
                  {"failures", counts.failures},
                  {"resizes", counts.resizes},
                  {"seconds", seconds(now())}};
  if (options_.live) {
    content["step"] = progress_.step;
    content["report"] = progress_.report;
  }
  return content;
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

Environment Launcher::environment_of(const StartWorker& start, bool niced) {
  Environment environment = options_.environment;
  // Workers share the cores: threads that spin while they wait for each other take them all.
  set_default(environment, "OMP_NUM_THREADS", "1");
  set_default(environment, "OMP_WAIT_POLICY", "passive");
  if (options_.live) {
    set(environment, "RUBATO_LAUNCHER", "unix:" + socket_.path);
    set(environment, "RUBATO_WORKER", fmt::format("{}", start.uid));
    set(environment, "RUBATO_TOKEN", token_);
    if (niced) set(environment, "RUBATO_NICED", "1");
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
  set(environment, "TORCHELASTIC_MAX_RESTARTS", fmt::format("{}", options_.limits.max_failures));
  set(environment, "TORCHELASTIC_RUN_ID", options_.name);
  // Left over from a torchrun around us it would make rank 0 look for a store that is not there.
  set(environment, "TORCHELASTIC_USE_AGENT_STORE", "False");
  return environment;
}

void Launcher::carry_out(const StartWorker& start) {
  if (!options_.live && port_of_round_ != start.round) {
    const auto port = free_port();
    if (!port) {
      state_->could_not_start(now(), start.uid, port.error().message);
      return;
    }
    port_ = *port;
    port_of_round_ = start.round;
  }
  // Whoever joins a running job prepares itself in the others' shade.
  const bool niced = options_.live && !start.founder && may_nice_;
  auto process = spawn(options_.command, environment_of(start, niced), niced);
  if (!process) {
    state_->could_not_start(now(), start.uid, process.error().message);
    return;
  }
  WorkerProcess& worker = workers_[start.uid];
  worker.process = std::move(*process);
  Json fields = {{"worker", start.uid}, {"pid", worker.process.pid}};
  if (start.world > 0) {
    fields["rank"] = start.rank;
    fields["world"] = start.world;
  } else {
    fields["founder"] = start.founder;
  }
  log("start", fields);
  const Uid uid = start.uid;
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
  if (found == workers_.end()) return;
  log("signal", {{"worker", signal.uid}, {"signal", signal.signal}});
  send_signal(found->second.process, signal.signal);
}

void Launcher::carry_out(const SendToWorker& send) {
  if (const auto* plan = std::get_if<wire::Plan>(&send.message)) {
    log("plan", {{"worker", send.uid}, {"plan", *plan}});
  }
  const auto found = workers_.find(send.uid);
  if (found == workers_.end() || found->second.connection < 0) return;
  wire::FrameStream& stream = connections_.at(found->second.connection).stream;
  stream.send(wire::to_json(send.message));
  if (stream.open()) poller_.want_out(stream.fd(), stream.unsent());
}

void Launcher::carry_out(const Tell& tell) {
  log("say", {{"text", tell.text}});
  say(tell.text);
}

// --- processes -----------------------------------------------------------------------------------

void Launcher::read_output(Uid uid, bool is_err, bool to_the_end) {
  WorkerProcess& worker = workers_.at(uid);
  wire::Fd& fd = is_err ? worker.process.err : worker.process.out;
  LineCutter& cutter = is_err ? worker.err : worker.out;
  const auto print = [&](std::string_view line) {
    const std::string text = fmt::format("[{}] {}", uid, line);
    is_err ? console_.err(text) : console_.out(text);
  };
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

// Its last words first: they say why it ended.
void Launcher::collect(Uid uid) {
  WorkerProcess& worker = workers_.at(uid);
  const auto end = reap(worker.process);
  if (!end) return;
  if (worker.connection >= 0) read_connection(worker.connection);
  read_output(uid, false, true);
  read_output(uid, true, true);
  if (worker.connection >= 0) drop_connection(worker.connection);
  for (const wire::Fd* fd : {&worker.process.ended, &worker.process.out, &worker.process.err}) {
    if (fd->valid()) poller_.remove(fd->get());
  }
  workers_.erase(uid);
  log("exit", {{"worker", uid}, {"killed", end->killed}, {"code", end->code}});
  state_->exited(now(), uid, *end);
}

void Launcher::collect_all() {
  std::vector<Uid> all;
  for (const auto& [uid, worker] : workers_) all.push_back(uid);
  for (const Uid uid : all) collect(uid);
}

// --- for people ----------------------------------------------------------------------------------

void Launcher::say(const std::string& text) {
  if (!options_.quiet) console_.err("rubato: " + text);
}

namespace {

// "members 1 3, 4 joining, from step 84".
std::string members_line(const Json& content) {
  std::string line;
  try {
    for (const Json& member : content.at("members")) {
      const auto role = member.at("role").get<std::string>();
      line += fmt::format("{}{}{}", line.empty() ? "members " : ", ", member.at("uid").get<Uid>(),
                          role == "working" ? "" : " " + role);
    }
    return line + fmt::format("; from step {}", content.at("first").get<std::int64_t>());
  } catch (const Json::exception&) {
    return "members have changed";  // of another version
  }
}

}  // namespace

void Launcher::show_notice(Uid uid, const wire::Notice& notice) {
  const Json& content = notice.content;
  if (notice.kind == "state") return;  // for the log only
  if (notice.kind == "members") return say(members_line(content));
  const auto text = content.is_object() ? content.find("text") : content.end();
  if (text != content.end() && text->is_string()) {
    say(fmt::format("worker {}: {}: {}", uid, notice.kind, text->get<std::string>()));
  } else if (content.is_object() && !content.empty()) {
    std::string fields;
    for (const auto& [name, value] : content.items()) {
      fields += fmt::format("{}{} {}", fields.empty() ? "" : ", ", name, line_of(value));
    }
    say(fmt::format("worker {}: {}: {}", uid, notice.kind, fields));
  } else {
    say(fmt::format("worker {}: {}", uid, notice.kind));
  }
}

std::string Launcher::progress_text() const {
  const Json& report = progress_.report;
  std::string text = fmt::format("step {}", progress_.step);
  if (const auto epoch = number_in(report, "epoch")) text += fmt::format(", epoch {:g}", *epoch);
  if (const auto loss = number_in(report, "loss")) text += fmt::format(", loss {:.4g}", *loss);
  if (const auto workers = number_in(report, "workers")) {
    text += fmt::format(", {}", count_of(static_cast<int>(*workers), "worker"));
  }
  const auto batch = number_in(report, "batch");
  const auto duration = number_in(report, "step_seconds");
  if (batch && duration && *duration > 0) {
    text += fmt::format(", {:.0f} samples/s", *batch / *duration);
  }
  return text;
}

void Launcher::show_progress() {
  if (progress_.shown || options_.quiet || now() < progress_due_) return;
  progress_.shown = true;
  progress_due_ = now() + (console_.terminal() ? kStatusEvery : kLineEvery);
  console_.terminal() ? console_.status(progress_text()) : say(progress_text());
}

void Launcher::log(const std::string& event, const Json& fields) {
  if (log_ == nullptr) return;
  Json line = {{"time", wall_clock()}, {"event", event}};
  line.update(fields);
  // Whole lines, so that a reader may follow.
  fmt::print(log_, "{}\n", line_of(line));
  std::fflush(log_);
}

void Launcher::print_summary() {
  const Outcome& outcome = *state_->outcome();
  const LaunchCounts& counts = state_->counts();
  Json summary = {{"name", options_.name},
                  {"finished", outcome.code == 0},
                  {"code", outcome.code},
                  {"why", outcome.why},
                  {"seconds", seconds(now())},
                  {"failures", counts.failures},
                  {"resizes", counts.resizes},
                  {"starts", counts.starts},
                  {"fresh_starts", counts.fresh_starts}};
  if (options_.live) {
    summary["step"] = progress_.step;
    summary["report"] = progress_.report;
  }
  log("end", summary);
  console_.status("");
  const std::string how = outcome.code == 0 ? "finished" : fmt::format("ended: {}", outcome.why);
  const std::string step = options_.live ? fmt::format(" at step {}", progress_.step) : "";
  if (outcome.code != 0 || !options_.quiet) {
    console_.err(fmt::format("rubato: {} {}; {:.1f} s{}, {}, {}", options_.name, how,
                             seconds(now()), step, count_of(counts.resizes, "resize"),
                             count_of(counts.failures, "failure")));
  }
  if (options_.json) {
    fmt::print("{}\n", line_of(summary));
    std::fflush(stdout);
  }
}

}  // namespace rubato

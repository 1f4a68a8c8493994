#include "rubato/launch/share.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/text.h"
#include "rubato/launch/share_files.h"
#include "rubato/wire/random_hex.h"
#include "rubato/wire/signals.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kShareTick = 100ms;
constexpr auto kQuietShareTick = 500ms;
constexpr auto kHurriedShareTick = 20ms;
constexpr auto kRedial = 200ms;
// A master that was never reached is not there. One that was may come back.
constexpr auto kFirstMasterWithin = 30s;
constexpr auto kWithoutMaster = 300s;
constexpr auto kReadConfig = 1s;
constexpr auto kLastWords = 2s;
// Slurm kills a job 30 s after SIGTERM (KillWait), Kubernetes likewise.
constexpr auto kLeaveWithin = 20s;
constexpr std::size_t kInstanceBytes = 8;
constexpr std::size_t kMostOutput = std::size_t{1} << 20U;  // unsent bytes
constexpr std::size_t kMostKept = std::size_t{256} << 10U;  // of each worker

// They say what a host is. All others are those of the machine where the run was started.
constexpr std::string_view kOfThisHost[] = {"HOME",     "USER",   "LOGNAME",        "SHELL",
                                            "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR"};

// "tcp:192.0.2.1:7000": "192.0.2.1", and "tcp:[2001:db8::1]:7000": "2001:db8::1".
std::string host_in(const std::string& address) {
  const std::string host = address.substr(4, address.rfind(':') - 4);
  return host.starts_with('[') ? host.substr(1, host.size() - 2) : host;
}

Result<void> write_private(const std::string& path, std::string_view content) {
  const wire::Fd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (file.valid() &&
      write(file.get(), content.data(), content.size()) == static_cast<ssize_t>(content.size())) {
    return {};
  }
  const Error error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
  if (file.valid()) unlink(path.c_str());
  return error;
}

std::optional<std::string> value_of(const Environment& environment, std::string_view name) {
  for (const std::string& line : environment) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with('=')) {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

Share::Share(ShareProcess process)
    : process_(std::move(process)),
      config_(process_.config),
      directory_(process_.directory),
      environment_(process_.environment),
      instance_(wire::random_hex(kInstanceBytes)),
      state_(config_.name) {
  WorkerHost::Events events;
  events.started = [this](Uid uid, const ProcessName& process) { say(ShareStarted{uid, process}); };
  events.could_not_start = [this](Uid uid, const std::string& why, bool shortage) {
    say(ShareTrouble{uid, why, shortage});
    ended(uid, {false, wire::kRefused});
  };
  events.output = [this](Uid uid, bool is_err, std::string_view line) {
    output(uid, is_err, line);
  };
  events.ending = [](Uid) {};
  events.ended = [this](Uid uid, ProcessEnd end) { ended(uid, end); };
  events.handled = [] {};
  host_ = std::make_unique<LocalHost>(poller_, std::move(events));
}

Share::~Share() {
  std::error_code ignored;
  std::filesystem::remove_all(directory_, ignored);
}

void Share::watch_signals() {
  std::signal(SIGPIPE, SIG_IGN);
  signals_ = wire::take_signals({SIGINT, SIGTERM, SIGHUP});
  poller_.add(signals_.get(), [this](wire::Poller::Ready) {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) {
      asked_to_end(static_cast<int>(info.ssi_signo));
    }
  });
}

// At the second signal nobody waits any more.
void Share::asked_to_end(int signal) {
  if (leaving_ || !master_.open() || host_->empty()) {
    ending_ = 128 + signal;
    return;
  }
  leaving_ = signal;
  leave_until_ = Clock::now() + kLeaveWithin;
  say_status();
}

int Share::run() {
  const auto began = Clock::now();
  watch_signals();
  bool killed = false;
  while (!ending_ || !host_->empty()) {
    poller_.wait(tick());
    host_->turn();
    keep_link(Clock::now());
    say_kept_output();
    if (leaving_ && !ending_ && (host_->empty() || Clock::now() > leave_until_))
      ending_ = 128 + *leaving_;
    if (ending_ && !std::exchange(killed, true)) host_->signal_all(SIGKILL);
  }
  // The master learns how they have ended. What is closed with unread bytes may lose its last
  // words.
  const auto until = Clock::now() + kLastWords;
  while (master_.open() && (master_.unsent() || !ends_.empty()) && Clock::now() < until) {
    poller_.wait(kHurriedShareTick);
  }
  // For the share's log: what the cluster manager accounts for.
  if (!process_.config_file.empty()) {
    fmt::print(stderr, "rubato share: ends after {:.3f} s\n",
               std::chrono::duration<double>(Clock::now() - began).count());
  }
  return *ending_;
}

// Only beats are due while the master is there.
std::chrono::milliseconds Share::tick() const {
  if (host_->hurries()) return kHurriedShareTick;
  return master_.open() && !leaving_ && !ending_ ? kQuietShareTick : kShareTick;
}

// --- the master ---

// A new master has written another address. What cannot be read now is read again.
void Share::read_config(Clock::time_point now) {
  if (process_.config_file.empty() || now < read_at_) return;
  read_at_ = now + kReadConfig;
  auto config = read_share_file(process_.config_file);
  if (config && *config && **config != config_) take_config(std::move(**config));
}

void Share::take_config(ShareConfig config) {
  if (config.ended) {
    ending_ = 0;
    return;
  }
  const bool first = config_.name.empty();
  config_ = std::move(config);
  if (first) state_ = ShareState(config_.name);
  // Workers read it when they have lost their master.
  const std::string path = directory_ + "/master";
  unlink((path + ".new").c_str());
  const auto written = write_private(path + ".new", config_.master);
  if (!written || rename((path + ".new").c_str(), path.c_str()) != 0)
    fmt::print(stderr, "rubato share: cannot write {}\n", path);
}

void Share::dial() {
  redial_at_ = Clock::now() + kRedial;
  read_config(Clock::now());
  if (config_.master.empty()) return;
  auto fd = wire::connect_to(config_.master);
  if (!fd) return;
  if (const auto here = wire::address_of(*fd)) own_address_ = host_in(*here);
  master_ = wire::FrameStream(
      wire::Link(std::move(*fd), wire::share_key(config_.identity, config_.secret)));
  ++connections_;
  poller_.add(master_.fd(), [this](wire::Poller::Ready ready) {
    if (ready.in) hear();
    if (!master_.open()) return;
    if (ready.out) master_.flush();
    poller_.want_out(master_.fd(), master_.wants_out());
  });
  say_status();
}

void Share::lost() {
  if (master_.open()) poller_.remove(master_.fd());
  master_ = {};
  redial_at_ = Clock::now() + kRedial;
}

void Share::keep_link(Clock::time_point now) {
  const bool patient = ever_heard_ || !process_.config_file.empty();
  const auto patience = patient ? Clock::duration(kWithoutMaster) : kFirstMasterWithin;
  if (!ending_ && now - heard_ > patience) {
    fmt::print(stderr, "rubato share: the master at {} did not answer for {} s\n",
               config_.master.empty() ? process_.config_file : config_.master,
               std::chrono::duration_cast<std::chrono::seconds>(patience).count());
    ending_ = 1;
  }
  if (master_.open() && now - heard_ > kShareSilence && now - redial_at_ > kShareSilence) lost();
  if (!master_.open() && now >= redial_at_) dial();
  if (!master_.open() || now < beat_at_) return;
  beat_at_ = now + kShareBeat;
  say(ShareBeat{});
}

void Share::hear() {
  const int fd = master_.fd();
  const std::vector<Json> messages = master_.receive();
  if (!master_.open()) poller_.remove(fd);
  for (const Json& json : messages) {
    heard_ = Clock::now();
    ever_heard_ = true;
    const auto message = parse_to_share(json);
    if (message) std::visit([this](const auto& one) { obey(one); }, *message);
  }
  if (!master_.open()) lost();
}

void Share::say(const FromShare& message) {
  if (!master_.open()) return;
  master_.send(to_json(message));
  poller_.want_out(master_.fd(), master_.wants_out());
}

void Share::say_status() {
  ShareStatus status{state_.hello(connections_), ends_, leaving_.has_value()};
  status.hello.native = process_.native;
  status.hello.instance = instance_;
  say(status);
}

// --- workers ---

void Share::obey(const ShareStart& message) {
  if (ending_ || leaving_ || !state_.start(message.order)) return;
  const auto key = key_file(message.key);
  if (!key) {
    say(ShareTrouble{message.order.uid, key.error().message, true});
    return ended(message.order.uid, {false, wire::kRefused});
  }
  WorkerStart start = message.start;
  start.environment = environment_for(message, *key);
  start.close_others = true;
  start.dies_with_us = true;
  start.mark = fmt::format("RUBATO_WORKER={}", start.uid);
  host_->start(start);
}

void Share::obey(const ShareSignal& message) {
  if (state_.kill(message.order)) host_->signal(message.order.uid, message.signal);
}

void Share::obey(const wire::EndsKept& kept) {
  state_.kept(kept);
  for (const Uid uid : kept.uids) ends_.erase(uid);
}

void Share::obey(const ShareEnd&) { ending_ = 0; }

void Share::obey(const ShareSecret& secret) {
  if (secrets_.contains(secret.name)) return;  // of an earlier connection
  // The name may have characters that the name of a file cannot have.
  const std::string path = fmt::format("{}/secret-{}", directory_, secrets_.size());
  const auto written = write_private(path, secret.content);
  if (written) {
    secrets_[secret.name] = path;
  } else {
    fmt::print(stderr, "rubato share: {}\n", written.error().message);
  }
}

void Share::obey(const ShareAskPort& ask) {
  const auto port = free_port();
  if (!port) fmt::print(stderr, "rubato share: {}\n", port.error().message);
  say(SharePort{ask.round, config_.address.empty() ? own_address_ : config_.address,
                port ? *port : 0});
}

void Share::ended(Uid uid, ProcessEnd end) {
  say_output(uid);  // the master wants nothing more of it when it knows of the end
  ends_[uid] = end;
  state_.ended(uid);
  say_status();
}

bool Share::has_room() const { return master_.open() && master_.unsent_bytes() <= kMostOutput; }

void Share::output(Uid uid, bool is_err, std::string_view line) {
  ShareOutput said{uid, is_err, std::string(line)};
  if (has_room()) {
    say_output(uid);
    return say(said);
  }
  const auto size_of = [](const ShareOutput& one) { return sizeof(one) + one.line.size(); };
  KeptOutput& kept = kept_output_[uid];
  kept.bytes += size_of(said);
  kept.lines.push_back(std::move(said));
  while (kept.bytes > kMostKept) {
    kept.bytes -= size_of(kept.lines.front());
    kept.lines.pop_front();
    ++kept.left_out;
  }
}

// What is kept of this worker, whether there is room or not.
void Share::say_output(Uid uid) {
  const auto found = kept_output_.find(uid);
  if (found == kept_output_.end()) return;
  const KeptOutput kept = std::move(found->second);
  kept_output_.erase(found);
  if (kept.left_out > 0) {
    say(ShareOutput{uid, true,
                    fmt::format("({} lines of output are left out here)", kept.left_out)});
  }
  for (const ShareOutput& line : kept.lines) say(line);
}

void Share::say_kept_output() {
  while (!kept_output_.empty() && has_room()) say_output(kept_output_.begin()->first);
}

Result<std::string> Share::key_file(const wire::JobKey& key) {
  const std::string path = fmt::format("{}/key-{}", directory_, key.round);
  if (access(path.c_str(), F_OK) == 0) return path;  // of an earlier worker of the round
  const auto written = write_private(path, wire::to_json(key).dump());
  if (!written) return written.error();
  return path;
}

Environment Share::environment_for(const ShareStart& message, const std::string& key) const {
  Environment environment = message.start.environment;
  if (message.start.inherits) {
    environment = environment_;
    std::erase_if(environment, [](const std::string& line) { return line.starts_with("RUBATO_"); });
    for (const std::string& line : message.start.environment) {
      set(environment, line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
    }
  } else {
    for (const std::string_view name : kOfThisHost) {
      std::erase_if(environment, [&](const std::string& line) {
        return line.starts_with(name) && line.substr(name.size()).starts_with('=');
      });
      if (const auto here = value_of(environment_, name))
        set(environment, std::string(name), *here);
    }
  }
  for (const auto& [name, path] : secrets_) set(environment, name, path);
  if (message.start.inherits) add_devices(environment, message.start.device);
  if (message.start.world != 0) return environment;
  const std::string launcher =
      process_.config_file.empty() ? config_.master : "file:" + directory_ + "/master";
  set(environment, "RUBATO_LAUNCHER", launcher);
  set(environment, "RUBATO_KEY", key);
  if (!config_.address.empty()) set(environment, "RUBATO_ADDRESS", config_.address);
  return environment;
}

// The manager says which GPUs the share has. A worker sees its own; programs that do not know
// Rubato choose one of them by LOCAL_RANK, as under torchrun.
void Share::add_devices(Environment& environment, int device) const {
  const auto given = value_of(environment_, "CUDA_VISIBLE_DEVICES");
  if (device == WorkerStart::kAllDevices || (given && given->empty())) return;
  if (!given) {
    if (device < gpus_of_this_machine())
      set(environment, "CUDA_VISIBLE_DEVICES", fmt::format("{}", device));
    return;
  }
  const std::vector<std::string_view> devices = split(*given, ',');
  const auto index = static_cast<std::size_t>(device);
  if (index < devices.size()) set(environment, "CUDA_VISIBLE_DEVICES", std::string(devices[index]));
}

}  // namespace rubato::launch

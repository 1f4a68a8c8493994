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

#include "rubato/wire/signals.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kShareTick = 100ms;
constexpr auto kHurriedShareTick = 20ms;
constexpr auto kRedial = 200ms;
// A master that was never reached is not there. One that was may come back.
constexpr auto kFirstMasterWithin = 30s;
constexpr auto kWithoutMaster = 300s;
constexpr std::size_t kMostOutput = std::size_t{1} << 20U;  // unsent bytes

// They say what a host is. All others are those of the machine where the run was started.
constexpr std::string_view kOfThisHost[] = {"HOME",     "USER",   "LOGNAME",        "SHELL",
                                            "HOSTNAME", "TMPDIR", "XDG_RUNTIME_DIR"};

std::optional<std::string> value_of(const Environment& environment, std::string_view name) {
  for (const std::string& line : environment) {
    if (line.starts_with(name) && line.substr(name.size()).starts_with('=')) {
      return line.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

}  // namespace

Share::Share(ShareConfig config, std::string directory, Environment environment)
    : config_(std::move(config)),
      directory_(std::move(directory)),
      environment_(std::move(environment)),
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
      ending_ = 128 + static_cast<int>(info.ssi_signo);
    }
  });
}

int Share::run() {
  watch_signals();
  bool killed = false;
  while (!ending_ || !host_->empty()) {
    poller_.wait(host_->hurries() ? kHurriedShareTick : kShareTick);
    host_->turn();
    keep_link(Clock::now());
    if (ending_ && !std::exchange(killed, true)) host_->signal_all(SIGKILL);
  }
  // The master learns from it that all have ended.
  const auto until = Clock::now() + 1s;
  while (master_.open() && master_.unsent() && Clock::now() < until)
    poller_.wait(kHurriedShareTick);
  return *ending_;
}

// --- the master ---

void Share::dial() {
  redial_at_ = Clock::now() + kRedial;
  auto fd = wire::connect_to(config_.master);
  if (!fd) return;
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
  const auto patience = ever_heard_ ? Clock::duration(kWithoutMaster) : kFirstMasterWithin;
  if (!ending_ && now - heard_ > patience) {
    fmt::print(stderr, "rubato share: the master at {} did not answer for {} s\n", config_.master,
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

void Share::say_status() { say(ShareStatus{state_.hello(connections_), ends_}); }

// --- workers ---

void Share::obey(const ShareStart& message) {
  if (ending_ || !state_.start(message.order)) return;
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

void Share::ended(Uid uid, ProcessEnd end) {
  ends_[uid] = end;
  state_.ended(uid);
  left_out_.erase(uid);
  say_status();
}

void Share::output(Uid uid, bool is_err, std::string_view line) {
  std::int64_t& left_out = left_out_[uid];
  if (!master_.open() || master_.unsent_bytes() > kMostOutput) {
    ++left_out;
    return;
  }
  if (left_out > 0) {
    say(ShareOutput{uid, true, fmt::format("({} lines of output are left out here)", left_out)});
    left_out = 0;
  }
  say(ShareOutput{uid, is_err, std::string(line)});
}

Result<std::string> Share::key_file(const wire::JobKey& key) {
  const std::string path = fmt::format("{}/key-{}", directory_, key.round);
  const wire::Fd file(
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR));
  if (!file.valid() && errno == EEXIST) return path;  // of an earlier worker of the round
  const std::string text = wire::to_json(key).dump();
  if (!file.valid() ||
      write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const Error error{fmt::format("cannot write {}: {}", path, std::strerror(errno))};
    unlink(path.c_str());
    return error;
  }
  return path;
}

Environment Share::environment_for(const ShareStart& message, const std::string& key) const {
  Environment environment = message.start.environment;
  for (const std::string_view name : kOfThisHost) {
    std::erase_if(environment, [&](const std::string& line) {
      return line.starts_with(name) && line.substr(name.size()).starts_with('=');
    });
    if (const auto here = value_of(environment_, name)) set(environment, std::string(name), *here);
  }
  set(environment, "RUBATO_LAUNCHER", config_.master);
  set(environment, "RUBATO_KEY", key);
  if (!config_.address.empty()) set(environment, "RUBATO_ADDRESS", config_.address);
  return environment;
}

}  // namespace rubato::launch

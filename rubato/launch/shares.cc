#include "rubato/launch/shares.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fmt/format.h>
#include <netdb.h>
#include <poll.h>
#include <set>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"
#include "rubato/wire/random_hex.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kSecretBytes = 32;
constexpr auto kSilentHost = 10s;  // without a connection
constexpr auto kEndWithin = 3s;
constexpr int kMostOnHost = 4096;
constexpr std::size_t kLongestHost = 64;

bool good_host(std::string_view name) {
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("._-@:[]%", c) != nullptr;
  };
  // Only an IPv6 address has colons, and it is in brackets.
  const bool plain = name.find(':') == std::string_view::npos;
  const bool brackets = name.find('[') != std::string_view::npos && name.ends_with(']');
  // A name that begins with a hyphen would be an option of the remote shell.
  return !name.empty() && name.size() <= kLongestHost && name.front() != '-' &&
         (plain || brackets) && std::all_of(name.begin(), name.end(), good);
}

// The address of this machine from which it would reach the host. Empty if that is not known.
std::string way_to(const std::string& host) {
  std::string name = host.substr(host.find('@') == std::string::npos ? 0 : host.find('@') + 1);
  if (name.starts_with('[') && name.ends_with(']')) name = name.substr(1, name.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(name.c_str(), "9", &hints, &found) != 0) return "";
  std::string address;
  for (const addrinfo* one = found; one != nullptr && address.empty(); one = one->ai_next) {
    // Nothing is sent: this only asks for the route.
    const wire::Fd fd(socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.valid() || connect(fd.get(), one->ai_addr, one->ai_addrlen) != 0) continue;
    const auto here = wire::address_of(fd);
    if (here) address = here->substr(4, here->rfind(':') - 4);
  }
  freeaddrinfo(found);
  return address;
}

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address == "[::1]";
}

std::string in_brackets(const std::string& address) {
  const bool bare = address.find(':') != std::string::npos && !address.starts_with('[');
  return bare ? "[" + address + "]" : address;
}

}  // namespace

Result<std::vector<HostPlace>> parse_hosts(std::string_view text) {
  std::vector<HostPlace> hosts;
  std::set<std::string> names;
  for (const std::string_view word : split(text, ',')) {
    HostPlace host{std::string(word), 1};
    const auto colon = word.rfind(':');
    const auto bracket = word.rfind(']');
    if (colon != std::string_view::npos && (bracket == std::string_view::npos || colon > bracket)) {
      const auto number = parse_integer(word.substr(colon + 1));
      if (!number || *number < 1 || *number > kMostOnHost) {
        return Error{fmt::format("--hosts {}: write HOST:WORKERS with 1 to {} workers",
                                 base::quoted(word), kMostOnHost)};
      }
      host = {std::string(word.substr(0, colon)), static_cast<int>(*number)};
    }
    if (!good_host(host.name)) {
      return Error{fmt::format("--hosts {}: {} is not the name of a host", base::quoted(text),
                               base::quoted(host.name))};
    }
    if (!names.insert(host.name).second) {
      return Error{fmt::format("--hosts {}: {} is named twice", base::quoted(text),
                               base::quoted(host.name))};
    }
    hosts.push_back(std::move(host));
  }
  return hosts;
}

Result<void> check_remote_program(const std::string& program) {
  const auto good = [](unsigned char c) {
    return std::isalnum(c) != 0 || std::strchr("._-+/=@%:,", c) != nullptr;
  };
  if (!program.empty() && program.front() != '-' &&
      std::all_of(program.begin(), program.end(), good)) {
    return {};
  }
  return Error{fmt::format(
      "--remote-program {}: a remote shell could change it; use letters, digits and ._-+/=@%:,",
      base::quoted(program))};
}

bool RosterInMemory::create(std::int64_t number, const Roster& roster) {
  if (number != newest_.number + 1) return false;
  newest_ = {number, roster};
  return true;
}

Shares::Shares(wire::Poller& poller, HostsSpec spec, std::string job, Events events, Hooks hooks)
    : poller_(poller),
      spec_(std::move(spec)),
      job_(std::move(job)),
      secret_(wire::random_hex(kSecretBytes)),
      events_(std::move(events)),
      hooks_(std::move(hooks)),
      core_(store_, store_.newest()),
      key_(wire::key_of_round(secret_, job_, 0, core_.roster().round)),
      server_(poller_, {.message = [this](int key, const Json& json) { message(key, json); },
                        .dropped = [this](int key) { dropped(key); },
                        .handled = [this] { events_.handled(); }}) {
  for (const HostPlace& place : spec_.hosts) {
    ShareOf& share = shares_[place.name];
    share.place = place;
    share.identity = wire::share_identity(job_, 0, place.name);
    share.secret = wire::secret_of_share(secret_, share.identity);
    order_.push_back(place.name);
  }
}

Shares::~Shares() {
  for (const auto& [name, share] : shares_) tell_share(share, ShareEnd{});
  const auto until = Clock::now() + kEndWithin;
  const auto running = [](const auto& entry) {
    return entry.second.shell.process.pid != 0 && !entry.second.shell.ended;
  };
  while (Clock::now() < until && std::any_of(shares_.begin(), shares_.end(), running)) {
    poller_.wait(20ms);
  }
  for (auto& [name, share] : shares_) {
    Process& process = share.shell.process;
    if (process.pid == 0 || share.shell.ended) continue;
    send_signal(process, SIGKILL);
    waitpid(process.pid, nullptr, 0);
    for (const wire::Fd* fd : {&process.ended, &process.out, &process.err}) {
      if (fd->valid()) poller_.remove(fd->get());
    }
  }
}

// --- starting the shares ---

Result<void> Shares::listen() {
  auto listener = wire::listen_on("tcp:[::]:0");
  if (!listener) listener = wire::listen_on("tcp:0.0.0.0:0");  // without IPv6
  if (!listener) return listener.error();
  const auto address = wire::address_of(*listener);
  if (!address) return address.error();
  port_ = address->substr(address->rfind(':') + 1);
  server_.listen(std::move(*listener),
                 [this](std::string_view identity) { return find_key(identity); });
  return {};
}

void Shares::open() {
  if (const auto listening = listen(); !listening) {
    for (const WorkerStart& start : std::exchange(pending_, {})) {
      events_.could_not_start(start.uid, listening.error().message, true);
    }
    return;
  }
  for (const ShareName& name : order_) start_share(shares_.at(name));
}

std::optional<wire::LinkKey> Shares::find_key(std::string_view identity) const {
  for (const auto& [name, share] : shares_) {
    if (share.identity == identity) return wire::share_key(share.identity, share.secret);
  }
  return wire::find_worker_key(key_)(identity);
}

void Shares::start_share(ShareOf& share) {
  std::string address = spec_.address.empty() ? way_to(share.place.name) : spec_.address;
  // This machine reaches itself by an address that leads nowhere on the others.
  for (const HostPlace& other : spec_.hosts) {
    if (!address.empty() && !is_loopback(address)) break;
    if (const std::string way = way_to(other.name); !way.empty()) address = way;
  }
  const ShareName name = share.place.name;
  share.unlinked_since = Clock::now();
  if (address.empty()) address = "127.0.0.1";
  ShareConfig config;
  config.master = fmt::format("tcp:{}:{}", in_brackets(address), port_);
  config.identity = share.identity;
  config.name = name;
  config.secret = share.secret;
  std::vector<std::string> command = spec_.remote_shell;
  command.insert(command.end(), {name, spec_.program, "share"});
  SpawnOptions options;
  options.input = to_json(config).dump() + "\n";
  auto process = spawn(command, own_environment(), options);
  if (!process) {
    share.shell.ended = true;
    share.shell.last_line = process.error().message;
    hooks_.say(fmt::format("host {}: {}", name, process.error().message));
    return;
  }
  share.shell.process = std::move(*process);
  watch_shell(name);
}

void Shares::watch_shell(const std::string& name) {
  const Process& process = shares_.at(name).shell.process;
  poller_.add(process.out.get(), [this, name](wire::Poller::Ready) { read_shell(name, false); });
  poller_.add(process.err.get(), [this, name](wire::Poller::Ready) { read_shell(name, true); });
  poller_.add(process.ended.get(), [this, name](wire::Poller::Ready) { shell_ended(name); });
}

// What the remote shell or the share itself says: the output of workers comes over the connection.
void Shares::read_shell(const std::string& name, bool is_err) {
  RemoteShell& shell = shares_.at(name).shell;
  wire::Fd& fd = is_err ? shell.process.err : shell.process.out;
  std::array<char, 4096> buffer{};
  const ssize_t size = fd.valid() ? read(fd.get(), buffer.data(), buffer.size()) : 0;
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const auto print = [&](std::string_view line) {
    shell.last_line = line;
    hooks_.say(fmt::format("host {}: {}", name, line));
  };
  LineCutter& cutter = is_err ? shell.err : shell.out;
  if (size > 0) return cutter.feed({buffer.data(), static_cast<std::size_t>(size)}, print);
  cutter.finish(print);
  if (!fd.valid()) return;
  poller_.remove(fd.get());
  fd.close();
}

void Shares::shell_ended(const std::string& name) {
  ShareOf& share = shares_.at(name);
  const auto end = reap(share.shell.process);
  if (!end) return;
  for (const bool is_err : {false, true}) {
    const wire::Fd& fd = is_err ? share.shell.process.err : share.shell.process.out;
    while (fd.valid()) {
      pollfd more{fd.get(), POLLIN, 0};
      if (poll(&more, 1, 0) <= 0) break;
      read_shell(name, is_err);
    }
  }
  share.shell.ended = true;
  for (wire::Fd* fd :
       {&share.shell.process.ended, &share.shell.process.out, &share.shell.process.err}) {
    if (fd->valid()) poller_.remove(fd->get());
    fd->close();
  }
  if (!ending_) hooks_.say(fmt::format("host {}: its share {}", name, to_text(*end)));
}

// --- connections ---

void Shares::message(int key, const Json& json) {
  if (const auto share = share_speakers_.find(key); share != share_speakers_.end()) {
    const auto parsed = parse_from_share(json);
    if (parsed) heard_share(shares_.at(share->second), key, *parsed);
  } else if (const auto worker = worker_speakers_.find(key); worker != worker_speakers_.end()) {
    const auto parsed = wire::parse_from_worker(json);
    if (parsed) heard_worker(worker->second, key, *parsed);
  } else {
    greet(key, json);
  }
}

// Whose key the other side has proven is who it is.
void Shares::greet(int key, const Json& json) {
  const std::string identity = server_.peer(key);
  for (auto& [name, share] : shares_) {
    if (share.identity == identity) return greet_share(key, share, json);
  }
  if (const auto uid = wire::worker_of(key_, identity)) return greet_worker(key, *uid, json);
  server_.drop(key);
}

void Shares::greet_share(int key, ShareOf& share, const Json& json) {
  const auto parsed = parse_from_share(json);
  const auto* status = parsed ? std::get_if<ShareStatus>(&*parsed) : nullptr;
  if (status == nullptr || status->hello.share != share.place.name) return server_.drop(key);
  share_speakers_[key] = share.place.name;
  heard_status(share, key, *status);
}

void Shares::greet_worker(int key, Uid uid, const Json& json) {
  const auto parsed = wire::parse_from_worker(json);
  const auto* hello = parsed ? std::get_if<wire::Hello>(&*parsed) : nullptr;
  const auto worker = workers_.find(uid);
  if (hello == nullptr || hello->uid != uid || worker == workers_.end()) return server_.drop(key);
  if (!worker->second.greeted && !hooks_.greeted(*hello)) return server_.drop(key);
  worker->second.greeted = true;
  worker_speakers_[key] = uid;
}

void Shares::dropped(int key) {
  if (const auto share = share_speakers_.find(key); share != share_speakers_.end()) {
    ShareOf& of = shares_.at(share->second);
    if (of.connection == key) {
      of.connection = -1;
      of.unlinked_since = Clock::now();
    }
    share_speakers_.erase(share);
  }
  const auto speaker = worker_speakers_.find(key);
  if (speaker == worker_speakers_.end()) return;
  const auto worker = workers_.find(speaker->second);
  if (worker != workers_.end() && worker->second.connection == key) {
    worker->second.connection = -1;
    core_.worker_silent(speaker->second);
  }
  worker_speakers_.erase(speaker);
}

void Shares::heard_share(ShareOf& share, int key, const FromShare& message) {
  if (share.connection == key) share.heard = Clock::now();
  if (const auto* status = std::get_if<ShareStatus>(&message)) {
    heard_status(share, key, *status);
  } else if (const auto* started = std::get_if<ShareStarted>(&message)) {
    events_.started(started->uid, started->process);
  } else if (const auto* output = std::get_if<ShareOutput>(&message)) {
    if (workers_.contains(output->uid)) events_.output(output->uid, output->is_err, output->line);
  } else if (const auto* trouble = std::get_if<ShareTrouble>(&message)) {
    if (!workers_.contains(trouble->uid)) return;
    events_.could_not_start(trouble->uid,
                            fmt::format("host {}: {}", share.place.name, trouble->why),
                            trouble->shortage);
  }
}

void Shares::heard_status(ShareOf& share, int key, const ShareStatus& status) {
  if (!core_.share_said(status.hello)) return server_.drop(key);
  const int before = std::exchange(share.connection, key);
  share.heard = Clock::now();
  if (std::exchange(share.silent, false)) {
    hooks_.say(fmt::format("host {} is back", share.place.name));
  }
  share.ever = true;
  if (before != key) {
    if (before >= 0) server_.drop(before);
    // Signals may have been lost with the connection.
    for (const Uid uid : status.hello.running) {
      const auto worker = workers_.find(uid);
      if (worker != workers_.end() && worker->second.signal != 0) {
        signal(uid, worker->second.signal);
      }
    }
  }
  for (const Uid uid : status.hello.ended) finished(uid, status.ends.at(uid));
  start_pending();
}

void Shares::heard_worker(Uid uid, int key, const wire::FromWorker& message) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return server_.drop(key);
  Worker& worker = found->second;
  if (const auto* hello = std::get_if<wire::WorkerHello>(&message)) {
    if (hello->uid != uid || !core_.worker_said(*hello)) return server_.drop(key);
    const int before = std::exchange(worker.connection, key);
    worker.heard = Clock::now();
    if (before != key && before >= 0) server_.drop(before);
    if (before != key && worker.stop) server_.send(key, wire::to_json({wire::Stop{}}));
    return;
  }
  if (worker.connection != key) return;  // of an older connection
  worker.heard = Clock::now();
  std::int64_t number = 0;
  if (const auto* report = std::get_if<wire::Report>(&message)) number = report->number;
  if (const auto* notice = std::get_if<wire::Notice>(&message)) number = notice->number;
  if (number != 0) {
    worker.unconfirmed = true;
    if (number <= worker.confirmed) return;  // it was sent again
    worker.confirmed = number;
  }
  hooks_.heard(uid, message);
}

void Shares::finished(Uid uid, ProcessEnd end) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  const int connection = found->second.connection;
  if (connection >= 0) {
    server_.read(connection);  // its last messages say why
    server_.drop(connection);
  }
  workers_.erase(uid);
  events_.ended(uid, end);
}

// --- workers ---

void Shares::start(const WorkerStart& start) {
  pending_.push_back(start);
  start_pending();
}

// A new round begins when every worker of the old one is gone.
bool Shares::begin_round(int round) {
  if (round <= round_) return true;
  if (!core_.roster().workers.empty()) {
    give_up();
    (void)core_.look_for_end();
    if (!core_.roster().workers.empty()) return false;
  }
  round_ = round;
  told_lost_ = false;
  key_ = wire::key_of_round(secret_, job_, 0, core_.roster().round);
  return true;
}

Shares::ShareOf* Shares::free_share() {
  for (const ShareName& name : order_) {
    ShareOf& share = shares_.at(name);
    const auto here = std::count_if(workers_.begin(), workers_.end(), [&](const auto& worker) {
      return worker.second.share == name;
    });
    if (share.connection >= 0 && here < share.place.workers) return &share;
  }
  return nullptr;
}

void Shares::start_pending() {
  while (!pending_.empty() && begin_round(pending_.front().round)) {
    ShareOf* share = free_share();
    const WorkerStart start = pending_.front();
    if (share == nullptr || !core_.add_worker(share->place.name, start.uid)) return;
    pending_.erase(pending_.begin());
    Worker& worker = workers_[start.uid];
    worker.start = start;
    worker.share = share->place.name;
  }
}

void Shares::signal(Uid uid, int signal) {
  const auto waiting = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const WorkerStart& start) { return start.uid == uid; });
  if (waiting != pending_.end()) {
    pending_.erase(waiting);
    return events_.ended(uid, {true, signal});
  }
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  found->second.signal = signal;
  const Roster& roster = core_.roster();
  tell_share(shares_.at(found->second.share),
             ShareSignal{{roster.round, roster.epoch, uid}, signal});
}

void Shares::send(Uid uid, const wire::FromLauncher& message) {
  const auto found = workers_.find(uid);
  if (found == workers_.end()) return;
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) {
    found->second.peers = welcome->peers;
  }
  if (!std::holds_alternative<wire::Stop>(message)) return;
  found->second.stop = true;
  if (found->second.connection >= 0) server_.send(found->second.connection, wire::to_json(message));
}

void Shares::plan(const std::vector<Uid>& workers) {
  const Roster& roster = core_.roster();
  if (roster.ending) return;
  std::vector<Uid> known;
  for (const Uid uid : workers) {
    if (roster.workers.contains(uid) && !roster.is_gone(uid)) known.push_back(uid);
  }
  if (known != roster.plan.workers) (void)core_.plan(known);
}

void Shares::give_up() {
  told_lost_ = true;
  (void)core_.give_up();
}

bool Shares::lost() { return core_.roster().ending && !std::exchange(told_lost_, true); }

std::vector<Uid> Shares::excused() const {
  std::vector<Uid> uids;
  for (const WorkerStart& start : pending_) uids.push_back(start.uid);
  for (const auto& [uid, worker] : workers_) {
    if (shares_.at(worker.share).connection < 0) uids.push_back(uid);
  }
  return uids;
}

std::string Shares::host_of(Uid uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() ? "" : found->second.share;
}

// --- what is said ---

void Shares::act() {
  for (const RosterMaster::Action& action : core_.take_actions()) {
    std::visit([this](const auto& one) { perform(one); }, action);
  }
  for (auto& [uid, worker] : workers_) {
    if (!std::exchange(worker.unconfirmed, false) || worker.connection < 0) continue;
    server_.send(worker.connection, wire::to_json({wire::MasterBeat{worker.confirmed}}));
  }
}

void Shares::perform(const RosterMaster::SayToWorker& action) {
  const auto found = workers_.find(action.uid);
  if (found == workers_.end() || found->second.connection < 0) return;
  wire::RosterWord word = action.word;
  for (const wire::Peer& peer : found->second.peers) {
    if (!core_.roster().is_gone(peer.uid)) word.peers.push_back(peer);
  }
  server_.send(found->second.connection, wire::to_json({word}));
}

void Shares::perform(const RosterMaster::SayToShare& action) {
  const ShareOf& share = shares_.at(action.share);
  if (const auto* order = std::get_if<wire::StartOrder>(&action.order)) {
    const auto worker = workers_.find(order->uid);
    if (worker == workers_.end()) return;
    tell_share(share, ShareStart{*order, worker->second.start, key_});
  } else if (const auto* kill = std::get_if<wire::KillOrder>(&action.order)) {
    tell_share(share, ShareSignal{*kill, SIGKILL});
  } else {
    tell_share(share, std::get<wire::EndsKept>(action.order));
  }
}

void Shares::tell_share(const ShareOf& share, const ToShare& message) {
  if (share.connection >= 0) server_.send(share.connection, to_json(message));
}

// --- time ---

void Shares::turn() {
  const auto now = Clock::now();
  if (now >= beat_at_) {
    beat_at_ = now + kShareBeat;
    beat();
  }
  look_for_silence(now);
  exclude();
  if (round_ > 0) (void)core_.look_for_end();
  if (ending_) give_up_hosts();
  start_pending();
  fail_without_hosts();
}

// No share could be started, so no worker can.
void Shares::fail_without_hosts() {
  const bool hope = std::any_of(shares_.begin(), shares_.end(), [](const auto& entry) {
    return entry.second.ever || !entry.second.shell.ended;
  });
  if (hope || pending_.empty()) return;
  for (const WorkerStart& start : std::exchange(pending_, {})) {
    events_.could_not_start(start.uid, "rubato share could be started on no host", true);
  }
}

void Shares::beat() {
  for (const auto& [name, share] : shares_) tell_share(share, ShareBeat{});
  for (const auto& [uid, worker] : workers_) {
    if (worker.connection >= 0) {
      server_.send(worker.connection, wire::to_json({wire::MasterBeat{worker.confirmed}}));
    }
  }
}

void Shares::look_for_silence(Clock::time_point now) {
  std::vector<int> quiet;
  for (auto& [name, share] : shares_) {
    if (share.connection >= 0) {
      if (now - share.heard > kShareSilence) quiet.push_back(share.connection);
      continue;
    }
    if (share.silent || now - share.unlinked_since <= kSilentHost) continue;
    if (!share.ever) continue;  // it is still being started, and has no workers
    share.silent = true;
    core_.share_silent(name);
    if (share.shell.ended) core_.share_gone(name);
    if (!ending_) hooks_.say(fmt::format("host {} does not answer", name));
  }
  for (const auto& [uid, worker] : workers_) {
    if (worker.connection >= 0 && now - worker.heard > kShareSilence)
      quiet.push_back(worker.connection);
  }
  for (const int key : quiet) server_.drop(key);
}

void Shares::exclude() {
  const bool anybody = std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
    return shares_.at(worker.second.share).silent;
  });
  if (!anybody || !core_.exclude_silent()) return;
  std::vector<Uid> excluded;
  for (const auto& [uid, worker] : workers_) {
    if (core_.roster().is_gone(uid)) excluded.push_back(uid);
  }
  for (const Uid uid : excluded) {
    hooks_.say(
        fmt::format("worker {} is excluded, because host {} does not answer", uid, host_of(uid)));
    finished(uid, {true, SIGKILL});
  }
}

// The run ends. Shares that cannot be reached end by themselves.
void Shares::give_up_hosts() {
  std::vector<Uid> left;
  for (const auto& [uid, worker] : workers_) {
    const ShareOf& share = shares_.at(worker.share);
    if (worker.signal == SIGKILL && share.connection < 0 && share.silent) left.push_back(uid);
  }
  for (const Uid uid : left) finished(uid, {true, SIGKILL});
}

}  // namespace rubato::launch

#include "rubato/member/links.h"

#include <algorithm>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <poll.h>
#include <span>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::member {

namespace {

constexpr std::chrono::milliseconds kBeat{200};

// Across hosts. A connection that is being made has the same time as one that is silent.
constexpr std::chrono::milliseconds kPeerBeat{500};
constexpr std::chrono::milliseconds kSilence{5000};
constexpr std::chrono::milliseconds kRedial{200};
constexpr std::chrono::milliseconds kLastWords{3000};
constexpr std::size_t kMostStrangers = 256;
// Reports and notices that the master has not confirmed. The oldest are given up first.
constexpr std::size_t kMostUnconfirmed = 10000;

// "tcp:[::]:7000" and "192.0.2.1": "tcp:192.0.2.1:7000".
std::string with_host(const std::string& address, const std::string& host) {
  const std::string port = address.substr(address.rfind(':'));
  const bool bare_ipv6 = host.find(':') != std::string::npos && !host.starts_with('[');
  return bare_ipv6 ? fmt::format("tcp:[{}]{}", host, port) : fmt::format("tcp:{}{}", host, port);
}

// What a worker tells its peers: "tcp:192.0.2.1:7000", or "tcp:192.0.2.1:7000 unix:/run/w-1", where
// the second one is for workers of its host.
struct PeerAddress {
  explicit PeerAddress(const std::string& text)
      : network(text.substr(0, text.find(' '))),
        local(network.size() < text.size() ? text.substr(network.size() + 1) : "") {}
  // "192.0.2.1"
  [[nodiscard]] std::string host() const {
    const auto end = network.rfind(':');
    return network.starts_with("tcp:") && end > 4 ? network.substr(4, end - 4) : "";
  }
  std::string network;
  std::string local;
};

// "file:PATH": the address in the file, which changes when another master has taken over.
Result<std::string> address_in(const std::string& launcher) {
  constexpr std::string_view kFile = "file:";
  if (!launcher.starts_with(kFile)) return launcher;
  const std::string path = launcher.substr(kFile.size());
  std::ifstream file(path);
  std::string address;
  if (!std::getline(file, address)) {
    return Error{fmt::format("cannot read where the master is from {}", base::quoted(path, 200))};
  }
  return address;
}

// Nobody else can put a socket there.
bool private_directory(const std::string& path) {
  struct stat status {};
  return !path.empty() && path.find(' ') == std::string::npos && stat(path.c_str(), &status) == 0 &&
         S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

}  // namespace

Result<Place> place_from_environment() {
  const auto variable = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  Place place;
  place.launcher = variable("RUBATO_LAUNCHER");
  if (place.launcher.empty()) return place;
  char* end = nullptr;
  const std::string uid = variable("RUBATO_WORKER");
  place.uid = std::strtoll(uid.c_str(), &end, 10);
  if (uid.empty() || *end != '\0' || place.uid < 1) {
    return Error{
        fmt::format("RUBATO_WORKER is '{}', not a number from 1 on; start workers with "
                    "`rubato run`",
                    uid)};
  }
  place.token = variable("RUBATO_TOKEN");
  const std::string start = variable("RUBATO_START");
  if (!start.empty()) {
    const auto number = parse_integer(start);
    if (!number || *number < 0) {
      return Error{fmt::format("RUBATO_START is {}, not a number from 0 on", base::quoted(start))};
    }
    place.start = *number;
  }
  place.checkpoint = variable("RUBATO_CHECKPOINT");
  place.niced = variable("RUBATO_NICED") == "1";
  place.address = variable("RUBATO_ADDRESS");
  if (const std::string file = variable("RUBATO_KEY"); !file.empty()) {
    auto key = wire::read_job_key(file);
    if (!key) return key.error();
    place.key = std::move(*key);
    // The file is in a directory of the share, which only its user can enter.
    const auto slash = file.rfind('/');
    if (slash != std::string::npos) place.directory = file.substr(0, slash);
  }
  return place;
}

Links::Links(wire::Poller& poller, Place place, Identity identity, Hooks hooks)
    : poller_(poller),
      place_(std::move(place)),
      identity_(std::move(identity)),
      hooks_(std::move(hooks)) {}

Result<void> Links::start() {
  if (place_.launcher.empty()) {
    hooks_.welcome({{}, {1, {place_.uid}}, true});
    return {};
  }
  if (auto listening = listen(); !listening) return listening;
  return dial_launcher();
}

Result<void> Links::listen() {
  Result<wire::Fd> listener = wire::listen_on(spans() ? "tcp:[::]:0" : "tcp:127.0.0.1:0");
  if (!listener && spans()) listener = wire::listen_on("tcp:0.0.0.0:0");  // without IPv6
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  const Result<std::string> address = wire::address_of(listener_);
  if (!address) return address.error();
  address_ = *address;
  poller_.add(listener_.get(), [this](wire::Poller::Ready) { accept_all(); });
  if (spans()) listen_locally();
  return {};
}

// Without this, all connections use the network.
void Links::listen_locally() {
  if (!private_directory(place_.directory)) return;
  const std::string path =
      fmt::format("{}/w-{}-{}", place_.directory, place_.key->round, place_.uid);
  unlink(path.c_str());
  Result<wire::Fd> listener = wire::listen_on("unix:" + path);
  if (!listener) return;
  local_listener_ = std::move(*listener);
  local_path_ = path;
  poller_.add(local_listener_.get(), [this](wire::Poller::Ready) { accept_local(); });
}

Links::~Links() {
  if (!local_path_.empty()) unlink(local_path_.c_str());
}

// --- the launcher ---

Result<void> Links::dial_launcher() {
  const Result<std::string> launcher = address_in(place_.launcher);
  if (!launcher) return launcher.error();
  Result<wire::Fd> fd = wire::connect_to(*launcher);
  if (!fd) return fd.error();
  if (spans()) {
    const Result<std::string> here = wire::address_of(*fd);
    if (!here) return here.error();
    address_ = with_host(PeerAddress(address_).network,
                         place_.address.empty() ? PeerAddress(*here).host() : place_.address);
    if (!local_path_.empty()) address_ += " unix:" + local_path_;
    launcher_ =
        wire::FrameStream(wire::Link(std::move(*fd), wire::worker_key(*place_.key, place_.uid)));
    master_heard_ = Clock::now();
  } else {
    launcher_ = wire::FrameStream(std::move(*fd));
  }
  poller_.add(launcher_.fd(), [this](wire::Poller::Ready ready) {
    if (ready.in) hear_launcher();
    if (launcher_.open() && ready.out) {
      launcher_.flush();
      poller_.want_out(launcher_.fd(), launcher_.wants_out());
    }
  });
  tell({wire::Hello{place_.uid, place_.token, getpid(), address_}});
  if (spans()) {
    ++connections_;
    said_standing_.reset();
    say_standing();
    for (const auto& [number, message] : unconfirmed_) launcher_.send(message);
    poller_.want_out(launcher_.fd(), launcher_.wants_out());
  }
  return {};
}

void Links::say_standing() {
  if (!launcher_.open() || !spans()) return;
  // The step is not worth a message, only whether there is a state.
  const auto matters = [](wire::WorkerHello hello) {
    hello.applied = std::min<std::int64_t>(hello.applied, 0);
    hello.connection = 0;
    return hello;
  };
  wire::WorkerHello hello = hooks_.standing(connections_);
  if (said_standing_) hello.connection = said_standing_->connection;
  if (said_standing_ && matters(*said_standing_) == matters(hello)) return;
  said_standing_ = hello;
  tell({hello});
}

void Links::tick(Clock::time_point now, Step applied) {
  if (now - last_beat_ >= kBeat) {
    last_beat_ = now;
    tell({wire::Beat{applied}});
  }
  if (!spans()) return;
  keep_launcher(now);
  keep_peers(now);
}

void Links::keep_launcher(Clock::time_point now) {
  if (launcher_.open() && now - master_heard_ > kSilence) lost_launcher();
  if (!launcher_.open() && now >= master_redial_at_) {
    master_redial_at_ = now + kRedial;
    (void)dial_launcher();  // else again at the next turn
  }
}

void Links::lost_launcher() {
  if (launcher_.open()) poller_.remove(launcher_.fd());
  launcher_ = {};
  master_redial_at_ = Clock::now() + kRedial;
}

void Links::tell(const wire::FromWorker& message) {
  if (!launcher_.open()) return;
  launcher_.send(wire::to_json(message));
  poller_.want_out(launcher_.fd(), launcher_.wants_out());
}

void Links::tell_surely(const wire::FromWorker& message) {
  if (spans()) {
    unconfirmed_.emplace_back(told_, wire::to_json(message));
    if (unconfirmed_.size() > kMostUnconfirmed) unconfirmed_.pop_front();
  }
  tell(message);
}

void Links::arrived(std::int64_t number) {
  while (!unconfirmed_.empty() && unconfirmed_.front().first <= number) unconfirmed_.pop_front();
}

void Links::flush_launcher() {
  if (spans()) return await_confirmation();
  while (launcher_.open() && launcher_.unsent()) {
    pollfd waiting{launcher_.fd(), POLLOUT, 0};
    if (poll(&waiting, 1, 1000) <= 0 || (waiting.revents & (POLLERR | POLLHUP)) != 0) return;
    launcher_.flush();
  }
}

// Across hosts, a connection that is closed with unread bytes may lose what was sent on it last.
void Links::await_confirmation() {
  const auto until = Clock::now() + kLastWords;
  while (launcher_.open() && !unconfirmed_.empty() && Clock::now() < until) {
    const short out = launcher_.wants_out() ? POLLOUT : 0;
    pollfd waiting{launcher_.fd(), static_cast<short>(POLLIN | out), 0};
    poll(&waiting, 1, 100);
    launcher_.flush();
    for (const Json& json : launcher_.receive()) {
      const auto message = wire::parse_from_launcher(json);
      const auto* beat = message ? std::get_if<wire::MasterBeat>(&*message) : nullptr;
      if (beat != nullptr) arrived(beat->heard);
    }
  }
}

void Links::hear_launcher() {
  const int fd = launcher_.fd();
  const std::vector<Json> messages = launcher_.receive();
  if (!launcher_.open()) poller_.remove(fd);
  master_heard_ = Clock::now();
  for (const Json& json : messages) {
    const auto message = wire::parse_from_launcher(json);
    if (message) hear_launcher(*message);  // else a message of a newer launcher
  }
  if (launcher_.open()) return poller_.want_out(fd, launcher_.wants_out());
  // Training continues without a launcher.
  if (spans()) return lost_launcher();
  hooks_.orphaned();
}

void Links::hear_launcher(const wire::FromLauncher& message) {
  if (const auto* welcome = std::get_if<wire::Welcome>(&message)) hooks_.welcome(*welcome);
  if (const auto* plan = std::get_if<MembershipPlan>(&message)) hooks_.plan(*plan);
  if (const auto* word = std::get_if<wire::RosterWord>(&message)) hooks_.roster(*word);
  if (const auto* beat = std::get_if<wire::MasterBeat>(&message)) arrived(beat->heard);
  if (std::holds_alternative<wire::Stop>(message)) hooks_.stop();
  if (const auto* throttle = std::get_if<wire::Throttle>(&message))
    hooks_.throttle(throttle->share);
}

// --- peers ---

Json Links::introduction(Uid to, const char* channel, std::int64_t recovery) {
  Json hello = {{"type", "peer"},
                {"channel", channel},
                {"uid", place_.uid},
                {"token", place_.token},
                {"recovery", recovery}};
  if (spans()) {
    hello["to"] = to;
    hello["connection"] = ++connections_;
  }
  if (std::string(channel) == "control") {
    hello["pid"] = getpid();
    hello["start"] = wire::start_time_of(getpid());
    hello["address"] = address_;
    hello["build"] = identity_.build;
    hello["schema"] = identity_.schema;
    hello["state"] = holds_state_;
  }
  return hello;
}

std::string Links::own_host() const { return PeerAddress(address_).host(); }

std::string Links::host_of(Uid peer) const {
  const auto found = peers_.find(peer);
  return found == peers_.end() ? "" : PeerAddress(found->second.address).host();
}

// Nothing, if the peer is on another host or cannot be reached this way. Whoever listens must be
// this user: a directory of this name may be somebody else's here.
std::optional<wire::Link> Links::connect_locally(const Peer& peer) const {
  const PeerAddress address(peer.address);
  const bool near = !address.local.empty() && !local_path_.empty() && address.host() == own_host();
  if (!near || peer.local_failed) return std::nullopt;
  Result<wire::Fd> fd = wire::connect_to(address.local);
  if (!fd || wire::user_at(*fd) != geteuid()) return std::nullopt;
  return wire::Link(std::move(*fd));
}

Result<wire::Link> Links::connect(const Peer& peer) const {
  if (spans()) {
    if (auto link = connect_locally(peer)) return std::move(*link);
  }
  Result<wire::Fd> fd = wire::connect_to(PeerAddress(peer.address).network);
  if (!fd) return fd.error();
  if (!spans()) return wire::Link(std::move(*fd));
  return wire::Link(std::move(*fd), wire::worker_key(*place_.key, place_.uid));
}

void Links::dial(const std::vector<wire::Peer>& peers) {
  for (const wire::Peer& peer : peers) {
    if (gone_.contains(peer.uid) || peers_.contains(peer.uid)) continue;
    Peer& entry = peers_[peer.uid];
    entry.address = peer.address;
    entry.dialled = true;
    dial(peer.uid);
  }
}

void Links::dial(Uid uid) {
  Peer& peer = peers_.at(uid);
  Result<wire::Link> link = connect(peer);
  peer.heard = Clock::now();
  peer.redial_at = peer.heard + kRedial;
  if (!link) {
    // On this machine nobody listens there any more, so it has ended.
    if (!spans()) peers_.erase(uid);
    return;
  }
  peer.control = wire::FrameStream(std::move(*link));
  watch(uid);
  peer.control.send(introduction(uid, "control", kFresh));
  poller_.want_out(peer.control.fd(), peer.control.wants_out());
}

void Links::keep_peers(Clock::time_point now) {
  const bool beat = now - last_peer_beat_ >= kPeerBeat;
  if (beat) last_peer_beat_ = now;
  std::vector<Uid> silent;
  for (auto& [uid, peer] : peers_) {
    if (beat) send(uid, {{"type", "beat"}});
    if (peer.control.open() && now - peer.heard > kSilence) silent.push_back(uid);
  }
  for (const Uid uid : silent) lost_control(uid);
  for (auto& [uid, peer] : peers_) {
    if (peer.dialled && !peer.control.open() && now >= peer.redial_at) dial(uid);
  }
}

// Across hosts. The peer may live: only the connection is gone.
void Links::lost_control(Uid uid) {
  const auto found = peers_.find(uid);
  if (found == peers_.end()) return;
  Peer& peer = found->second;
  if (peer.control.open()) poller_.remove(peer.control.fd());
  peer.control = {};
  peer.redial_at = Clock::now() + kRedial;
  if (!peer.linked) peer.local_failed = true;
  if (std::exchange(peer.linked, false)) hooks_.lost(uid);
}

void Links::forget(Uid uid) {
  gone_.insert(uid);
  const auto found = peers_.find(uid);
  if (found == peers_.end()) return;
  if (found->second.control.open()) poller_.remove(found->second.control.fd());
  peers_.erase(found);
}

bool Links::dialled() const {
  for (const auto& [uid, peer] : peers_) {
    if (!peer.answered) return false;
  }
  return true;
}

void Links::watch(Uid uid) {
  poller_.add(peers_.at(uid).control.fd(), [this, uid](wire::Poller::Ready ready) {
    if (ready.out) {
      wire::FrameStream& control = peers_.at(uid).control;
      control.flush();
      poller_.want_out(control.fd(), control.wants_out());
    }
    if (ready.in && peers_.contains(uid)) hear(uid);
  });
}

void Links::hear(Uid uid) {
  Peer& peer = peers_.at(uid);
  const int fd = peer.control.fd();
  const std::vector<Json> messages = peer.control.receive();
  if (!peer.control.open()) poller_.remove(fd);
  peer.heard = Clock::now();
  for (const Json& message : messages) {
    const std::string type = look_for_text(message, "type");
    if (type == "peer") {
      met(uid, message);
    } else if (type == "refused") {
      hooks_.refused(look_for_text(message, "text"));
    } else if (type == "state") {
      peer.holds_state = true;
    } else if (type != "beat") {
      hooks_.message(uid, message);
    }
    if (!peers_.contains(uid)) return;
  }
  if (peer.control.open()) {
    return poller_.want_out(peer.control.fd(), peer.control.wants_out());
  }
  if (spans()) return lost_control(uid);
  // A peer that never sent its first message cannot be watched, and is not needed.
  if (!peer.answered) {
    peers_.erase(uid);
    return;
  }
  hooks_.lost(uid);
}

void Links::accept_all() {
  for (wire::Fd fd = wire::accept_from(listener_); fd.valid(); fd = wire::accept_from(listener_)) {
    take_stranger(spans() ? wire::Link(std::move(fd), wire::find_worker_key(*place_.key))
                          : wire::Link(std::move(fd)),
                  false);
  }
}

void Links::accept_local() {
  for (wire::Fd fd = wire::accept_from(local_listener_); fd.valid();
       fd = wire::accept_from(local_listener_)) {
    if (wire::user_at(fd) == geteuid()) take_stranger(wire::Link(std::move(fd)), true);
  }
}

void Links::take_stranger(wire::Link link, bool local) {
  const int number = link.fd();
  if (strangers_.size() >= kMostStrangers) drop_oldest_stranger();
  strangers_[number] = {std::move(link), {}, ++strangers_seen_, local};
  poller_.add(number, [this, number](wire::Poller::Ready) { hear_stranger(number); });
}

void Links::drop_oldest_stranger() {
  const auto oldest = std::min_element(
      strangers_.begin(), strangers_.end(),
      [](const auto& a, const auto& b) { return a.second.number < b.second.number; });
  poller_.remove(oldest->first);
  strangers_.erase(oldest);
}

// Reads only the first message. What follows on a data connection is not for Links.
void Links::hear_stranger(int fd) {
  Stranger& stranger = strangers_.at(fd);
  while (true) {
    std::size_t wanted = 4;
    if (stranger.bytes.size() >= 4) {
      for (std::size_t i = 0; i < 4; ++i) {
        wanted += static_cast<std::size_t>(static_cast<unsigned char>(stranger.bytes[i]))
                  << (8U * i);
      }
    }
    if (wanted > wire::kLargestFrame) break;
    if (stranger.bytes.size() >= 4 && stranger.bytes.size() == wanted) {
      wire::FrameReader reader;
      const auto messages = reader.feed(stranger.bytes);
      poller_.remove(fd);
      wire::Link connection = std::move(stranger.link);
      const bool local = stranger.local;
      strangers_.erase(fd);
      if (messages && messages->size() == 1)
        introduced(std::move(connection), local, messages->front());
      return;
    }
    char buffer[4096];
    const std::size_t room = std::min(sizeof(buffer), wanted - stranger.bytes.size());
    const wire::Link::Moved moved =
        stranger.link.read(std::as_writable_bytes(std::span(buffer, room)));
    if (moved.over) break;
    if (moved.bytes == 0) {
      poller_.want_out(fd, stranger.link.wants_out(false));
      return;
    }
    stranger.bytes.append(buffer, moved.bytes);
  }
  poller_.remove(fd);
  strangers_.erase(fd);
}

void Links::introduced(wire::Link link, bool local, const Json& hello) {
  JsonTrouble trouble;
  JsonFields fields(JsonValue(hello, trouble), JsonFields::Unknown::ignored);
  const Uid uid = fields["uid"].whole<Uid>();
  const std::string channel = fields["channel"].text();
  const auto recovery = fields["recovery"].whole<std::int64_t>();
  const std::string token = fields["token"].text();
  if (!trouble.ok() || token != place_.token) return;  // not a worker of this job
  std::int64_t connection = 0;
  if (spans()) {
    // Whose key it has proven is who it is. A local one has proven its user, who has all keys. At
    // an address that was used before, it may look for another worker than this one.
    if (!local && wire::worker_of(*place_.key, link.peer()) != uid) return;
    if (gone_.contains(uid)) return;
    if (look_for_integer(hello, "to") != place_.uid) return;
    connection = look_for_integer(hello, "connection").value_or(0);
  }
  if (channel == "data") {
    const auto found = peers_.find(uid);
    if (found == peers_.end() || connection < found->second.newest_data) return;
    found->second.newest_data = connection;
    hooks_.data(uid, recovery, std::move(link));
    return;
  }
  if (spans()) return replace_control(uid, std::move(link), hello);
  if (peers_.contains(uid)) return;
  peers_[uid].control = wire::FrameStream(std::move(link));
  watch(uid);
  met(uid, hello);
}

// A newer connection voids the unread bytes and the late end of the older.
void Links::replace_control(Uid uid, wire::Link link, const Json& hello) {
  const std::int64_t connection = look_for_integer(hello, "connection").value_or(0);
  if (connection <= peers_[uid].newest) return;
  lost_control(uid);
  const auto found = peers_.find(uid);
  if (found == peers_.end()) return;
  found->second.newest = connection;
  found->second.heard = Clock::now();
  found->second.control = wire::FrameStream(std::move(link));
  watch(uid);
  met(uid, hello);
  // What came together with the first message is decrypted already, and the poller cannot see it.
  if (peers_.contains(uid) && peers_.at(uid).control.open()) hear(uid);
}

void Links::met(Uid uid, const Json& hello) {
  Peer& peer = peers_.at(uid);
  if (peer.linked) return;
  Identity theirs;
  JsonTrouble trouble;
  JsonFields fields(JsonValue(hello, trouble), JsonFields::Unknown::ignored);
  peer.pid = fields["pid"].whole<pid_t>();
  const auto start = fields["start"].whole<long long>();
  peer.address = fields["address"].text();
  theirs.build = fields["build"].text();
  theirs.schema = fields["schema"].json();
  peer.holds_state = fields["state"].boolean();
  if (!trouble.ok()) return spans() ? lost_control(uid) : ended(uid);
  // The worker that came later does not fit. The other one tells it why.
  if (!peer.dialled) {
    const std::string difference = peer.answered ? "" : hooks_.difference(theirs);
    if (!difference.empty()) {
      peer.control.send({{"type", "refused"}, {"text", difference}});
      poller_.remove(peer.control.fd());
      peers_.erase(uid);
      return;
    }
    peer.control.send(introduction(uid, "control", kFresh));
    poller_.want_out(peer.control.fd(), peer.control.wants_out());
  }
  peer.answered = true;
  peer.linked = true;
  if (!spans()) {
    peer.process = wire::watch_process(peer.pid);
    if (!peer.process.valid() || wire::start_time_of(peer.pid) != start) return ended(uid);
    poller_.add(peer.process.get(), [this, uid](wire::Poller::Ready) { ended(uid); });
  }
  // It may hold the state since the introduction was sent.
  if (peer.dialled && holds_state_) send(uid, {{"type", "state"}});
  hooks_.connected(uid);
}

void Links::ended(Uid uid) {
  const auto found = peers_.find(uid);
  if (found == peers_.end()) return;
  // Messages that it sent before it ended still count.
  if (found->second.control.open()) hear(uid);
  if (!peers_.contains(uid)) return;
  if (found->second.control.open()) poller_.remove(found->second.control.fd());
  if (found->second.process.valid()) poller_.remove(found->second.process.get());
  peers_.erase(found);
  hooks_.dead(uid);
}

bool Links::dials(Uid peer) const {
  const auto found = peers_.find(peer);
  return found != peers_.end() && found->second.dialled;
}

Links::Dialled Links::dial_data(Uid peer, std::int64_t recovery) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return {};
  Result<wire::Link> link = connect(found->second);
  if (!link) return {};
  return {std::move(*link), wire::to_frame(introduction(peer, "data", recovery))};
}

void Links::holds_state() {
  if (holds_state_) return;
  holds_state_ = true;
  broadcast({{"type", "state"}});
}

bool Links::somebody_holds_state() const {
  for (const auto& [uid, peer] : peers_) {
    if (peer.holds_state) return true;
  }
  return false;
}

void Links::send(Uid peer, const Json& message) {
  const auto found = peers_.find(peer);
  if (found == peers_.end() || !found->second.linked || !found->second.control.open()) return;
  found->second.control.send(message);
  poller_.want_out(found->second.control.fd(), found->second.control.wants_out());
}

void Links::broadcast(const Json& message) {
  for (const auto& [uid, peer] : peers_) send(uid, message);
}

std::vector<Uid> Links::linked_peers() const {
  std::vector<Uid> uids;
  for (const auto& [uid, peer] : peers_) {
    if (peer.linked) uids.push_back(uid);
  }
  return uids;
}

std::vector<Uid> Links::peers() const {
  std::vector<Uid> uids;
  for (const auto& [uid, peer] : peers_) {
    if (peer.answered) uids.push_back(uid);
  }
  return uids;
}

}  // namespace rubato::member

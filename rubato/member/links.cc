#include "rubato/member/links.h"

#include <cstdlib>
#include <fmt/format.h>
#include <poll.h>
#include <span>
#include <unistd.h>

#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::member {

namespace {

constexpr std::chrono::milliseconds kBeat{200};

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
  Result<wire::Fd> listener = wire::listen_on("tcp:127.0.0.1:0");
  if (!listener) return listener.error();
  listener_ = std::move(*listener);
  const Result<std::string> address = wire::address_of(listener_);
  if (!address) return address.error();
  address_ = *address;
  Result<wire::Fd> launcher = wire::connect_to(place_.launcher);
  if (!launcher) return launcher.error();
  launcher_ = wire::FrameStream(std::move(*launcher));
  poller_.add(listener_.get(), [this](wire::Poller::Ready) { accept_all(); });
  poller_.add(launcher_.fd(), [this](wire::Poller::Ready ready) {
    if (ready.in) hear_launcher();
    if (launcher_.open() && ready.out) {
      launcher_.flush();
      poller_.want_out(launcher_.fd(), launcher_.wants_out());
    }
  });
  tell({wire::Hello{place_.uid, place_.token, getpid(), address_}});
  return {};
}

void Links::tick(std::chrono::steady_clock::time_point now, Step applied) {
  if (now - last_beat_ < kBeat) return;
  last_beat_ = now;
  tell({wire::Beat{applied}});
}

void Links::tell(const wire::FromWorker& message) {
  if (!launcher_.open()) return;
  launcher_.send(wire::to_json(message));
  poller_.want_out(launcher_.fd(), launcher_.wants_out());
}

void Links::flush_launcher() {
  while (launcher_.open() && launcher_.unsent()) {
    pollfd waiting{launcher_.fd(), POLLOUT, 0};
    if (poll(&waiting, 1, 1000) <= 0 || (waiting.revents & (POLLERR | POLLHUP)) != 0) return;
    launcher_.flush();
  }
}

void Links::hear_launcher() {
  const int fd = launcher_.fd();
  for (const Json& json : launcher_.receive()) {
    const auto message = wire::parse_from_launcher(json);
    if (!message) continue;  // a message of a newer launcher
    if (const auto* welcome = std::get_if<wire::Welcome>(&*message)) hooks_.welcome(*welcome);
    if (const auto* plan = std::get_if<MembershipPlan>(&*message)) hooks_.plan(*plan);
    if (std::holds_alternative<wire::Stop>(*message)) hooks_.stop();
  }
  // Training continues without a launcher.
  if (launcher_.open()) return;
  poller_.remove(fd);
  hooks_.orphaned();
}

// --- peers ---

Json Links::introduction(const char* channel, std::int64_t recovery) const {
  Json hello = {{"type", "peer"},
                {"channel", channel},
                {"uid", place_.uid},
                {"token", place_.token},
                {"recovery", recovery}};
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

void Links::dial(const std::vector<wire::Peer>& peers) {
  for (const wire::Peer& peer : peers) {
    Result<wire::Fd> fd = wire::connect_to(peer.address);
    if (!fd) continue;  // nobody listens there any more, so it has ended
    Peer& entry = peers_[peer.uid];
    entry.address = peer.address;
    entry.dialled = true;
    entry.control = wire::FrameStream(std::move(*fd));
    watch(peer.uid);
    send(peer.uid, introduction("control", kFresh));
  }
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
    if (ready.in) hear(uid);
  });
}

void Links::hear(Uid uid) {
  Peer& peer = peers_.at(uid);
  const int fd = peer.control.fd();
  for (const Json& message : peer.control.receive()) {
    const std::string type = look_for_text(message, "type");
    if (type == "peer") {
      met(uid, message);
    } else if (type == "refused") {
      hooks_.refused(look_for_text(message, "text"));
    } else if (type == "state") {
      peer.holds_state = true;
    } else {
      hooks_.message(uid, message);
    }
    if (!peers_.contains(uid)) return;
  }
  if (peer.control.open()) return;
  poller_.remove(fd);
  // A peer that never sent its first message cannot be watched, and is not needed.
  if (!peer.answered) {
    peers_.erase(uid);
    return;
  }
  hooks_.lost(uid);
}

void Links::accept_all() {
  for (wire::Fd fd = wire::accept_from(listener_); fd.valid(); fd = wire::accept_from(listener_)) {
    const int number = fd.get();
    strangers_[number] = {wire::Link(std::move(fd)), {}};
    poller_.add(number, [this, number](wire::Poller::Ready) { hear_stranger(number); });
  }
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
      strangers_.erase(fd);
      if (messages && messages->size() == 1) introduced(std::move(connection), messages->front());
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

void Links::introduced(wire::Link link, const Json& hello) {
  JsonTrouble trouble;
  JsonFields fields(JsonValue(hello, trouble), JsonFields::Unknown::ignored);
  const Uid uid = fields["uid"].whole<Uid>();
  const std::string channel = fields["channel"].text();
  const auto recovery = fields["recovery"].whole<std::int64_t>();
  const std::string token = fields["token"].text();
  if (!trouble.ok() || token != place_.token) return;  // not a worker of this job
  if (channel == "data") {
    if (peers_.contains(uid)) hooks_.data(uid, recovery, std::move(link));
    return;
  }
  if (peers_.contains(uid)) return;
  peers_[uid].control = wire::FrameStream(std::move(link));
  watch(uid);
  met(uid, hello);
}

void Links::met(Uid uid, const Json& hello) {
  Peer& peer = peers_.at(uid);
  if (peer.answered) return;
  Identity theirs;
  JsonTrouble trouble;
  JsonFields fields(JsonValue(hello, trouble), JsonFields::Unknown::ignored);
  peer.pid = fields["pid"].whole<pid_t>();
  const auto start = fields["start"].whole<long long>();
  peer.address = fields["address"].text();
  theirs.build = fields["build"].text();
  theirs.schema = fields["schema"].json();
  peer.holds_state = fields["state"].boolean();
  if (!trouble.ok()) return ended(uid);
  // The worker that came later does not fit. The other one tells it why.
  if (!peer.dialled) {
    const std::string difference = hooks_.difference(theirs);
    if (!difference.empty()) {
      peer.control.send({{"type", "refused"}, {"text", difference}});
      poller_.remove(peer.control.fd());
      peers_.erase(uid);
      return;
    }
    send(uid, introduction("control", kFresh));
  }
  peer.answered = true;
  peer.process = wire::watch_process(peer.pid);
  if (!peer.process.valid() || wire::start_time_of(peer.pid) != start) return ended(uid);
  poller_.add(peer.process.get(), [this, uid](wire::Poller::Ready) { ended(uid); });
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
  Result<wire::Fd> fd = wire::connect_to(found->second.address);
  if (!fd) return {};
  return {wire::Link(std::move(*fd)), wire::to_frame(introduction("data", recovery))};
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
  if (found == peers_.end() || !found->second.control.open()) return;
  found->second.control.send(message);
  poller_.want_out(found->second.control.fd(), found->second.control.wants_out());
}

void Links::broadcast(const Json& message) {
  for (const auto& [uid, peer] : peers_) send(uid, message);
}

std::vector<Uid> Links::peers() const {
  std::vector<Uid> uids;
  for (const auto& [uid, peer] : peers_) {
    if (peer.answered) uids.push_back(uid);
  }
  return uids;
}

}  // namespace rubato::member

#include "rubato/launch/shares.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <set>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/base/json_reader.h"
#include "rubato/base/text.h"

namespace rubato::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kSilentHost = 10s;  // without a connection
constexpr auto kEndWithin = 3s;
constexpr auto kReadEpoch = 1s;
constexpr auto kAskPortAgain = 1s;

}  // namespace

bool RosterInMemory::create(std::int64_t number, const Roster& roster) {
  if (number != newest_.number + 1) return false;
  newest_ = {number, roster};
  return true;
}

Shares::Shares(wire::Poller& poller, SharesSpec spec, std::shared_ptr<RosterStore> store,
               std::unique_ptr<ShareStarter> starter, Events events, Hooks hooks)
    : poller_(poller),
      spec_(std::move(spec)),
      store_(std::move(store)),
      starter_(std::move(starter)),
      events_(std::move(events)),
      hooks_(std::move(hooks)),
      adopted_(store_->newest().number > 0 && store_->newest().roster.run.start == spec_.start),
      core_(*store_, store_->newest()),
      server_(poller_, {.message = [this](int key, const Json& json) { message(key, json); },
                        .dropped = [this](int key) { dropped(key); },
                        .handled = [this] { events_.handled(); }}) {
  // Whatever is left of an earlier start has no part in this one.
  if (!adopted_ && spec_.start != core_.roster().run.start) (void)core_.begin_start(spec_.start);
  key_ = wire::key_of_round(spec_.secret, spec_.job, spec_.start, core_.roster().round);
}

Shares::~Shares() {
  if (replaced()) return;
  for (auto& [name, share] : shares_) {
    tell_share(share, ShareEnd{});
    starter_->end(name);
  }
  const auto until = Clock::now() + kEndWithin;
  while (server_.any_unsent() && Clock::now() < until) poller_.wait(20ms);
  starter_->finish();
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
  std::vector<std::string> others;
  for (const auto& [name, other] : shares_) others.push_back(other.spot.host);
  ShareConfig config;
  config.master =
      fmt::format("tcp:{}:{}", address_for(share.spot.host, spec_.address, others), port_);
  config.identity = share.identity;
  config.name = share.spot.name;
  config.secret = share.secret;
  share.unlinked_since = Clock::now();
  starter_->start(config);
}

void Shares::add_share(const ShareSpot& spot) {
  ShareOf& share = shares_[spot.name];
  share.spot = spot;
  share.identity = wire::share_identity(spec_.job, spec_.start, spot.name);
  share.secret = wire::secret_of_share(spec_.secret, share.identity);
  order_.push_back(spot.name);
  if (!port_.empty()) start_share(share);
}

void Shares::set_shares(const std::vector<ShareSpot>& spots, const std::vector<ShareName>& ended) {
  std::set<ShareName> wanted;
  for (const ShareSpot& spot : spots) {
    wanted.insert(spot.name);
    const auto found = shares_.find(spot.name);
    if (found == shares_.end()) {
      add_share(spot);
    } else {
      found->second.spot = spot;
    }
  }
  // Workers of an earlier master may be in shares that nobody wants any more.
  for (const auto& [uid, worker] : core_.roster().workers) {
    if (!core_.roster().is_gone(uid) && !shares_.contains(worker.share))
      add_share({worker.share, worker.share, 0, {}});
  }
  for (auto& [name, share] : shares_) share.wanted = wanted.contains(name);
  for (const ShareName& name : ended) {
    core_.share_gone(name);
    const auto found = shares_.find(name);
    if (found != shares_.end()) found->second.gone = true;
  }
}

std::vector<ShareView> Shares::views() const {
  std::vector<ShareView> views;
  for (const auto& [name, share] : shares_) {
    if (share.told_to_end) continue;
    const auto admitted = core_.roster().admitted.find(name);
    const bool known = admitted != core_.roster().admitted.end();
    views.push_back({name, share.connection >= 0, known ? admitted->second.native : ""});
  }
  return views;
}

std::vector<Uid> Shares::misplaced() const {
  std::set<Slot> wanted;
  for (const auto& [name, share] : shares_) {
    if (share.wanted && !share.gone)
      wanted.insert(share.spot.slots.begin(), share.spot.slots.end());
  }
  std::vector<Uid> uids;
  for (const auto& [uid, worker] : workers_) {
    const ShareOf& share = shares_.at(worker.share);
    const bool stays = share.wanted && !share.leaving;
    if (!stays && !share.gone && wanted.contains(worker.start.slot)) uids.push_back(uid);
  }
  return uids;
}

// Their workers have left. A share that cannot be told reads it in its file.
void Shares::end_unwanted(Clock::time_point now) {
  std::vector<ShareName> over;
  for (auto& [name, share] : shares_) {
    if ((share.wanted && !share.gone) || workers_on(name) > 0) continue;
    if (!share.told_to_end) {
      share.told_to_end = now;
      starter_->end(name);
      tell_share(share, ShareEnd{});
    }
    if (share.connection < 0 || now - *share.told_to_end > kEndWithin) over.push_back(name);
  }
  for (const ShareName& name : over) {
    if (const int key = shares_.at(name).connection; key >= 0) server_.drop(key);
    core_.share_silent(name);
    shares_.erase(name);
    std::erase(order_, name);
  }
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
  if (status == nullptr || status->hello.share != share.spot.name) return server_.drop(key);
  if (!core_.admit(status->hello)) return refuse_share(key, share.spot.name);
  share_speakers_[key] = share.spot.name;
  if (share.connection != key) send_secrets(key);
  heard_status(share, key, *status);
}

// The manager has started it twice, or again. Nothing that it started is known.
void Shares::refuse_share(int key, const ShareName& name) {
  if (replaced()) return server_.drop(key);
  hooks_.say(fmt::format("share {} was started twice; one of the two is ended", name));
  server_.send(key, to_json(ToShare(ShareEnd{})));
}

void Shares::send_secrets(int key) {
  for (const auto& [name, content] : spec_.secrets) {
    server_.send(key, to_json(ToShare(ShareSecret{name, content})));
  }
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
                            fmt::format("host {}: {}", shown(share.spot.name), trouble->why),
                            trouble->shortage);
  } else if (const auto* port = std::get_if<SharePort>(&message)) {
    if (port->round == core_.roster().round && port->port != 0)
      meeting_ = Meeting{share.spot.name, *port};
    start_pending();
  }
}

void Shares::heard_status(ShareOf& share, int key, const ShareStatus& status) {
  if (!core_.share_said(status.hello)) return server_.drop(key);
  const int before = std::exchange(share.connection, key);
  share.heard = Clock::now();
  if (std::exchange(share.silent, false)) {
    hooks_.say(fmt::format("host {} is back", shown(share.spot.name)));
  }
  share.ever = true;
  if (status.leaving && !std::exchange(share.leaving, true)) {
    hooks_.say(fmt::format("host {}: its share was told to end", shown(share.spot.name)));
    for (const auto& [uid, worker] : workers_) {
      if (worker.share == share.spot.name) hooks_.blameless(uid);
    }
  }
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
    if (before != key && worker.throttle < 1)
      server_.send(key, wire::to_json({wire::Throttle{worker.throttle}}));
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

void Shares::adopt(const WorkerStart& start) {
  Worker& worker = workers_[start.uid];
  worker.start = start;
  worker.share = core_.roster().workers.at(start.uid).share;
  round_ = std::max(round_, start.round);
  told_lost_ = core_.roster().ending;
  // It will be heard of, or it will not.
  shares_.at(worker.share).ever = true;
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
  meeting_.reset();
  key_ = wire::key_of_round(spec_.secret, spec_.job, spec_.start, core_.roster().round);
  return true;
}

int Shares::workers_on(const ShareName& name) const {
  return static_cast<int>(std::count_if(workers_.begin(), workers_.end(), [&](const auto& worker) {
    return worker.second.share == name;
  }));
}

bool Shares::takes_workers(const ShareOf& share) const {
  return share.wanted && !share.gone && !share.leaving && share.connection >= 0;
}

// The share of its slot. Without slots, the first one that has room.
Shares::ShareOf* Shares::share_for(const WorkerStart& start) {
  for (const ShareName& name : order_) {
    ShareOf& share = shares_.at(name);
    if (!takes_workers(share)) continue;
    const std::vector<Slot>& slots = share.spot.slots;
    const bool fits = start.slot.empty()
                          ? workers_on(name) < share.spot.workers
                          : std::find(slots.begin(), slots.end(), start.slot) != slots.end();
    if (fits) return &share;
  }
  return nullptr;
}

bool Shares::place_worker(const WorkerStart& start, const ShareOf& share) {
  if (!core_.add_worker(share.spot.name, start.uid, start.slot)) return false;
  Worker& worker = workers_[start.uid];
  worker.start = start;
  worker.share = share.spot.name;
  return true;
}

void Shares::start_pending() {
  if (!pending_.empty() && pending_.front().world > 0) return start_ranks();
  // Not all of them may have a share, and each goes where its own slot is.
  for (std::size_t i = 0; i < pending_.size();) {
    if (!begin_round(pending_[i].round)) return;
    const ShareOf* share = share_for(pending_[i]);
    if (share != nullptr && place_worker(pending_[i], *share)) {
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

// --- ranks of programs that do not know Rubato ---

// All ranks of a round, or none: each must know how many there are on its host.
void Shares::start_ranks() {
  const auto world = static_cast<std::size_t>(pending_.front().world);
  if (pending_.size() < world || !begin_round(pending_.front().round)) return;
  const std::vector<ShareOf*> shares = shares_for_ranks();
  if (shares.empty()) return;
  // Another share may have been the first when a port was asked for.
  const bool meet = meeting_ && meeting_->share == shares.front()->spot.name &&
                    meeting_->at.round == core_.roster().round;
  if (!meet) {
    const auto now = Clock::now();
    if (now - asked_port_ < kAskPortAgain) return;
    asked_port_ = now;
    return tell_share(*shares.front(), ShareAskPort{core_.roster().round});
  }
  complete_ranks(shares);
  const std::vector<WorkerStart> starts = std::exchange(pending_, {});
  for (std::size_t i = 0; i < starts.size(); ++i) (void)place_worker(starts[i], *shares[i]);
}

// Of each pending rank; empty if there is no room for one of them.
std::vector<Shares::ShareOf*> Shares::shares_for_ranks() {
  std::vector<ShareOf*> found;
  std::map<ShareName, int> used;
  for (const WorkerStart& start : pending_) {
    ShareOf* share = nullptr;
    for (const ShareName& name : order_) {
      ShareOf& one = shares_.at(name);
      const std::vector<Slot>& slots = one.spot.slots;
      const bool fits = start.slot.empty()
                            ? used[name] < one.spot.workers
                            : std::find(slots.begin(), slots.end(), start.slot) != slots.end();
      if (takes_workers(one) && fits) share = share == nullptr ? &one : share;
    }
    if (share == nullptr) return {};
    ++used[share->spot.name];
    found.push_back(share);
  }
  return found;
}

// As torchrun: a share is a group, and local ranks count within it.
void Shares::complete_ranks(const std::vector<ShareOf*>& shares) {
  std::vector<ShareName> groups;
  std::map<ShareName, int> sizes;
  for (const ShareOf* share : shares) {
    if (sizes[share->spot.name]++ == 0) groups.push_back(share->spot.name);
  }
  std::map<ShareName, int> next;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const ShareName& name = shares[i]->spot.name;
    const auto group = std::find(groups.begin(), groups.end(), name) - groups.begin();
    Environment& environment = pending_[i].environment;
    const auto set_number = [&](const char* variable, std::int64_t number) {
      set(environment, variable, fmt::format("{}", number));
    };
    set_number("LOCAL_RANK", next[name]++);
    set_number("LOCAL_WORLD_SIZE", sizes[name]);
    set_number("GROUP_RANK", group);
    set_number("GROUP_WORLD_SIZE", static_cast<std::int64_t>(groups.size()));
    set(environment, "MASTER_ADDR", meeting_->at.address);
    set_number("MASTER_PORT", meeting_->at.port);
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
  if (const auto* throttle = std::get_if<wire::Throttle>(&message)) {
    found->second.throttle = throttle->share;
  } else if (std::holds_alternative<wire::Stop>(message)) {
    found->second.stop = true;
  } else {
    return;
  }
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
  const auto now = Clock::now();
  for (const auto& [uid, worker] : workers_) {
    const ShareOf& share = shares_.at(worker.share);
    if (share.connection < 0 || now - share.heard > kShareLate) uids.push_back(uid);
  }
  return uids;
}

std::string Shares::host_of(Uid uid) const {
  const auto found = workers_.find(uid);
  return found == workers_.end() ? "" : shown(found->second.share);
}

std::string Shares::shown(const ShareName& name) const {
  const auto found = shares_.find(name);
  return found == shares_.end() ? name : found->second.spot.host;
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
  const auto found = shares_.find(action.share);
  if (found == shares_.end()) return;
  const ShareOf& share = found->second;
  if (const auto* order = std::get_if<wire::StartOrder>(&action.order)) {
    const auto worker = workers_.find(order->uid);
    if (worker == workers_.end()) return;
    WorkerStart start = worker->second.start;
    const std::vector<Slot>& slots = share.spot.slots;
    const auto slot = std::find(slots.begin(), slots.end(), start.slot);
    if (start.world == 0 && slot != slots.end())
      start.device = static_cast<int>(slot - slots.begin());
    tell_share(share, ShareStart{*order, std::move(start), key_});
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

// Beats are due twice a second anyway. Everything else waits for a share that is not there.
bool Shares::quiet() const {
  return !ending_ && pending_.empty() &&
         std::all_of(shares_.begin(), shares_.end(), [](const auto& entry) {
           return entry.second.connection >= 0 && entry.second.wanted && !entry.second.gone;
         });
}

void Shares::turn() {
  const auto now = Clock::now();
  if (now >= beat_at_) {
    beat_at_ = now + kShareBeat;
    beat();
  }
  if (now >= read_epoch_at_) {
    read_epoch_at_ = now + kReadEpoch;
    core_.read_epoch();
  }
  look_for_silence(now);
  exclude();
  if (ending_) give_up_hosts();
  start_pending();
  end_unwanted(now);
  fail_without_hosts();
}

// No share could be started, so no worker can.
void Shares::fail_without_hosts() {
  const bool hope = std::any_of(shares_.begin(), shares_.end(), [this](const auto& entry) {
    return entry.second.ever || !starter_->over(entry.first);
  });
  if (hope || shares_.empty() || pending_.empty()) return;
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
    if (starter_->over(name)) core_.share_gone(name);
    if (!ending_) hooks_.say(fmt::format("host {} does not answer", shown(name)));
  }
  for (const auto& [uid, worker] : workers_) {
    if (worker.connection >= 0 && now - worker.heard > kShareSilence)
      quiet.push_back(worker.connection);
  }
  for (const int key : quiet) server_.drop(key);
}

void Shares::exclude() {
  const bool anybody = std::any_of(workers_.begin(), workers_.end(), [&](const auto& worker) {
    const ShareOf& share = shares_.at(worker.second.share);
    return share.silent || share.gone;
  });
  if (anybody) (void)core_.exclude_silent();
  if (round_ > 0) (void)core_.look_for_end();
  collect_gone();
}

// Nobody saw their end: they were excluded, or their round has ended without their share.
void Shares::collect_gone() {
  std::vector<Uid> gone;
  for (const auto& [uid, worker] : workers_) {
    const Roster& roster = core_.roster();
    if (roster.is_gone(uid) || !roster.workers.contains(uid)) gone.push_back(uid);
  }
  for (const Uid uid : gone) {
    const bool ended = shares_.at(workers_.at(uid).share).gone;
    hooks_.say(fmt::format("worker {} is excluded, because {} {}", uid,
                           ended ? "its share has ended on host" : "there is no answer from host",
                           host_of(uid)));
    hooks_.blameless(uid);
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

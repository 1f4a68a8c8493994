#include "rubato/elastic/session.h"

#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fmt/format.h>
#include <future>
#include <sys/resource.h>

#include "rubato/base/check.h"
#include "rubato/elastic/samples.h"

namespace rubato::elastic {

using member::Member;
using member::Membership;
using member::Uid;

namespace {

constexpr std::chrono::milliseconds kTick{100};
// At most this much state is on its way to a joining worker. The rest is read from the live tensors
// later.
constexpr std::size_t kFeedWindow = std::size_t{4} << 20U;
// Texts on the board. A group of n workers pins 2n of them.
constexpr std::size_t kMostPinned = std::size_t{1} << 14U;

// A joining worker loads at a low priority. A member must be as fast as the others. Each thread has
// its own priority.
void restore_priority() {
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return;
  while (const dirent* task = readdir(tasks)) {
    const long id = std::atol(task->d_name);
    if (id > 0) setpriority(PRIO_PROCESS, static_cast<id_t>(id), 0);
  }
  closedir(tasks);
}

Slice slice_of(const StepPlan& plan) { return {plan.epoch, plan.cursor, plan.samples}; }

}  // namespace

Session::Session(Config config) : config_(std::move(config)), membership_(config_.place.uid) {
  if (config_.place.spans_hosts()) standing_.emplace(config_.place.uid, config_.place.key->round);
  transport_ = std::make_unique<Transport>(
      poller_,
      Transport::Hooks{[this](Uid from, const Header& header) { return where(from, header); },
                       [this](Uid from, const Header& header) { arrived(from, header); },
                       [this](Uid peer) { on_lost_data(peer); }});
  reduction_ = (config_.group ? make_group_reduction : make_tree_reduction)(
      config_.place.uid, config_.layout, *transport_);
  member::Links::Hooks hooks;
  hooks.welcome = [this](const wire::Welcome& welcome) { on_welcome(welcome); };
  hooks.plan = [this](const member::MembershipPlan& plan) { on_plan(plan); };
  hooks.stop = [this] {
    stop_requested_ = true;
    // Members end together, at a step. A worker that still waits to join has nothing more to wait
    // for.
    if (!membership_.record() && !founder_) push(End{wire::kLeft, ""});
  };
  hooks.throttle = [this](double share) { share_ = share; };
  hooks.orphaned = [this] {
    if (!welcomed_) push(End{wire::kLeft, "the launcher ended before it answered this worker"});
    look_stranded();
  };
  hooks.difference = config_.difference;
  hooks.roster = [this](const wire::RosterWord& word) { on_roster(word); };
  hooks.standing = [this](std::int64_t connection) {
    return standing_->hello(membership_, connection);
  };
  hooks.connected = [this](Uid peer) { on_connected(peer); };
  hooks.message = [this](Uid from, const Json& message) { on_message(from, message); };
  hooks.data = [this](Uid from, std::int64_t recovery, wire::Link link) {
    on_data(from, recovery, std::move(link));
  };
  hooks.lost = [this](Uid peer) { on_lost(peer); };
  hooks.dead = [this](Uid peer) { on_dead(peer); };
  hooks.refused = [this](const std::string& why) {
    links_->notice("refused", {{"text", why}});
    push(End{wire::kRefused, why});
  };
  links_ = std::make_unique<member::Links>(poller_, config_.place, config_.identity, hooks);
  for (std::vector<float>& result : results_) result.resize(config_.layout.total);
}

Session::~Session() { close(); }

Result<void> Session::start() {
  if (Result<void> started = links_->start(); !started) return started;
  thread_ = std::thread([this] { run(); });
  return {};
}

void Session::run() {
  while (!closing_) {
    poller_.wait(kTick);
    pump_feeds();
    links_->tick(std::chrono::steady_clock::now(), membership_.applied());
    if (standing_) keep_data();
  }
  transport_->flush();
  links_->flush_launcher();
}

void Session::retire() {
  if (!thread_.joinable()) return;
  std::promise<void> done;
  post([this, &done] {
    retired_ = true;
    active_ = false;
    transport_->flush();
    links_->flush_launcher();
    done.set_value();
  });
  done.get_future().wait();
}

void Session::close() {
  if (!thread_.joinable()) return;
  // Through the queue, so that everything before it is done first.
  post([this] { closing_ = true; });
  thread_.join();
}

void Session::push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

Session::Event Session::next() {
  std::unique_lock lock(mutex_);
  arrived_.wait(lock, [this] { return !events_.empty(); });
  Event event = std::move(events_.front());
  events_.pop_front();
  return event;
}

std::optional<Session::Event> Session::next(std::chrono::milliseconds at_most) {
  {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, at_most, [this] { return !events_.empty(); })) return {};
  }
  return next();  // nobody else takes events
}

// --- what the trainer says ---

void Session::found(const StepPlan& first, const member::MembershipGeneration& after) {
  post([this, first, after] {
    if (over_) return;
    if (standing_) membership_.located(config_.place.uid, links_->own_host());
    membership_.found(membership_.newest_plan(), first, after);
    trainer_applied_ = first.step - 1;
    take_members(*membership_.record());
    begin_step();
  });
}

void Session::bucket_ready(std::int64_t attempt, int bucket, const std::vector<float*>& sums) {
  post([this, attempt, bucket, sums] {
    if (!active_ || attempt != attempts_) return;
    reduction_->ready(bucket, sums);
    look_complete();
  });
}

void Session::reduced(std::int64_t attempt, std::span<const float> result) {
  post([this, attempt, result] {
    if (!active_ || attempt != attempts_) return;
    reduction_->supply(result);
    look_complete();
  });
}

void Session::say(std::int64_t attempt, Word word, std::function<StepPlan(int)> next_plan) {
  post([this, attempt, word = std::move(word), next_plan = std::move(next_plan)]() mutable {
    if (!active_ || attempt != attempts_) return;
    const Record& record = *membership_.record();
    word.uid = config_.place.uid;
    word.step = membership_.next().step;
    word.ready = membership_.ready_peers();
    if (standing_) word.broken = membership_.broken_joiners();
    if (record.leader() == word.uid) {
      // No worker is accepted for a step that will not happen.
      member::Proposal proposal{membership_.next().finish ? record : membership_.propose(), {}};
      proposal.plan = next_plan(static_cast<int>(proposal.record.working().size()));
      word.proposal = {proposal};
    }
    Header header;
    header.kind = Kind::word;
    header.step = word.step;
    const std::string text = Json(word).dump();
    for (const Member& member : record.members) {
      if (member.uid != word.uid && !membership_.is_dead(member.uid)) {
        transport_->send_text(member.uid, header, text);
      }
    }
    words_[word.uid] = std::move(word);
    look_complete();
  });
}

void Session::applied(member::Step step, std::vector<StateChunk> chunks, bool level, Json about) {
  post([this, step, chunks = std::move(chunks), level, about = std::move(about)]() mutable {
    trainer_applied_ = step;
    chunks_ = std::move(chunks);
    adopt_joining(about);
    if (level) say_level();
    transport_->retry();
  });
}

// Sent after every step until the others count on this worker.
void Session::say_level() {
  if (!membership_.record() || membership_.role() != Role::joining) return;
  const std::vector<Member> members = membership_.record()->members;
  for (const Member& member : members) {
    const bool there = transport_->connected(member.uid) || membership_.is_dead(member.uid);
    if (member.uid != config_.place.uid && !there) return;
  }
  // As soon as they have heard it, they wait for this worker in every step.
  raise_priority();
  const Json message = {{"type", "level"}, {"level", membership_.own_level()}};
  for (const Member& member : members) links_->send(member.uid, message);
}

void Session::caught_up(member::Step step) {
  post([this, step] {
    trainer_applied_ = step;
    if (!expected_gradient_ || expected_gradient_->applied != step) return;
    expected_gradient_.reset();
    membership_.caught_up();
    begin_step();
  });
}

void Session::fail(const std::string& why) {
  post([this, why] {
    active_ = false;
    links_->broadcast({{"type", "failed"}, {"text", why}});
    push(End{wire::kJobFailed, why});
  });
}

void Session::pin(const std::string& key, const std::string& text) {
  remember(key, text);
  post([this, key, text] { links_->broadcast({{"type", "pin"}, {"key", key}, {"text", text}}); });
}

std::optional<std::string> Session::pinned(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = board_.find(key);
  return found == board_.end() ? std::nullopt : std::optional(found->second);
}

void Session::remember(const std::string& key, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (board_.insert_or_assign(key, text).second) board_order_.push_back(key);
  if (board_order_.size() <= kMostPinned) return;
  board_.erase(board_order_.front());
  board_order_.pop_front();
}

void Session::report(const Json& content) {
  post([this, content] { links_->report(content); });
}
void Session::notice(const std::string& kind, const Json& content) {
  post([this, kind, content] { links_->notice(kind, content); });
}

// --- launcher and peers ---

void Session::on_welcome(const wire::Welcome& welcome) {
  membership_.plan(welcome.plan);
  founder_ = welcome.founder;
  welcomed_ = true;
  if (founder_) {
    links_->holds_state();
    push(Found{});
  }
  links_->dial(welcome.peers);
  look_joined();
}

void Session::on_plan(const member::MembershipPlan& plan) {
  membership_.plan(plan);
  leaving_ = !planned();
  if (!membership_.record() && !founder_ && !planned()) push(End{wire::kLeft, ""});
}

// The order matters: a worker that is gone ends before it acts on anything else.
void Session::on_roster(const wire::RosterWord& word) {
  if (over_) return;
  const std::size_t known = standing_->gone().size();
  const bool new_master = word.epoch > standing_->epoch() && standing_->epoch() > 0;
  const member::Standing::Verdict verdict = standing_->hear(word);
  if (verdict == member::Standing::Verdict::refused) return;
  if (verdict == member::Standing::Verdict::ends) return end_as_gone();
  const std::vector<Uid>& gone = standing_->gone();
  for (std::size_t i = known; i < gone.size(); ++i) forget(gone[i]);
  membership_.gone(gone);
  membership_.plan(word.plan);
  perform_actions();
  welcomed_ = true;
  // What the earlier master was told is not in the roster.
  if (new_master && membership_.record()) notice_members(*membership_.record());
  if (standing_->may_found()) {
    founder_ = true;
    links_->holds_state();
    push(Found{});
  }
  links_->dial(word.peers);
  look_joined();
  if (!membership_.record() && !founder_ && !planned()) push(End{wire::kLeft, ""});
}

void Session::end_as_gone() {
  membership_.gone({config_.place.uid});  // from now on it does nothing
  perform_actions();
}

// Across hosts also when a connection that broke was made again.
void Session::on_connected(Uid peer) {
  const bool member = membership_.record() && membership_.record()->find(peer) != nullptr;
  if (links_->dials(peer) && !member) dial_fresh(peer);
  // A peer that connects now may be the leader by the time this worker is accepted.
  if (said_joined_) links_->send(peer, {{"type", "ready"}});
  if (standing_) {
    membership_.reconnected(peer);
    perform_actions();
  }
  look_joined();
}

// The control connection broke. Across hosts the data connection cannot be trusted, either.
void Session::on_lost(Uid peer) {
  if (standing_) {
    said_ready_.erase(peer);
    early_data_.erase(peer);
    transport_->drop(peer);
    membership_.unready(peer);
  }
  membership_.lost(peer);
  perform_actions();
}

// Makes data connections with workers that wait to become members again, where this worker dials.
void Session::keep_data() {
  links_->say_standing();
  if (membership_.record() && membership_.recovering()) return;
  for (const Uid peer : links_->linked_peers()) {
    const bool member = membership_.record() && membership_.record()->find(peer) != nullptr;
    if (!member && links_->dials(peer) && !transport_->connected(peer)) dial_fresh(peer);
  }
}

bool Session::planned() const {
  const std::vector<Uid>& workers = membership_.newest_plan().workers;
  return std::find(workers.begin(), workers.end(), config_.place.uid) != workers.end();
}

void Session::dropped() {
  if (active_) interrupt();  // its donor has told it so in the middle of a step
  if (!planned()) {
    push(End{wire::kLeft, ""});
    return;
  }
  for (const Uid peer : links_->peers()) {
    if (links_->dials(peer)) dial_fresh(peer);
  }
  look_stranded();
}

// All peers have answered, and the data connections exist.
void Session::look_joined() {
  if (said_joined_ || founder_ || !welcomed_ || !links_->dialled()) return;
  said_joined_ = true;
  links_->broadcast({{"type", "ready"}});
  look_stranded();
}

void Session::dial_data(Uid peer, std::int64_t recovery) {
  member::Links::Dialled dialled = links_->dial_data(peer, recovery);
  if (!dialled.link.open()) return;
  transport_->connect(peer, std::move(dialled.link), std::move(dialled.greeting));
}

// What still waits to be sent belongs to an attempt to join that is over.
void Session::dial_fresh(Uid peer) {
  transport_->drop(peer);
  dial_data(peer, member::Links::kFresh);
  look_ready(peer);
}

// Across hosts the master knows this from what each worker says about itself.
void Session::look_stranded() {
  if (retired_ || standing_) return;
  if (!welcomed_ || !said_joined_ || membership_.record() || links_->somebody_holds_state()) return;
  links_->notice("stranded", Json::object());
  if (!links_->launched()) push(End{wire::kLeft, "neither a launcher nor a member is left"});
}

void Session::on_message(Uid from, const Json& message) {
  try {
    const auto type = message.at("type").get<std::string>();
    if (type == "ready") {
      said_ready_.insert(from);
      look_ready(from);
    } else if (type == "level") {
      membership_.level(from, message.at("level").get<member::Level>());
    } else if (type == "report") {
      const auto report = message.at("report").get<member::Report>();
      if (!standing_) bury_unknown(report.record);
      membership_.report(from, report);
    } else if (type == "commit") {
      membership_.commit(from, message.at("commit").get<member::Commit>());
    } else if (type == "pin") {
      remember(message.at("key").get<std::string>(), message.at("text").get<std::string>());
    } else if (type == "failed") {
      active_ = false;
      push(End{wire::kJobFailed, message.at("text").get<std::string>()});
    }
  } catch (const Json::exception&) {
    return;  // not a Rubato worker
  }
  perform_actions();
}

// On one machine every living member was connected with this worker before either was accepted. A
// member without a connection ended before this worker came.
void Session::bury_unknown(const Record& record) {
  const std::vector<Uid> peers = links_->peers();
  for (const Member& member : record.members) {
    const bool known = std::find(peers.begin(), peers.end(), member.uid) != peers.end();
    if (!known && member.uid != config_.place.uid) membership_.dead(member.uid);
  }
}

void Session::look_ready(Uid peer) {
  if (!said_ready_.contains(peer) || !transport_->connected(peer)) return;
  if (standing_) membership_.located(peer, links_->host_of(peer));
  membership_.ready(peer);
}

void Session::on_data(Uid from, std::int64_t recovery, wire::Link link) {
  if (recovery == member::Links::kFresh) {
    // Across hosts this worker may still count it as a joining member, and send it a step that the
    // other has given up. It would wait behind that for ever.
    const bool member = membership_.record() && membership_.record()->find(from) != nullptr;
    if (standing_ && member) {
      early_data_[from] = {recovery, std::move(link)};
      return;
    }
    take_fresh(from, std::move(link));
    return;
  }
  const std::int64_t ours = membership_.record() ? membership_.record()->recovery : -1;
  if (recovery < ours) return;
  if (recovery > ours || membership_.recovering()) {
    early_data_[from] = {recovery, std::move(link)};
    return;
  }
  transport_->connect(from, std::move(link));
  transport_->retry();
}

void Session::take_fresh(Uid from, wire::Link link) {
  transport_->drop(from);  // as in dial_fresh()
  transport_->connect(from, std::move(link));
  look_ready(from);
}

// Takes the fresh connections of workers that are no members any more.
void Session::take_early_fresh() {
  for (auto it = early_data_.begin(); it != early_data_.end();) {
    const bool member = membership_.record() && membership_.record()->find(it->first) != nullptr;
    if (member || it->second.first != member::Links::kFresh) {
      ++it;
      continue;
    }
    take_fresh(it->first, std::move(it->second.second));
    it = early_data_.erase(it);
  }
}

void Session::on_lost_data(Uid peer) {
  membership_.unready(peer);
  membership_.lost(peer);
  perform_actions();
  if (!standing_) redial_waiting();  // else keep_data() does, with a pause in between
}

// A recovery closes the connections with joining workers. The side that connected must connect
// again.
void Session::redial_waiting() {
  // The last words are sent until nothing is unsent, and a new connection begins with a greeting.
  if (retired_ || closing_) return;
  if (!membership_.record() || membership_.recovering()) return;
  for (const Uid peer : links_->peers()) {
    const bool waits = membership_.record()->find(peer) == nullptr;
    if (waits && links_->dials(peer) && !transport_->connected(peer)) dial_fresh(peer);
  }
}

void Session::forget(Uid peer) {
  died_.push_back(peer);
  links_->forget(peer);
  transport_->forget(peer);
  feeds_.erase(peer);
  said_ready_.erase(peer);
  early_data_.erase(peer);
  discarded_.erase(peer);
}

void Session::on_dead(Uid peer) {
  forget(peer);
  membership_.dead(peer);
  perform_actions();
  look_joined();
  look_stranded();
}

// --- recovery ---

void Session::perform_actions() {
  if (retired_) {
    (void)membership_.take_actions();  // its peers end, too
    return;
  }
  for (std::vector<Membership::Action> actions = membership_.take_actions(); !actions.empty();
       actions = membership_.take_actions()) {
    for (const Membership::Action& action : actions) {
      if (const auto* report = std::get_if<Membership::SendReport>(&action)) {
        links_->send(report->to, {{"type", "report"}, {"report", report->report}});
      } else if (const auto* commit = std::get_if<Membership::SendCommit>(&action)) {
        links_->send(commit->to, {{"type", "commit"}, {"commit", commit->commit}});
      } else if (const auto* told = std::get_if<Membership::SendDropped>(&action)) {
        // On one machine a connection breaks only if a process ends: the joiner gets all words.
        if (!standing_) continue;
        Header header;
        header.kind = Kind::dropped;
        transport_->send_text(told->to, header, Json(told->attempt).dump());
      } else if (std::holds_alternative<Membership::Interrupted>(action)) {
        interrupt();
      } else if (const auto* go_on = std::get_if<Membership::Resume>(&action)) {
        resume(go_on->commit, go_on->behind);
      } else if (std::holds_alternative<Membership::Leave>(action)) {
        push(End{wire::kLeft, ""});
      } else if (std::holds_alternative<Membership::Dropped>(action)) {
        dropped();
      } else if (std::holds_alternative<Membership::Excluded>(action)) {
        over_ = true;
        active_ = false;
        attempt_ = ++attempts_;
        push(End{wire::kLeft, "the others count this worker as gone"});
      } else {
        look_stranded();
      }
    }
  }
}

// Closes the connections, so that all other workers notice the interruption, too.
void Session::interrupt() {
  active_ = false;
  expected_gradient_.reset();
  interrupted_at_ = std::chrono::steady_clock::now();
  for (const Member& member : members_) {
    transport_->drop(member.uid);
    if (member.role == Role::joining) membership_.unready(member.uid);
  }
  members_.clear();
  texts_.clear();
  words_.clear();
  feeds_.clear();
  arriving_.clear();
  fed_ = member::kNoState;
  attempt_ = ++attempts_;
  push(Interrupted{});
}

void Session::resume(const member::Commit& commit, bool behind) {
  const Uid self = config_.place.uid;
  for (const Member& member : commit.record.members) {
    if (member.uid == self || membership_.is_dead(member.uid)) continue;
    if (links_->dials(member.uid)) {
      dial_data(member.uid, commit.record.recovery);
    } else if (const auto early = early_data_.find(member.uid);
               early != early_data_.end() && early->second.first == commit.record.recovery) {
      transport_->connect(member.uid, std::move(early->second.second));
      early_data_.erase(early);
    }
  }
  redial_waiting();
  if (commit.holder == self) {
    Header header;
    header.kind = Kind::catch_up;
    header.step = commit.applied;
    for (const Uid uid : commit.behind) {
      transport_->send(uid, header,
                       std::as_bytes(std::span<const float>(result_of(commit.applied))));
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - interrupted_at_;
  links_->notice("recovered", {{"dead", died_},
                               {"seconds", took.count()},
                               {"step", commit.record.first},
                               {"generation", commit.record.generation}});
  died_.clear();
  take_members(commit.record);
  if (behind) {
    expected_gradient_ = commit;
    transport_->retry();
  } else {
    begin_step();
  }
}

// --- one step ---

void Session::take_members(const Record& record) {
  const Member* self = record.find(config_.place.uid);
  if (self != nullptr && self->role == Role::working) {
    if (!announced_) links_->notice("state", Json::object());
    announced_ = true;
    links_->holds_state();
    raise_priority();
  }
  notice_members(record);
}

void Session::raise_priority() {
  if (std::exchange(config_.place.niced, false)) restore_priority();
}

// The leader says it for all.
void Session::notice_members(const Record& record) {
  const std::vector<Uid> working = record.working();
  if (working.empty() || working.front() != config_.place.uid) return;
  Json content(record);
  content["uids"] = Json::array();
  for (const Member& member : record.members) content["uids"].push_back(member.uid);
  links_->notice("members", content);
}

void Session::begin_step() {
  const Record& record = *membership_.record();
  const StepPlan& plan = membership_.next();
  Geometry geometry;
  geometry.step = plan.step;
  geometry.leaves = plan.finish ? 0 : existing_leaves(slice_of(plan), plan.leaves);
  geometry.working = record.working();
  geometry.result = result_of(plan.step);
  for (const Member& member : record.members) {
    if (member.role == Role::working) geometry.hosts.push_back(member.host);
    if (member.role == Role::joining && !membership_.is_dead(member.uid)) {
      geometry.listening.push_back(member.uid);
    }
  }
  // A joining worker may not have received the result of two steps ago yet.
  transport_->make_private(std::as_bytes(result_of(plan.step)));
  reduction_->begin(geometry);
  words_.clear();
  members_ = record.members;
  take_early_fresh();
  active_ = true;
  attempt_ = ++attempts_;

  const Uid self = config_.place.uid;
  for (auto it = feeds_.begin(); it != feeds_.end();) {
    const Member* member = record.find(it->first);
    it = member == nullptr || member->role != Role::joining ? feeds_.erase(it) : std::next(it);
  }
  Work work;
  work.attempt = attempts_;
  work.record = record;
  work.plan = plan;
  work.leaves = geometry.leaves;
  work.role = membership_.role();
  work.leader = record.leader() == self;
  const std::vector<Range> ranges = geometry.ranges();
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (geometry.working[i] == self) work.range = ranges[i];
  }
  push(std::move(work));
  transport_->retry();
}

// Called when the words of all workers are here. Every worker has the same words, so all draw the
// same conclusion.
std::string Session::disagreement() const {
  const auto& [first_uid, first] = *words_.begin();
  for (const auto& [uid, word] : words_) {
    if (word.digest != first.digest) {
      return fmt::format(
          "before step {} worker {} has state digest {} and worker {} has {}; the replicas differ, "
          "which is a fault of the model's code (unseeded randomness) or of a machine",
          word.step, first_uid, first.digest, uid, word.digest);
    }
  }
  return "";
}

// Only the words say which samples were used. The plan carries the count on, so that all workers
// have it: also those that join, and those that a recovery brings up to date.
void Session::count_samples(const StepPlan& plan) {
  StepPlan& next = words_.at(membership_.record()->leader()).proposal.at(0).plan;
  if (next.epoch != plan.epoch) return;
  next.used_mark = plan.used_mark;
  for (const auto& [uid, word] : words_) next.used_mark += word.mark;
}

void Session::look_complete() {
  if (!active_) return;
  const Record record = *membership_.record();
  const StepPlan plan = membership_.next();
  const Role role = membership_.role();
  if (role != Role::leaving && !reduction_->complete()) return;
  if (role == Role::joining && fed_ != plan.step - 1) return;
  for (const Uid uid : record.working()) {
    if (!words_.contains(uid)) return;
  }
  active_ = false;
  if (const std::string why = disagreement(); !why.empty()) {
    push(End{wire::kJobFailed, why});
    return;
  }
  stop_feeds();
  Completed event;
  event.record = record;
  event.plan = plan;
  event.role = role;
  event.result = result_of(plan.step);
  event.finite = reduction_->finite();
  event.sqr_norm = reduction_->sqr_norm();
  event.words = words_;
  for (auto& [index, chunk] : arriving_) {
    event.chunks.push_back({index, std::move(chunk.head), std::move(chunk.body)});
  }
  arriving_.clear();

  // The last step has no gradient. Completing it applies nothing and changes no record. If a member
  // dies now, the others repeat the step, and no worker is behind.
  if (plan.finish) {
    push(std::move(event));
    return;
  }
  count_samples(plan);
  membership_.completed(words_);
  if (membership_.record()) {
    const Record& next = *membership_.record();
    for (const Member& member : next.members) {
      if (member.role == Role::joining && member.donor == config_.place.uid) event.feeding = true;
    }
    if (!(next == record)) take_members(next);
  }
  push(std::move(event));
  perform_actions();
  if (membership_.record() && !membership_.recovering() && !active_) begin_step();
}

// --- state for joining workers ---

// Before anything of the step is sent to them, because they accept nothing else.
void Session::adopt_joining(const Json& about) {
  if (!active_) return;
  const Record& record = *membership_.record();
  for (const Member& member : record.members) {
    if (member.role != Role::joining || member.donor != config_.place.uid ||
        feeds_.contains(member.uid) || membership_.is_dead(member.uid)) {
      continue;
    }
    Header header;
    header.kind = Kind::adopt;
    header.step = membership_.next().step;
    const member::Proposal proposal{record, membership_.next()};
    transport_->send_text(member.uid, header,
                          Json{{"proposal", proposal}, {"about", about}}.dump());
    feeds_[member.uid] = {};
  }
}

void Session::pump_feeds() {
  for (auto& [uid, feed] : feeds_) {
    while (feed.next < static_cast<int>(chunks_.size()) && transport_->unsent(uid) < kFeedWindow) {
      const StateChunk& chunk = chunks_[static_cast<std::size_t>(feed.next)];
      Header header;
      header.kind = Kind::chunk;
      header.bucket = static_cast<std::uint32_t>(feed.next++);
      header.step = trainer_applied_;
      std::size_t bytes = 0;
      for (const auto& piece : chunk.body) bytes += piece.size();
      // The head says how many bytes follow.
      transport_->send_text(uid, header, Json{{"head", chunk.head}, {"bytes", bytes}}.dump());
      header.part = 1;
      for (const auto& piece : chunk.body) transport_->send(uid, header, piece);
    }
  }
}

// Called when the tensors are about to change.
void Session::stop_feeds() {
  if (!feeds_.empty()) transport_->make_private(Kind::chunk);
  for (const auto& [uid, feed] : feeds_) {
    Header header;
    header.kind = Kind::fed;
    header.step = membership_.next().step - 1;
    transport_->send(uid, header, {});
  }
  chunks_.clear();
}

// --- messages ---

std::byte* Session::where(Uid from, const Header& header) {
  const auto text = [&] {
    std::string& buffer = texts_[from];
    buffer.resize(std::max<std::size_t>(header.bytes, 1));
    return reinterpret_cast<std::byte*>(buffer.data());
  };
  const auto discard = [&] {
    std::vector<std::byte>& buffer = discarded_[from];
    buffer.resize(std::max<std::size_t>(header.bytes, 1));
    return buffer.data();
  };
  if (header.kind == Kind::adopt || header.kind == Kind::dropped) return text();
  if (header.kind == Kind::catch_up) {
    if (!expected_gradient_ || from != expected_gradient_->holder ||
        header.step != expected_gradient_->applied ||
        header.bytes != config_.layout.total * sizeof(float)) {
      return discard();
    }
    return reinterpret_cast<std::byte*>(result_of(header.step).data());
  }
  if (!active_) return nullptr;
  const member::Step current = membership_.next().step;
  const bool state = header.kind == Kind::chunk || header.kind == Kind::fed;
  const member::Step belongs_to = state ? header.step + 1 : header.step;
  if (belongs_to > current) return nullptr;
  if (belongs_to < current) return discard();
  switch (header.kind) {
    case Kind::word:
      return text();
    case Kind::fed:
      return discard();
    case Kind::chunk: {
      if (header.part == 0) return text();
      Arriving& chunk = arriving_[static_cast<int>(header.bucket)];
      if (chunk.filled + header.bytes > chunk.body.size()) return discard();
      return chunk.body.data() + chunk.filled;
    }
    default:
      // The trainer of a joining worker may still read the memory that would be overwritten.
      if (header.kind == Kind::result && trainer_applied_ < current - 2) return nullptr;
      return reduction_->where(from, header);
  }
}

void Session::arrived(Uid from, const Header& header) {
  const auto take_text = [&] {
    std::string text = std::move(texts_[from]);
    texts_.erase(from);
    text.resize(header.bytes);
    return parse_json(text, "message of a peer");
  };
  try {
    if (header.kind == Kind::adopt) {
      const Result<Json> message = take_text();
      if (!message || membership_.record()) return;
      const auto proposal = message->at("proposal").get<member::Proposal>();
      if (!standing_) bury_unknown(proposal.record);
      membership_.adopt(proposal);
      if (!membership_.record()) return;
      trainer_applied_ = membership_.next().step - 1;
      push(Adopted{message->at("about")});
      perform_actions();
      if (membership_.record() && !membership_.recovering()) begin_step();
      return;
    }
    if (header.kind == Kind::dropped) {
      const Result<Json> message = take_text();
      if (message) membership_.dropped(message->get<member::Level>());
      return perform_actions();
    }
    if (header.kind == Kind::catch_up) {
      if (!expected_gradient_ || from != expected_gradient_->holder ||
          header.step != expected_gradient_->applied) {
        return;
      }
      push(CatchUp{membership_.next(), result_of(header.step)});
      return;
    }
    const bool state = header.kind == Kind::chunk || header.kind == Kind::fed;
    const member::Step belongs_to = state ? header.step + 1 : header.step;
    if (!active_ || belongs_to != membership_.next().step) return;
    if (header.kind == Kind::word) {
      const Result<Json> message = take_text();
      if (!message) return;
      words_[from] = message->get<Word>();
    } else if (header.kind == Kind::fed) {
      fed_ = header.step;
    } else if (header.kind == Kind::chunk) {
      Arriving& chunk = arriving_[static_cast<int>(header.bucket)];
      if (header.part != 0) {
        chunk.filled += header.bytes;
        return;
      }
      const Result<Json> message = take_text();
      if (!message) return;
      message->at("head").get_to(chunk.head);
      chunk.body.resize(message->at("bytes").get<std::size_t>());
      return;
    } else {
      reduction_->arrived(from, header);
    }
  } catch (const Json::exception&) {
    return;  // not a Rubato worker
  }
  look_complete();
}

}  // namespace rubato::elastic

#include "rubato/daemon/daemon.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <utility>

#include "rubato/base/check.h"
#include "rubato/daemon/background_threads.h"
#include "rubato/engine/local_engine.h"
#include "rubato/engine/share_engine.h"
#include "rubato/engine/state_identity.h"
#include "rubato/http/listen.h"
#include "rubato/node/state_directory.h"
#include "rubato/wire/random_hex.h"
#include "rubato/wire/signals.h"

namespace rubato::daemon {
namespace {

using namespace std::chrono_literals;

// The engine checks its timeouts when its facts are collected.
constexpr auto kTick = 100ms;
constexpr Duration kPublishEvery = 250ms;
// A decision that takes longer continues beside the loop. Most take less time; their rows are then
// in the same transaction as the events that they are about.
constexpr auto kDecisionPatience = 10ms;
constexpr Duration kLookEvery = 1s;
constexpr std::uint64_t kOwnRequest = 0;
// Enough to finish the present requests, and to write a snapshot of many jobs.
constexpr std::size_t kMemoryReserve = std::size_t{64} << 20U;
// A disk is almost full if less than this share of it is free.
constexpr double kLittleDisk = 0.02;
constexpr std::size_t kNonceBytes = 16;

WallTime wall_clock() {
  return std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
}

Error cannot(const char* what, const std::string& path) {
  return Error{fmt::format("cannot {} {}: {}", what, path, std::strerror(errno))};
}

// Ignores errors: standard error may be a file on a full disk.
void say(const std::string& sentence) {
  std::fputs(fmt::format("rubato: {}\n", sentence).c_str(), stderr);
  std::fflush(stderr);
}

// Only its owner may read it. It is written completely or not at all.
Result<void> write_private(const std::string& path, const std::string& content) {
  const std::string fresh = path + ".new";
  const wire::Fd file(::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
                             S_IRUSR | S_IWUSR));
  if (!file.valid()) return cannot("write", fresh);
  if (::write(file.get(), content.data(), content.size()) != std::ssize(content) ||
      ::fsync(file.get()) != 0 || ::rename(fresh.c_str(), path.c_str()) != 0)
    return cannot("write", path);
  return {};
}

// The secret from which the tokens of jobs are derived. The journal has no tokens, and they must be
// the same after a restart.
Result<std::string> read_or_make_secret(const std::string& path) {
  std::ifstream file(path);
  std::string secret;
  if (file && std::getline(file, secret) && !secret.empty()) return secret;
  secret = new_token();
  if (auto written = write_private(path, secret + "\n"); !written) return written.error();
  return secret;
}

}  // namespace

// --- life ----------------------------------------------------------------------------------------

Result<std::unique_ptr<Daemon>> Daemon::open(DaemonOptions options) {
  std::unique_ptr<Daemon> daemon(new Daemon(std::move(options)));
  if (auto started = daemon->start(); !started) return started.error();
  return daemon;
}

Daemon::Daemon(DaemonOptions options)
    : options_(std::move(options)),
      memory_(kMemoryReserve),
      feed_({.epoch = fmt::format("{:x}", wall_clock().time_since_epoch().count())}) {}

// Threads that decide wake the loop, so they end before the loop is destroyed.
Daemon::~Daemon() {
  server_.reset();
  what_ifs_.reset();
  core_.reset();
  options_.core.background.reset();
}

Result<void> Daemon::start() {
  const std::string& state = options_.state_directory;
  // Checks the address before a journal is begun and agents are started.
  const HttpServerOptions& http = options_.http;
  if (http.tcp && http.tls.given()) {
    auto certificate = Certificate::open(http.tls);
    if (!certificate) return certificate.error();
  }
  if (http.tcp) {
    auto listens = listen_tcp(http.host, http.port, http.beyond_loopback || http.tls.given());
    if (!listens) return listens.error();
  }
  if (auto own = check_identity(state, options_.restored); !own) return own;
  if (auto made = make_state_directory(state); !made) return made.error();
  JournalOptions journal;
  journal.directory = state;
  journal.types = DaemonState::row_types();
  journal.snapshot_version = DaemonState::kSnapshotVersion;
  auto opened = Journal::open(journal);
  if (!opened) return opened.error();
  dropped_ = opened->dropped;
  continues_ = opened->journal.last() > RowNumber();
  auto claimed = claim_identity(state, options_.restored);
  if (!claimed) return claimed.error();
  shares_ = share_identity(*claimed);
  options_.core.managed = options_.managed.has_value();
  if (options_.managed) {
    if (auto made = make_shared(); !made) return made;
    if (auto answered = ask_manager(); !answered) return answered;
  }
  const bool had_secret = ::access((state + "/jobs.secret").c_str(), F_OK) == 0;
  auto secret = read_or_make_secret(state + "/jobs.secret");
  if (!secret) return secret.error();
  secret_ = std::move(*secret);
  const auto directories = jobs_with_directory(state);
  if (!directories) return directories.error();

  options_.core.jobs_directory = state + "/jobs";
  if (!directories->empty()) options_.core.newest_directory = directories->back();
  options_.core.check_directory = [this](JobId job) {
    return check_submission(options_.state_directory, job, token_of(job));
  };
  options_.core.texts = std::make_shared<JobTexts>(state + "/texts");
  options_.core.may_run = [this](const Caller& caller) { return job_users_.may_run(caller); };
  options_.core.may_grow = [this]() -> Result<void> {
    if (memory_.there()) return {};
    return Error{
        "the daemon is short of memory, so it accepts no new job; present jobs continue; try again "
        "when jobs have ended, or restart it with more memory"};
  };
  options_.core.problems = [this] { return problems(); };
  options_.core.background =
      std::make_shared<BackgroundThreads>(kDecisionPatience, [this] { poller_.post([] {}); });
  options_.core.stopwatch = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  auto core = Core::recover(std::move(*opened), options_.core, engine_, wall_clock());
  if (!core) return core.error();
  core_ = std::move(*core);
  note(core_->made_up_for());
  if (!had_secret && !options_.restored && !core_->state().jobs().empty()) {
    note(
        fmt::format("{}/jobs.secret was missing and was created again: jobs that have run before "
                    "cannot be restarted in their directories, and their logs cannot be shown.",
                    state));
  }
  began_at_ = core_->time();
  if (auto seated = seat_engine(); !seated) return seated.error();
  publish_callers();
  if (auto written = write_admin_token(); !written) return written.error();
  what_ifs_ = std::make_unique<WhatIfRuns>(poller_, state);
  options_.http.what_ifs = what_ifs_.get();
  options_.http.unix_path = state + "/api.sock";
  auto server = HttpServer::start(options_.http, *this, callers_, feed_);
  if (!server) return server.error();
  server_ = std::move(*server);
  return write_private(state + "/api.address", server_->address() + "\n");
}

void Daemon::note(const std::string& sentence) {
  if (!sentence.empty()) dropped_ += (dropped_.empty() ? "" : " ") + sentence;
}

// The journal begins with the nodes that the manager has. Later ones join them.
Result<void> Daemon::ask_manager() {
  manager_ = options_.managed->manager(shares_ + "-");
  if (continues_) return {};
  auto cluster = cluster_of(*manager_);
  if (!cluster) {
    return Error{
        fmt::format("{} cannot be used: {}", options_.managed->name, cluster.error().message)};
  }
  options_.core.cluster = std::move(*cluster);
  return {};
}

// Several daemons may be given the same directory.
Result<void> Daemon::make_shared() {
  std::string& shared = options_.managed->shared;
  if (shared.empty()) return {};
  shared += "/" + shares_;
  return make_directory_of_jobs(shared);
}

Result<void> Daemon::seat_engine() {
  engine_.seat(make_engine());
  if (auto opened = engine_->open(told()); !opened) return opened;
  say_operators_words();
  return {};
}

std::unique_ptr<LiveEngine> Daemon::make_engine() {
  AgentsOptions options;
  options.state_directory = options_.state_directory;
  options.lease = options_.lease;
  options.launch_of = [this](JobId job) {
    JobLaunch launch = core_->launch_of(job);
    launch.token = token_of(job);
    launch.user = job_users_.runs_as(launch.user);
    return launch;
  };
  const DaemonState& state = core_->state();
  Cluster cluster = state.now().cluster;
  for (std::size_t i = 0; i < cluster.nodes().size(); ++i) {
    const NodeId node(static_cast<NodeId::rep>(i));
    cluster.set_state(node, state.reported(node));
  }
  if (!options_.managed)
    return std::make_unique<LocalEngine>(poller_, LocalEngineOptions{options, std::move(cluster)});
  const ManagedBy& managed = *options_.managed;
  return std::make_unique<ShareEngine>(
      poller_,
      ShareEngineOptions{options, std::move(cluster), std::move(manager_), shares_, managed.shared,
                         managed.native_env, managed.host_address, managed.share_program});
}

// In a copied directory no job runs, so all jobs must be started again.
std::vector<KnownJob> Daemon::told() const {
  std::vector<KnownJob> jobs = core_->told();
  if (!options_.restored) return jobs;
  for (KnownJob& job : jobs) {
    if (const auto* resize = std::get_if<Resize>(&job.last))
      job.last = Start{resize->job, resize->generation, resize->gpus, resize->batch};
  }
  return jobs;
}

// The token of a job. It is the same after a restart, and no two submissions share one. Jobs of
// older versions have no nonce.
std::string Daemon::token_of(JobId job) const {
  Digester digester;
  digester.add(secret_).add(job.value());
  const JobRecord* record = core_->state().job(job);
  if (record != nullptr && record->nonce) digester.add(*record->nonce);
  const Digest digest = digester.finish();
  return hex({reinterpret_cast<const char*>(digest.data()),  // NOLINT(*-reinterpret-cast)
              digest.size()});
}

// The last daemon may have died after it stored commands and before it sent them.
void Daemon::say_operators_words() {
  for (const NodeMark& mark : core_->operators_words())
    mark.down ? engine_->mark_down(mark.node) : engine_->mark_up(mark.node);
}

// The first admin is the user who runs the daemon. So a job has the same owner through the socket
// and through the network. Other admins are added by users.
Result<void> Daemon::write_admin_token() {
  const std::string path = options_.state_directory + "/admin.token";
  if (::access(path.c_str(), F_OK) == 0) return {};
  const std::string token = new_token();
  const std::string name = system_name(::geteuid());
  const Digest hash = token_hash(token);
  const Caller self{name, true};
  const bool known = core_->state().users().contains(name);
  const Ask ask = known ? Ask(AddToken{name, hash}) : Ask(AddUser{name, true, 1e6, 0, hash});
  Turn turn = core_->turn(now(), wall_clock(), {Asked{kOwnRequest, {self, ask}}});
  for (const auto& [id, answer] : turn.answers) {
    if (answer.status >= 300)
      return Error{fmt::format("the first admin token could not be stored: {}",
                               answer.body.value("error", "no reason given"))};
  }
  pass_on(std::move(turn));
  return write_private(path, token + "\n");
}

// --- what is wrong around the core ---------------------------------------------------------------

std::vector<Problem> Daemon::problems() {
  std::vector<Problem> found;
  const std::string& state = options_.state_directory;
  if (auto may = options_.core.may_grow(); !may) {
    found.push_back({"the daemon is short of memory and accepts no new jobs",
                     "raise its memory limit (ulimit -v), or cancel waiting jobs"});
  }
  struct statvfs disk {};
  if (::statvfs(state.c_str(), &disk) == 0 && disk.f_blocks > 0) {
    const double left = static_cast<double>(disk.f_bavail) / static_cast<double>(disk.f_blocks);
    if (left < kLittleDisk) {
      found.push_back(
          {fmt::format("the disk of {} is almost full: {} MiB are left", state,
                       (static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize) >> 20U),
           "make room there; see --keep-journal and --log-limit of rubato up"});
    }
  }
  if (const std::string why = engine_->trouble(); !why.empty()) {
    found.push_back({fmt::format("{} does not answer: {}", options_.managed->name, why),
                     "jobs continue; what they should get is carried out when it answers again"});
  }
  if (!dropped_.empty()) {
    found.push_back(
        {fmt::format("the journal was repaired at the last start: {}", dropped_),
         "check whether jobs are missing; a restart of the daemon removes this message"});
  }
  return found;
}

// Reports once when the trouble begins, and once when it is over.
void Daemon::say_trouble() {
  const bool now = !core_->trouble().empty();
  if (now == in_trouble_ || core_->lost()) return;
  in_trouble_ = now;
  say(now ? fmt::format(
                "nothing can be stored, so no change is accepted; running jobs continue; the "
                "reason: {}",
                core_->trouble())
          : std::string("the journal can be written again"));
}

Time Daemon::now() const {
  return began_at_ +
         std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now() - began_);
}

void Daemon::watch_signals() {
  signals_ = wire::take_signals({SIGINT, SIGTERM, SIGHUP});
  poller_.add(signals_.get(), [this](wire::Poller::Ready) {
    signalfd_siginfo info{};
    while (read(signals_.get(), &info, sizeof(info)) == sizeof(info)) stopping_ = true;
  });
}

Result<void> Daemon::run() {
  watch_signals();
  while (!stopping_) {
    const auto due = std::max(core_->again_at() - now(), Duration(0));
    const auto wait = std::min<Duration>(due, kTick);
    poller_.wait(std::chrono::ceil<std::chrono::milliseconds>(wait));
    turn();
    if (core_->lost()) return Error{core_->trouble()};
    if (auto found = look_after_files(); !found) return found;
  }
  server_.reset();
  turn();
  if (core_->lost()) return Error{core_->trouble()};
  const auto& jobs = core_->state().now().jobs;
  if (std::all_of(jobs.begin(), jobs.end(), [](const JobView& job) { return job.held.empty(); }))
    engine_->retire();
  return core_->close();
}

// Checks the files that others may have deleted or moved while the daemon runs.
Result<void> Daemon::look_after_files() {
  if (now() < look_at_) return {};
  look_at_ = now() + kLookEvery;
  if (auto found = core_->check_place(); !found) return found;
  engine_->keep_reachable();
  return {};
}

// --- the loop ------------------------------------------------------------------------------------

void Daemon::ask(Request request, std::function<void(Answer)> callback) {
  if (auto* submit = std::get_if<SubmitJob>(&request.ask))
    submit->nonce = wire::random_hex(kNonceBytes);
  poller_.post([this, request = std::move(request), callback = std::move(callback)]() mutable {
    const std::uint64_t id = next_request_++;
    waiting_.emplace(id, std::move(callback));
    inputs_.emplace_back(Asked{id, std::move(request)});
  });
}

void Daemon::turn() {
  for (JobStatus& report : engine_->take_reports()) inputs_.emplace_back(std::move(report));
  pass_on(core_->turn(now(), wall_clock(), std::exchange(inputs_, {})));
  say_trouble();
  remove_a_directory();
}

void Daemon::pass_on(Turn turn) {
  for (const NodeMark& mark : turn.marks) {
    mark.down ? engine_->mark_down(mark.node) : engine_->mark_up(mark.node);
  }
  for (const JobId job : turn.gone) engine_->forget(job);
  for (const HistoryLine& line : turn.lines) {
    if (line.type == "node") fmt::print(stderr, "rubato: {}\n", line.text);
  }
  if (turn.users_changed) publish_callers();
  for (auto& [id, answer] : turn.answers) {
    const auto asker = waiting_.find(id);
    if (asker == waiting_.end()) continue;
    asker->second(std::move(answer));
    waiting_.erase(asker);
  }
  changed_.insert(turn.changed.begin(), turn.changed.end());
  forgotten_.insert(turn.forgotten.begin(), turn.forgotten.end());
  if (!core_->lost() && now() >= publish_at_) publish_changes();
}

// Removes one directory in each turn, because a directory may have many files.
void Daemon::remove_a_directory() {
  if (forgotten_.empty()) return;
  remove_job_directory(options_.state_directory, *forgotten_.begin());
  if (options_.managed && !options_.managed->shared.empty())
    remove_job_directory(options_.managed->shared, *forgotten_.begin());
  forgotten_.erase(forgotten_.begin());
}

// Changes are published a few times a second at most. So they are also written as JSON only that
// often.
void Daemon::publish_changes() {
  publish_at_ = now() + kPublishEvery;
  publisher_.publish(*core_, std::exchange(changed_, {}));
}

void Daemon::publish_callers() {
  Callers::Table table;
  for (const auto& [name, user] : core_->state().users()) {
    if (user.admin) table.admins.insert(name);
    for (const std::string& token : user.tokens) {
      if (const auto hash = parse_digest(token)) table.tokens[*hash] = {name, user.admin};
    }
    for (const PageToken& page : user.pages) {
      const auto hash = parse_digest(page.token);
      if (!hash) continue;
      table.tokens[*hash] = {name, user.admin};
      table.ends[*hash] = Callers::Clock::now() + (page.until - wall_clock());
    }
  }
  callers_.publish(std::move(table));
}

}  // namespace rubato::daemon

#include "rubato/node/master.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rubato/base/text.h"
#include "rubato/launch/processes.h"
#include "rubato/node/recorded_end.h"
#include "rubato/node/secrets.h"

namespace rubato::node {
namespace {

using namespace std::chrono_literals;

constexpr Duration kProgressEvery = 500ms;
constexpr Duration kFirstManagerWithin = 10s;
constexpr auto kLastWords = 3s;
constexpr Duration kWatchedWithin = 3s;  // a guest whose share is older than this stands still
constexpr int kReplaced = 1;             // exit code
constexpr auto kBetweenTries = 1s;
constexpr int kTriesToWriteExit = 600;
constexpr std::int64_t kEventsLimit = std::int64_t{16} << 20U;

WallTime wall_clock() {
  return std::chrono::time_point_cast<Duration>(std::chrono::system_clock::now());
}

// Drops the variables of a run around us, then adds those of the job, then our own.
Environment environment_for(const JobLaunch& launch, Environment environment) {
  std::erase_if(environment, [](const std::string& line) { return line.starts_with("RUBATO_"); });
  for (const auto& [name, value] : launch.env) set(environment, name, value);
  return environment;
}

RunSpec run_spec_of(const JobLaunch& launch, const Environment& environment) {
  RunSpec spec;
  spec.limits.start = static_cast<int>(launch.slots.size());
  spec.limits.most = std::max(spec.limits.start, launch.most);
  spec.limits.max_failures = launch.max_failures;
  spec.limits.grace = launch.grace;
  spec.limits.hello = launch.hello;
  spec.limits.silent = launch.silent;
  spec.limits.share = launch.opportunistic ? 0 : 1;  // until its agent has looked at its slots
  spec.slots = launch.slots;
  spec.live = launch.live;
  spec.name = launch.name;
  spec.token = launch.token;
  spec.command = launch.command;
  spec.environment = environment_for(launch, environment);
  spec.directory = launch.directory;
  spec.close_others = true;
  return spec;
}

JobEnd end_of(const Outcome& outcome) {
  const auto how = outcome.code == 0 ? JobEnd::How::finished
                   : outcome.stopped ? JobEnd::How::stopped
                                     : JobEnd::How::failed;
  return {how, outcome.code, outcome.why, outcome.infrastructure, wall_clock()};
}

bool has_ended(const JobFiles& files, const JobLaunch& launch) {
  auto exit = read_exit(files);
  const Generation fence = read_generation(files.fence());
  return must_not_begin(
      {launch.generation, launch.token, exit ? std::move(*exit) : std::nullopt, fence},
      launch.generation);
}

std::string checkpoint_of(const JobLaunch& launch, const JobFiles& files) {
  return launch.shares ? launch.shares->directory + "/checkpoint" : files.checkpoint();
}

// Takes the job over from the master before this one, if there was one.
Result<ManagedShares> shares_of(const JobFiles& files, const JobLaunch& launch) {
  auto roster = RosterFiles::open(files.roster());
  if (!roster) return roster.error();
  ManagedShares shares;
  shares.launch = *launch.shares;
  shares.start = static_cast<std::int64_t>(launch.generation.value());
  shares.job = fmt::format("job-{}", launch.job.value());
  shares.roster = std::move(*roster);
  return shares;
}

Result<void> check_directory(const std::string& directory) {
  if (directory.empty() || access(directory.c_str(), X_OK) == 0) return {};
  return Error{fmt::format("the working directory {}: {}", base::quoted(directory, 200),
                           std::strerror(errno))};
}

}  // namespace

// --- life ----------------------------------------------------------------------------------------

Result<std::unique_ptr<Master>> Master::open(const std::string& directory,
                                             const Environment& environment, int machine_gpus) {
  const JobFiles files{directory};
  const auto launch = read_launch(files);
  if (!launch) return launch.error();
  if (!*launch) return Error{fmt::format("{} is not there: nothing to launch", files.launch())};
  auto held = HeldDirectory::open(directory);
  if (!held) return held.error();
  return open(std::move(*held), **launch, environment, machine_gpus);
}

Result<std::unique_ptr<Master>> Master::open(HeldDirectory held, const JobLaunch& launch,
                                             const Environment& environment, int machine_gpus) {
  const JobFiles files{held.own_path()};
  const std::string path = held.path();
  auto socket = claim_socket(files.socket(),
                             fmt::format("{}: a master of this job is already running", path));
  if (!socket) return socket.error();
  // Write master.json first, then look for an end. An agent that takes this start for dead does the
  // reverse: it writes exit.json, then looks for processes to kill. So one of the two sees the
  // other.
  const auto named = write_json_file(files.master(), to_json(own_name()), Durable::no);
  if (!named || has_ended(files, launch)) {
    unlink(socket->path.c_str());
    return named ? Error{fmt::format("{}: this start has already ended", path)} : named.error();
  }
  const auto refused = [&](const Error& why, bool infrastructure = false) -> Error {
    const Error error = held.shown(why);
    const JobEnd end{JobEnd::How::failed, 2, error.message, infrastructure, wall_clock()};
    const JobExit exit{launch.generation, end, {}, 0, 0};
    const auto written = write_json_file(files.exit(), to_json(exit));
    unlink(socket->path.c_str());
    return written ? error : written.error();
  };
  // The directories of other hosts are looked at there.
  if (!launch.shares) {
    if (auto entered = check_directory(launch.directory); !entered) return refused(entered.error());
  }
  auto output = LimitedLog::open(files.log(), launch.log_limit);
  if (!output) return refused(output.error(), true);
  auto events = LimitedLog::open(files.events(), std::min(launch.log_limit, kEventsLimit));
  if (!events) return refused(events.error(), true);
  RunSpec spec = run_spec_of(launch, environment);
  Copies copies;
  if (launch.shares) {
    auto shares = shares_of(files, launch);
    if (!shares) return refused(shares.error(), true);
    spec.shares = std::move(*shares);
    auto contents = read_secrets(launch.secrets);
    if (!contents) return refused(contents.error());
    spec.shares->secrets = std::move(*contents);
  } else {
    auto secrets = hand_out_secrets({path}, launch.secrets);  // workers need the path
    if (!secrets) return refused(secrets.error());
    copies = std::move(*secrets);
  }
  // Programs that know nothing of Rubato may expect it to be there.
  mkdir(checkpoint_of(launch, files).c_str(), S_IRWXU);
  return std::unique_ptr<Master>(
      new Master(std::move(held), launch, machine_gpus, std::move(spec), std::move(*socket),
                 {std::move(*output), std::move(*events)}, std::move(copies)));
}

Master::Master(HeldDirectory held, JobLaunch launch, int machine_gpus, RunSpec spec,
               RunSocket socket, Logs logs, Copies secrets)
    : held_(std::move(held)),
      files_{held_.own_path()},
      launch_(std::move(launch)),
      machine_gpus_(machine_gpus),
      logs_(std::move(logs)),
      secrets_(std::move(secrets)),
      generation_(launch_.generation),
      batch_(launch_.batch),
      managed_at_(kStart + kFirstManagerWithin),
      launcher_(std::move(spec), std::move(socket), *this) {
  const auto run = launcher_.adopted_run();
  if (!run) return;
  if (run->place) {
    generation_ = run->place->generation;
    revision_ = run->place->revision;
    batch_ = run->place->batch;
  }
  stopping_ = run->stopped.has_value();
  if (run->stopped) generation_ = *run->stopped;
}

Master::~Master() { remove_secrets(files_); }

int Master::run() {
  say(launcher_.adopted_run()
          ? fmt::format("the launcher of job {} ({}) died; another one goes on",
                        launch_.job.value(), launch_.name)
          : fmt::format("start {} of job {} ({}) in {}", launch_.generation.value(),
                        launch_.job.value(), launch_.name, fmt::join(launch_.slots, " ")));
  const Outcome outcome = launcher_.run();
  if (launcher_.replaced()) return kReplaced;  // the next one says how it ends
  end(outcome);
  return outcome.code;
}

void Master::end(const Outcome& outcome) {
  const JobEnd end = end_of(outcome);
  const LaunchCounts& counts = launcher_.state().counts();
  log("end", {{"code", outcome.code},
              {"why", outcome.why},
              {"failures", counts.failures},
              {"resizes", counts.resizes},
              {"starts", counts.starts},
              {"fresh_starts", counts.fresh_starts},
              {"seconds", seconds(launcher_.now())}});
  say(outcome.code == 0 ? "finished" : fmt::format("ended: {}", outcome.why));
  logs_.output.flush();
  logs_.events.flush();
  remove_secrets(files_);
  write_exit(end);
  ended_ = end;
  tell_managers();
  launcher_.serve(kLastWords);
}

// The disk may be full for a while. Managers are told meanwhile, because the end is a fact.
void Master::write_exit(const JobEnd& end) {
  const LaunchCounts& counts = launcher_.state().counts();
  const JobExit exit{generation_, end, meter_.progress(launcher_.now()), counts.failures,
                     counts.resizes};
  for (int i = 0; i < kTriesToWriteExit; ++i) {
    if (write_json_file(files_.exit(), to_json(exit))) return;
    ended_ = end;
    tell_managers();
    launcher_.serve(kBetweenTries);
    usleep(std::chrono::microseconds(kBetweenTries).count());
  }
}

// --- what the workers say ------------------------------------------------------------------------

void Master::output(Uid uid, bool /*is_err*/, std::string_view line) {
  logs_.output.line(fmt::format("[{}] {}", uid, line));
}

void Master::say(const std::string& text) { logs_.output.line("rubato: " + text); }

void Master::log(const std::string& event, const Json& fields) {
  Json line = {{"time", std::chrono::duration<double>(wall_clock().time_since_epoch()).count()},
               {"event", event}};
  line.update(fields);
  logs_.events.line(line_of(line));
}

void Master::heard(Uid uid, const wire::FromWorker& message) {
  if (const auto* report = std::get_if<wire::Report>(&message)) {
    const int round = launcher_.state().counts().fresh_starts;
    const auto step = wire::read_step_report(report->content);
    if (!step || meter_.report(launcher_.now(), round, *step)) {
      log("report", {{"worker", uid}, {"content", report->content}});
    }
  } else if (const auto* notice = std::get_if<wire::Notice>(&message)) {
    log("notice", {{"worker", uid}, {"kind", notice->kind}, {"content", notice->content}});
    heard_notice(*notice);
  }
}

void Master::heard_notice(const wire::Notice& notice) {
  if (notice.kind == wire::notice::kFinished) meter_.finished();
  if (notice.kind != wire::notice::kMembers) return;
  if (const auto first = wire::read_members(notice.content).first) meter_.members_changed(*first);
}

// --- processes -----------------------------------------------------------------------------------

void Master::processes_changed() {
  if (launch_.shares) return;  // they are processes of other hosts
  const auto written = write_json_file(files_.workers(), to_json(launcher_.workers()), Durable::no);
  // Workers that are not named there are found by the token in their environment.
  if (!written) log("warning", {{"text", written.error().message}});
}

// Live workers see one GPU, their own. Programs that know nothing of us choose one of several by
// their LOCAL_RANK, as under torchrun.
std::optional<std::string> Master::visible_gpus(const StartWorker& start) const {
  if (machine_gpus_ == 0) return std::nullopt;
  const auto gpu = [this](const Slot& slot) {
    return device_of(parse_slot(slot).value_or(SlotPlace()), launch_.node_gpus, machine_gpus_)
        .value_or(0);
  };
  if (launch_.live) return fmt::format("{}", gpu(start.slot));
  std::vector<int> gpus;
  gpus.reserve(launcher_.state().slots().size());
  for (const Slot& slot : launcher_.state().slots()) gpus.push_back(gpu(slot));
  return fmt::format("{}", fmt::join(gpus, ","));
}

void Master::complete(Environment& environment, const StartWorker& start) const {
  for (const auto& [name, path] : secrets_) set(environment, name, path);
  const JobFiles here{held_.path()};
  set_default(environment, "RUBATO_CHECKPOINT", checkpoint_of(launch_, here));
  if (launch_.live && !launch_.shares) set(environment, "RUBATO_LAUNCHER", "unix:" + here.socket());
  set(environment, "RUBATO_START", fmt::format("{}", launch_.generation.value()));
  set(environment, "RUBATO_JOB", fmt::format("{}", launch_.job.value()));
  set(environment, "RUBATO_TOKEN", launch_.token);
  set(environment, "RUBATO_SLOT", start.slot);
  // A share knows its own GPUs.
  const auto gpus = launch_.shares ? std::nullopt : visible_gpus(start);
  if (gpus) set(environment, "CUDA_VISIBLE_DEVICES", *gpus);
  if (batch_) {
    set(environment, "RUBATO_BATCH", fmt::format("{},{}", batch_->per_gpu, batch_->accumulation));
  }
}

// --- managers ------------------------------------------------------------------------------------

void Master::asked(int connection, const Json& message) {
  const auto parsed = parse_to_master(message);
  const bool known = managers_.contains(connection);
  const auto* manage = parsed ? std::get_if<Manage>(&*parsed) : nullptr;
  if (!known && (manage == nullptr || manage->token != launch_.token)) {
    launcher_.hang_up(connection);
    return;
  }
  if (!parsed) {
    say(fmt::format("a manager: {}", parsed.error().message));
  } else if (manage != nullptr) {
    managers_[connection] = Manager();
    tell_managers();
  } else if (const auto* place = std::get_if<Place>(&*parsed)) {
    obey(*place);
  } else if (const auto* stop = std::get_if<StopJob>(&*parsed)) {
    obey(*stop);
  } else if (const auto* throttle = std::get_if<ThrottleJob>(&*parsed)) {
    obey(*throttle);
  } else {
    obey(KillJob());
  }
}

void Master::hung_up(int connection) { managers_.erase(connection); }

void Master::obey(const Place& place) {
  const auto age = std::pair(place.generation, place.revision);
  if (age <= std::pair(generation_, revision_) || stopping_) return;
  const auto placed = launcher_.place(place);
  if (!placed) {
    say(fmt::format("generation {}: {}", place.generation.value(), placed.error().message));
    return;
  }
  generation_ = place.generation;
  revision_ = place.revision;
  batch_ = place.batch;
  log("place", {{"generation", place.generation.value()}, {"slots", place.slots}});
  if (!launcher_.state().settled()) meter_.resize_asked(launcher_.now());
}

void Master::obey(const StopJob& stop) {
  if (stop.generation <= generation_) return;
  generation_ = stop.generation;
  stopping_ = true;
  log("stop", {{"generation", stop.generation.value()}});
  launcher_.stop_managed(stop.generation, "stopped by its manager");
}

void Master::obey(const KillJob&) {
  log("kill", Json::object());
  launcher_.state().kill_all(launcher_.now(), "killed");
}

void Master::obey(const ThrottleJob& throttle) {
  if (!launch_.opportunistic) return;
  watched_ = throttle.guest ? std::optional(launcher_.now()) : std::nullopt;
  if (launcher_.state().share() == throttle.share) return;
  log("throttle", {{"share", throttle.share}, {"guest", throttle.guest}});
  launcher_.state().throttle(throttle.share);
}

// Without its agent nobody sees whether the guest slows its host down. A program that is not ours
// cannot be slowed down at all.
void Master::stand_if_unwatched() {
  if (!watched_) return;
  const Time now = launcher_.now();
  if (now - *watched_ > kWatchedWithin) launcher_.state().throttle(0);
  if (!launcher_.state().silent() || stopping_) return;
  stopping_ = true;
  launcher_.state().kill_all(now,
                             "an opportunistic job must use Rubato's library, so that it can be "
                             "slowed down for the job beside it");
}

void Master::stop_if_alone() {
  const Time now = launcher_.now();
  if (!managers_.empty()) managed_at_ = now;
  if (!launch_.stop_after || stopping_ || now - managed_at_ < *launch_.stop_after) return;
  stopping_ = true;
  launcher_.state().stop_managed(now,
                                 fmt::format("stopped by itself: nobody has managed it for {:g} s",
                                             seconds(*launch_.stop_after)));
}

JobStatus Master::status() const {
  JobStatus status;
  status.job = launch_.job;
  status.generation = generation_;
  std::vector<SlotPlace> places;
  for (const Slot& slot : launcher_.state().slots_in_use()) {
    if (const auto place = parse_slot(slot)) places.push_back(*place);
  }
  std::sort(places.begin(), places.end());
  status.in_use.reserve(places.size());
  for (const SlotPlace& place : places) status.in_use.push_back(to_slot(place));
  status.running = launcher_.state().settled();
  status.progress = meter_.progress(launcher_.now());
  status.ended = ended_;
  status.failures = launcher_.state().counts().failures;
  status.resizes = launcher_.state().counts().resizes;
  status.pauses = meter_.pauses();
  status.silent = launcher_.state().silent();
  status.revision = revision_;
  status.shares = launcher_.shares();
  status.applied_at = meter_.applied_at();
  if (watched_) status.guest_share = launcher_.state().share();
  return status;
}

void Master::turn() {
  const bool settled = launcher_.state().settled();
  if (settled && !settled_) meter_.resize_settled(launcher_.now());
  settled_ = settled;
  stop_if_alone();
  stand_if_unwatched();
  tell_managers();
  logs_.output.flush();
  logs_.events.flush();
}

// What a manager was told a moment ago may change before the next progress is due.
bool Master::quiet() const {
  const Time now = launcher_.now();
  return !launch_.opportunistic && !launch_.stop_after &&
         std::all_of(managers_.begin(), managers_.end(), [now](const auto& entry) {
           return entry.second.told && now >= entry.second.progress_due;
         });
}

void Master::tell_managers() {
  if (managers_.empty()) return;
  const JobStatus now_true = status();
  for (auto& [connection, manager] : managers_) tell(connection, manager, now_true);
}

// A manager that does not read gets nothing more until it reads. Then it gets the newest status.
void Master::tell(int connection, Manager& manager, const JobStatus& now_true) {
  if (launcher_.unsent(connection)) return;
  if (manager.told) {
    JobStatus but_for_progress = now_true;
    but_for_progress.progress = manager.told->progress;
    but_for_progress.applied_at = manager.told->applied_at;
    const bool changed = but_for_progress != *manager.told;
    const bool due = launcher_.now() >= manager.progress_due && now_true != *manager.told;
    if (!changed && !due) return;
  }
  manager.told = now_true;
  manager.progress_due = launcher_.now() + kProgressEvery;
  launcher_.send(connection, status_message(now_true));
}

}  // namespace rubato::node

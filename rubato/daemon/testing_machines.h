// Machines for tests of the core: they live on when the daemon dies, and know how a job really
// runs.
//
//   Machines      the nodes with their agents and the jobs on them: the truth. Says at once when a
//   GPU
//                 is given to two jobs, a job runs twice at a time or a finished one is started.
//   MachineLink   an Engine: the daemon's end of the wires, gone when the daemon is. It tells each
//                 node again and again what its jobs should do, and makes facts of the statuses
//                 that come back. Messages may be dropped, doubled, delayed and overtaken.
//
// State-based as the real one (docs/live.md): no acknowledgements; the newest generation counts.
// Deterministic: randomness is a seed.
#pragma once

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/core/gpu_use.h"
#include "rubato/daemon/core.h"
#include "rubato/loop/engine.h"
#include "rubato/model/goodput.h"

namespace rubato::daemon {

// How a job really is.
struct TrueJob {
  Work work = 0;                            // in samples
  std::function<WorkRate(int gpus)> speed;  // samples a second
  int crashes = 0;                          // so often its program fails by itself
  bool hasty = false;                       // it is done before the last of its workers has loaded
  std::optional<Goodput> goodput;           // of one that chooses its batch by itself
};

struct MachineStatus {
  std::uint64_t number = 0;  // of a job's statuses, rising
  Generation started;        // by which Start it runs
  JobStatus status;
};

class Machines {
 public:
  Machines(Cluster cluster, std::uint64_t seed) : cluster_(std::move(cluster)), random_(seed) {
    alive_.assign(cluster_.nodes().size(), true);
  }

  // Asked when a job is first started.
  std::function<TrueJob(JobId)> truth;
  std::function<std::optional<WallTime>(Time)> wall;  // the clock of the machines, if they tell
  Duration restart = from_seconds(1);                 // from the last GPU to training
  Duration most_grace{};                              // a GPU is let go after up to so long
  std::set<NodeId> sick;                              // where no job can be started
  std::set<NodeId> in_trouble;                        // where that was found out
  std::vector<std::string> violations;

  // --- what agents are told ---

  void start(Time now, NodeId home, const Start& command) {
    if (!alive_[home.index()]) return;
    Run& run = runs_[command.job];
    if (run.finished) return touch(run);
    if (command.generation <= run.generation) return;
    if (run.alive) violate(now, command.job, "is started twice at a time");
    if (!run.known) run.job = truth(command.job);
    run.known = true;
    run.alive = true;
    run.home = home;
    run.started = run.generation = command.generation;
    run.ended.reset();
    run.target = command.gpus;
    run.stopping = false;
    ++run.starts;
    if (sick.contains(home)) {
      in_trouble.insert(home);
      return fail(now, run, "its disk is full", true);
    }
    take(now, command.job, run, command.gpus);
    run.ready_at = now + restart;
    touch(run);
  }

  void place(Time now, NodeId home, const Resize& command, std::optional<Generation> started) {
    Run* run = obeying(home, command.job, command.generation, started);
    if (run == nullptr) return;
    run->generation = command.generation;
    touch(*run);
    if (!run->alive) return;
    settle(now, *run);
    run->target = command.gpus;
    run->ready_at = now + restart;
    schedule_release(now, *run);
    take(now, command.job, *run, minus(command.gpus, run->use));
  }

  void stop(Time now, NodeId home, const Stop& command, std::optional<Generation> started) {
    Run* run = obeying(home, command.job, command.generation, started);
    if (run == nullptr) return;
    run->generation = command.generation;
    touch(*run);
    if (!run->alive) return;
    settle(now, *run);
    run->stopping = true;
    run->target = Allocation();
    schedule_release(now, *run);
  }

  // --- faults ---

  // All on the node dies, and with it every job that had a part there.
  void break_node(Time now, NodeId node) {
    alive_[node.index()] = false;
    for (auto& [id, run] : runs_) {
      if (!run.alive || (run.home != node && run.use.mask_on(node) == 0)) continue;
      fail(now, run, "its node died", true);
    }
  }
  void mend_node(NodeId node) { alive_[node.index()] = true; }
  // For good: what was told up to this generation, and may still be on its way, starts nothing.
  void kill(Time now, JobId id, Generation told) {
    Run& run = runs_[id];
    run.generation = std::max(run.generation, told);
    if (run.alive) settle(now, run);
    if (run.alive) fail(now, run, "killed", true);
  }
  [[nodiscard]] bool alive(NodeId node) const { return alive_[node.index()]; }

  // --- time ---

  // All that happens up to now.
  void advance(Time now) {
    for (auto& [id, run] : runs_) {
      if (!run.alive) continue;
      settle(now, run);
      if (run.finished) continue;
      if (run.release_at && *run.release_at <= now) release(run);
    }
  }

  [[nodiscard]] std::vector<MachineStatus> statuses(Time now, NodeId home) const {
    std::vector<MachineStatus> all;
    if (!alive_[home.index()]) return all;
    for (const auto& [id, run] : runs_) {
      if (run.home == home) all.push_back(status_of(now, id, run));
    }
    return all;
  }

  [[nodiscard]] bool finished(JobId id) const {
    const auto run = runs_.find(id);
    return run != runs_.end() && run->second.finished;
  }
  [[nodiscard]] Work done(JobId id) const {
    const auto run = runs_.find(id);
    return run == runs_.end() ? 0 : run->second.done;
  }
  [[nodiscard]] int finishes(JobId id) const {
    const auto run = runs_.find(id);
    return run == runs_.end() ? 0 : run->second.finishes;
  }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  struct Run {
    TrueJob job;
    bool known = false;
    bool alive = false;
    bool stopping = false;
    bool finished = false;
    int finishes = 0;
    int starts = 0;
    NodeId home;
    Generation started;
    Generation generation;
    Allocation use;     // processes are there
    Allocation target;  // should be
    std::optional<Time> release_at;
    Time ready_at = kNever;
    Time counted = kStart;
    Work done = 0;
    std::optional<JobEnd> ended;
    std::uint64_t number = 0;
  };

  static void touch(Run& run) { ++run.number; }

  void violate(Time now, JobId job, std::string_view what) {
    violations.push_back(fmt::format("{:.3f} s: job {} {}", seconds(now), job.value(), what));
  }

  // The run that is to obey; nullptr if the word is old. The Start may have been lost: whoever is
  // told to change what never began says that it is not there.
  Run* obeying(NodeId home, JobId id, Generation generation, std::optional<Generation> started) {
    if (!alive_[home.index()]) return nullptr;
    Run& run = runs_[id];
    if (generation <= run.generation) return nullptr;
    if (!run.alive && !run.finished &&
        (run.home != home || started.value_or(run.started) != run.started || !run.known)) {
      run.home = home;
      run.started = started.value_or(generation);
      run.ended = JobEnd{JobEnd::How::failed, 0, "it was not running", true};
    }
    return &run;
  }

  void take(Time now, JobId id, Run& run, const Allocation& gpus) {
    for (const auto& [other_id, other] : runs_) {
      if (other_id != id && other.alive && !common(other.use, gpus).empty())
        violate(now, id, fmt::format("is given GPUs that job {} uses", other_id.value()));
    }
    run.use.add(gpus);
    run.counted = std::max(now, run.counted);
    for (const Slice& slice : gpus.slices()) {
      if (!alive_[slice.node.index()]) return fail(now, run, "a node is not there", true);
    }
  }

  void schedule_release(Time now, Run& run) {
    const auto grace = most_grace.count() == 0
                           ? Duration(0)
                           : Duration(static_cast<std::int64_t>(
                                 random_.below(static_cast<std::uint64_t>(most_grace.count()))));
    run.release_at = now + grace;
    if (grace == Duration(0)) release(run);
  }

  void release(Run& run) {
    run.release_at.reset();
    run.use = common(run.use, run.target);
    touch(run);
    if (!run.stopping) return;
    run.alive = false;
    run.use = Allocation();
    run.ended = JobEnd{JobEnd::How::stopped, 0, "stopped"};
  }

  [[nodiscard]] bool trains(Time now, const Run& run) const {
    return run.alive && !run.stopping && run.use == run.target && !run.use.empty() &&
           !run.job.hasty && now >= run.ready_at;
  }

  // The work up to now; it may be all of it.
  void settle(Time now, Run& run) {
    const Time from = std::max(run.counted, run.ready_at);
    run.counted = now;
    if (run.stopping || run.use != run.target || run.use.empty() || now <= from) return;
    if (run.done == 0 && run.number > 0) touch(run);
    run.done += run.job.speed(run.use.gpus()) * seconds(now - from);
    if (run.job.crashes > 0 && run.done > 0.5 * run.job.work) {
      --run.job.crashes;
      return fail(now, run, "its program failed", false);
    }
    if (run.done < run.job.work) return;
    run.done = run.job.work;
    run.finished = true;
    ++run.finishes;
    run.alive = false;
    run.use = Allocation();
    run.ended = JobEnd{JobEnd::How::finished, 0, "", false, wall ? wall(now) : std::nullopt};
    touch(run);
  }

  void fail(Time now, Run& run, std::string why, bool infrastructure) {
    run.counted = now;
    run.alive = false;
    run.use = Allocation();
    run.ended = JobEnd{JobEnd::How::failed, 0, std::move(why), infrastructure};
    touch(run);
  }

  [[nodiscard]] MachineStatus status_of(Time now, JobId id, const Run& run) const {
    MachineStatus status;
    status.number = run.number;
    status.started = run.started;
    status.status.job = id;
    status.status.generation = run.generation;
    status.status.in_use = slots_of(run.use);
    status.status.running = trains(now, run);
    status.status.ended = run.ended;
    JobProgress& progress = status.status.progress;
    progress.samples = run.done;
    progress.step = static_cast<std::int64_t>(run.done / 10);
    progress.workers = run.use.gpus();
    progress.rate = status.status.running ? run.job.speed(run.use.gpus()) : 0;
    progress.step_rate = progress.rate / 10;
    if (run.job.goodput && status.status.running) tell_batch(run, progress);
    return status;
  }

  static void tell_batch(const Run& run, JobProgress& progress) {
    const Goodput& truth = *run.job.goodput;
    const Footprint place{run.use.nodes(), run.use.gpus()};
    const auto tuned = truth.best(place);
    if (!tuned) return;
    progress.batch = static_cast<int>(tuned->batch.global(place.gpus));
    progress.per_gpu = tuned->batch.per_gpu;
    progress.accumulation = tuned->batch.accumulation;
    progress.noise = truth.noise.scale(truth.limits.initial);
    progress.tuning = {truth.limits.initial, truth.limits.largest, truth.limits.per_gpu_max,
                       truth.time.iteration(place, tuned->batch),
                       truth.time.grad(tuned->batch.per_gpu)};
  }

  Cluster cluster_;
  Random random_;
  std::vector<bool> alive_;
  std::map<JobId, Run> runs_;
};

struct LinkFaults {
  double drop = 0;    // part of the messages that get lost
  double twice = 0;   // or arrive twice
  Duration latest{};  // they take up to so long, and overtake each other
};

class MachineLink final : public Engine {
 public:
  // `clock` is the machines' own, which goes on while the daemon is not there. Nodes that the core
  // believes to be unknown are so until they are heard; others have a lease to come.
  MachineLink(Machines& machines, const Time& clock, std::uint64_t seed,
              const std::vector<KnownJob>& told, const DaemonState& ledger)
      : machines_(machines), clock_(clock), random_(seed) {
    for (std::size_t n = 0; n < machines.cluster().nodes().size(); ++n) {
      const NodeState reported = ledger.reported(NodeId(static_cast<NodeId::rep>(n)));
      const bool silent = reported == NodeState::unknown || reported == NodeState::down;
      down_.push_back(reported == NodeState::down);
      silent_.push_back(silent);
      heard_.push_back(silent ? clock - 2 * lease : clock);
    }
    for (const KnownJob& one : told) {
      Job& job = jobs_[one.job];
      job.home = one.home;
      job.last = one.last;
      job.held = one.held;
      // A status of an earlier run may still be on its way when the next command comes.
      if (const auto* start = std::get_if<Start>(&one.last)) job.started = start->generation;
    }
  }

  LinkFaults faults;
  Duration lease = from_seconds(5);
  std::set<NodeId> cut;  // nodes whose agents cannot be reached, though all on them goes on
  // Called before each command goes out.
  std::function<void(const Command&)> before_command;

  void carry_out(Time /*now*/, std::span<const Command> commands) override {
    for (const Command& command : commands) {
      if (before_command) before_command(command);
      accept(command);
      tell(std::visit([](const auto& c) { return c.job; }, command));
    }
    deliver();
  }

  void collect(Time /*now*/, std::vector<Event>& facts) override {
    for (Event& fact : facts_) facts.push_back(std::move(fact));
    facts_.clear();
  }

  // For measuring: the newest status of each job that changed.
  std::vector<Input> take_reports() {
    std::vector<Input> reports;
    for (const JobId id : reported_) reports.emplace_back(jobs_[id].status.status);
    reported_.clear();
    return reports;
  }

  void forget(JobId id) { jobs_.erase(id); }

  // The operator's word: what is left of the jobs there is killed, then they have failed.
  void mark(const NodeMark& mark) {
    const std::size_t n = mark.node.index();
    if (down_[n] != mark.down) {
      down_[n] = mark.down;
      const NodeState back = silent_[n] ? NodeState::unknown : NodeState::up;
      facts_.emplace_back(NodeChanged{mark.node, mark.down ? NodeState::down : back});
    }
    if (!mark.down) return;
    for (auto& [id, job] : jobs_) {
      if (job.over || (job.home != mark.node && job.held.mask_on(mark.node) == 0)) continue;
      machines_.kill(clock_, id, generation_of(job.last));
      job.status.status.ended = JobEnd{JobEnd::How::failed, 0, "its node was lost", true};
      end(id, job);
    }
  }

  // Everything is told again, statuses and beats are sent.
  void pass() {
    machines_.advance(clock_);
    deliver();
    for (std::size_t n = 0; n < heard_.size(); ++n) {
      const NodeId node(static_cast<NodeId::rep>(n));
      if (!machines_.alive(node)) continue;
      send({node, true, {}, {}});
      for (MachineStatus& status : machines_.statuses(clock_, node))
        send({node, true, {}, std::move(status)});
    }
    for (const auto& [id, job] : jobs_) {
      if (!settled(job)) tell(id);
    }
    deliver();
    machines_.advance(clock_);
    watch();
  }

 private:
  struct Job {
    NodeId home;
    Command last;
    Allocation held;  // as far as the core knows
    std::optional<Generation> started;
    std::uint64_t number = 0;
    MachineStatus status;
    bool said_running = false;  // of the last command's generation
    bool over = false;          // its end was said
  };
  struct Message {
    NodeId node;
    bool to_daemon = false;
    std::optional<Command> command;
    std::optional<MachineStatus> status;               // none: a beat
    std::optional<Generation> started = std::nullopt;  // by which Start, if it is known
  };
  struct OnTheWay {
    Time at;
    std::uint64_t number;
    Message message;
  };

  static Generation generation_of(const Command& command) {
    return std::visit([](const auto& c) { return c.generation; }, command);
  }

  void accept(const Command& command) {
    const JobId id = std::visit([](const auto& c) { return c.job; }, command);
    Job& job = jobs_[id];
    job.last = command;
    job.said_running = false;
    if (const auto* start = std::get_if<Start>(&command)) {
      job.home = start->gpus.slices().front().node;
      job.started = start->generation;
      job.held = start->gpus;
      job.over = false;
    } else if (job.over) {
      answer_for_the_dead(command);
    } else if (const auto* resize = std::get_if<Resize>(&command)) {
      job.held.add(minus(resize->gpus, job.held));
    }
  }

  // Its end was said, but crossed with this command, to which it is too old.
  void answer_for_the_dead(const Command& command) {
    if (const auto* resize = std::get_if<Resize>(&command)) {
      facts_.push_back(failed(resize->job, jobs_[resize->job]));
    } else if (const auto* stop = std::get_if<Stop>(&command)) {
      facts_.emplace_back(Released{stop->job, stop->generation, {}, {}, true});
    }
  }

  [[nodiscard]] bool settled(const Job& job) const {
    return job.over || (job.number > 0 && job.status.status.generation == generation_of(job.last));
  }

  void tell(JobId id) {
    const auto job = jobs_.find(id);
    if (job != jobs_.end())
      send({job->second.home, false, job->second.last, {}, job->second.started});
  }

  void send(Message message) {
    if (random_.uniform() < faults.drop) return;
    const int copies = random_.uniform() < faults.twice ? 2 : 1;
    for (int i = 0; i < copies; ++i) {
      const auto delay = faults.latest.count() == 0
                             ? Duration(0)
                             : Duration(static_cast<std::int64_t>(random_.below(
                                   static_cast<std::uint64_t>(faults.latest.count()))));
      wires_.push_back({clock_ + delay, next_++, message});
    }
  }

  void deliver() {
    for (bool any = true; any;) {
      any = false;
      std::vector<OnTheWay> due;
      std::erase_if(wires_, [&](OnTheWay& one) {
        if (one.at > clock_) return false;
        due.push_back(std::move(one));
        return true;
      });
      std::sort(due.begin(), due.end(), [](const OnTheWay& a, const OnTheWay& b) {
        return std::pair(a.at, a.number) < std::pair(b.at, b.number);
      });
      for (OnTheWay& one : due) {
        any = true;
        if (!cut.contains(one.message.node)) arrive(one.message);
      }
    }
  }

  void arrive(Message& message) {
    if (message.to_daemon) {
      heard_[message.node.index()] = clock_;
      if (message.status) hear(message.node, *message.status);
      return;
    }
    const Command& command = *message.command;
    if (const auto* start = std::get_if<Start>(&command)) {
      machines_.start(clock_, message.node, *start);
    } else if (const auto* resize = std::get_if<Resize>(&command)) {
      machines_.place(clock_, message.node, *resize, message.started);
    } else {
      machines_.stop(clock_, message.node, std::get<Stop>(command), message.started);
    }
  }

  // What a status means, by what was told before.
  void hear(NodeId from, const MachineStatus& heard) {
    const JobId id = heard.status.job;
    const auto found = jobs_.find(id);
    if (found == jobs_.end() || found->second.over) return;
    if (found->second.home != from) return;  // an earlier home, of an earlier run
    Job& job = found->second;
    const JobStatus& status = heard.status;
    const Generation told = generation_of(job.last);
    const bool finished = status.ended && status.ended->how == JobEnd::How::finished;
    if (finished) {
      job.over = true;
      remember(job, heard);
      facts_.emplace_back(Finished{id, status.generation, status.ended->at});
      return;
    }
    // After a restart of the daemon only the last command is known, and it was no Start.
    if (!job.started) job.started = heard.started;
    if (heard.started != *job.started || heard.number < job.number) return;
    remember(job, heard);
    const bool ended = status.ended.has_value();
    if (ended) return hear_end(id, job, status, told);
    if (status.generation != told) return;
    const auto in_use = allocation_of(status.in_use, machines_.cluster()).value();
    Allocation wanted;
    if (const auto* start = std::get_if<Start>(&job.last)) wanted = start->gpus;
    if (const auto* resize = std::get_if<Resize>(&job.last)) wanted = resize->gpus;
    const Allocation released = minus(minus(job.held, wanted), in_use);
    if (!released.empty()) {
      job.held = minus(job.held, released);
      facts_.emplace_back(Released{id, told, released, {}, false});
    }
    if (status.running && !job.said_running) {
      job.said_running = true;
      facts_.emplace_back(Running{id, told, {}});
    }
  }

  void hear_end(JobId id, Job& job, const JobStatus& status, Generation told) {
    const bool failed = status.ended->how == JobEnd::How::failed;
    const bool stopped = std::holds_alternative<Stop>(job.last);
    // Else it was stopped by an older word: cannot be, as that one was obeyed.
    if (stopped || failed || status.generation == told) end(id, job);
  }

  void end(JobId id, Job& job) {
    job.held = Allocation();
    job.over = true;
    const Generation told = generation_of(job.last);
    if (machines_.finished(id)) {
      facts_.emplace_back(Finished{id, told});
    } else if (std::holds_alternative<Stop>(job.last)) {
      facts_.emplace_back(Released{id, told, {}, {}, true});
    } else {
      facts_.push_back(failed(id, job));
    }
  }

  static Event failed(JobId id, const Job& job) {
    const JobEnd end = job.status.status.ended.value_or(JobEnd());
    return Failed{id, generation_of(job.last), {}, end.infrastructure, end.why};
  }

  void remember(Job& job, const MachineStatus& heard) {
    job.number = heard.number;
    job.status = heard;
    reported_.insert(heard.status.job);
  }

  void watch() {
    for (std::size_t n = 0; n < heard_.size(); ++n) {
      const NodeId node(static_cast<NodeId::rep>(n));
      if (!machines_.sick.contains(node)) machines_.in_trouble.erase(node);
      const bool troubled = machines_.in_trouble.contains(node);
      const bool silent = clock_ - heard_[n] > lease || troubled;
      if (silent == silent_[n]) continue;
      silent_[n] = silent;
      if (down_[n]) continue;  // until the operator says otherwise
      facts_.emplace_back(NodeChanged{node, silent ? NodeState::unknown : NodeState::up,
                                      troubled ? "its disk is full" : ""});
    }
  }

  Machines& machines_;
  const Time& clock_;
  Random random_;
  std::map<JobId, Job> jobs_;
  std::vector<Time> heard_;
  std::vector<bool> silent_;
  std::vector<bool> down_;
  std::vector<OnTheWay> wires_;
  std::uint64_t next_ = 0;
  std::set<JobId> reported_;
  std::vector<Event> facts_;
};

}  // namespace rubato::daemon

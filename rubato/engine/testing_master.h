// A toy master for tests: a job's launcher as a state machine. It knows how the job really runs:
// its speed, its work, its crashes, how long it loads, how long its workers take to leave a GPU,
// and which batch it chooses.
//
// Time is an input. next() says when something happens by itself, pass() lets it happen.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rubato/base/random.h"
#include "rubato/base/time.h"
#include "rubato/core/allocation.h"
#include "rubato/launch/master_messages.h"
#include "rubato/model/goodput.h"

namespace rubato::engine {

// How a job really is.
struct ToyJob {
  Work work = 0;                            // in samples
  std::function<WorkRate(int gpus)> speed;  // samples per second
  int crashes = 0;                          // the program fails by itself this often
  bool hasty = false;                       // it finishes before its last worker has loaded
  std::optional<Goodput> goodput;           // of a job that chooses its batch itself
  Work done = 0;                            // what its checkpoint has
};

// How long things take.
struct Pace {
  Duration loading = from_seconds(1);  // from the last change of its GPUs to training
  Duration grace{};                    // a worker leaves its GPU within this time
  Duration step{};                     // every other step of a process takes up to this time
};

// A random time up to `most`.
inline Duration up_to(Random& random, Duration most) {
  if (most.count() == 0) return most;
  const std::uint64_t count = random.below(static_cast<std::uint64_t>(most.count()));
  return Duration(static_cast<std::int64_t>(count));
}

class ToyMaster {
 public:
  ToyMaster(Time now, Generation start, const Allocation& gpus, ToyJob& job, const Pace& pace,
            Random random)
      : job_(job), pace_(pace), random_(random), obeyed_(start), counted_(now) {
    want(now, gpus);
  }

  // --- orders; an old generation is ignored ---

  void place(Time now, Generation generation, const Allocation& gpus) {
    if (generation <= obeyed_ || stopping_ || ended_) return;
    settle(now);
    obeyed_ = generation;
    changed_ = true;
    if (gpus != wanted_) want(now, gpus);  // else only the batch is another
  }
  void stop(Time now, Generation generation) {
    if (generation <= obeyed_ || ended_) return;
    settle(now);
    obeyed_ = generation;
    changed_ = true;
    stopping_ = true;
    want(now, Allocation());
  }
  // Its workers are gone at once.
  void fail(Time now, std::string why, bool infrastructure) {
    if (ended_) return;
    settle(now);
    end({JobEnd::How::failed, 1, std::move(why), infrastructure});
  }

  // --- time ---

  [[nodiscard]] Time next() const {
    if (ended_) return kNever;
    Time next = kNever;
    for (const Change& change : changes_) next = std::min(next, change.at);
    if (!in_place()) return next;
    if (!announced_) next = std::min(next, std::max(ready_, counted_));
    return std::min(next, milestone());
  }
  void pass(Time now) {
    for (Time at = next(); at <= now; at = next()) {
      const bool at_milestone = in_place() && milestone() <= at;
      settle(at);
      if (at_milestone) {
        reach_milestone();
      } else if (in_place() && !announced_ && ready_ <= at) {
        announced_ = changed_ = true;
      } else {
        change_one(at);
      }
    }
    settle(now);
  }

  // --- what others see ---

  // Whether anything but the progress has changed since the last call.
  [[nodiscard]] bool take_changed() { return std::exchange(changed_, false); }
  [[nodiscard]] const Allocation& in_use() const { return workers_; }
  [[nodiscard]] const std::optional<JobEnd>& ended() const { return ended_; }
  [[nodiscard]] bool trains(Time now) const { return !ended_ && in_place() && now >= ready_; }

  [[nodiscard]] JobStatus status(Time now, JobId id) const {
    JobStatus status;
    status.job = id;
    status.generation = obeyed_;
    status.in_use = slots_of(workers_);
    status.running = trains(now) && !job_.hasty;
    status.ended = ended_;
    JobProgress& progress = status.progress;
    progress.samples = job_.done;
    progress.step = static_cast<std::int64_t>(job_.done / kSamplesOfStep);
    progress.workers = workers_.gpus();
    progress.rate = status.running ? job_.speed(workers_.gpus()) : 0;
    progress.step_rate = progress.rate / kSamplesOfStep;
    if (job_.goodput && status.running) tell_batch(progress);
    return status;
  }

 private:
  static constexpr double kSamplesOfStep = 10;
  // A program that has crashed before crashes again so soon after it has loaded.
  static constexpr Duration kStumble = std::chrono::milliseconds(100);

  // A worker that starts or ends.
  struct Change {
    Time at;
    Slice gpu;
    bool starts = false;
  };

  void want(Time now, const Allocation& gpus) {
    wanted_ = gpus;
    ready_ = now + pace_.loading;
    announced_ = false;
    arrange(now);
    pass(now);
    if (stopping_ && workers_.empty()) end({JobEnd::How::stopped, 0, "stopped"});
  }

  // Workers start where they are wanted and leave where they are not. A worker that is leaving
  // goes on leaving, although its GPU may be wanted again.
  void arrange(Time now) {
    schedule(now, minus(minus(wanted_, workers_), starting_), starting_, pace_.step, true);
    schedule(now, minus(minus(workers_, wanted_), leaving_), leaving_, pace_.grace, false);
  }
  void schedule(Time now, const Allocation& gpus, Allocation& pending, Duration most, bool starts) {
    for (const Slice& slice : gpus.slices()) {
      for (std::uint64_t rest = slice.mask; rest != 0; rest &= rest - 1) {
        const Slice one{slice.node, rest & (~rest + 1)};
        pending.add(one);
        changes_.push_back({now + up_to(random_, most), one, starts});
      }
    }
  }
  void change_one(Time at) {
    const auto change =
        std::min_element(changes_.begin(), changes_.end(),
                         [](const Change& a, const Change& b) { return a.at < b.at; });
    const auto [when, gpu, starts] = *change;
    changes_.erase(change);
    (starts ? starting_ : leaving_).remove(gpu);
    const bool wanted = (wanted_.mask_on(gpu.node) & gpu.mask) != 0;
    if (starts && wanted) workers_.add(gpu);
    if (!starts) workers_.remove(gpu);
    changed_ = true;
    arrange(at);
    if (stopping_ && workers_.empty()) end({JobEnd::How::stopped, 0, "stopped"});
  }

  [[nodiscard]] bool in_place() const {
    return !stopping_ && !wanted_.empty() && workers_ == wanted_ && leaving_.empty();
  }

  // Half of its work if it is going to crash there, else all of it.
  [[nodiscard]] Work goal() const { return job_.crashes > 0 ? job_.work / 2 : job_.work; }
  [[nodiscard]] Time milestone() const {
    const Time from = std::max(counted_, ready_);
    const Work left = goal() - job_.done;
    if (left <= 0) return job_.crashes > 0 ? std::max(from, ready_ + kStumble) : from;
    const WorkRate rate = job_.speed(workers_.gpus());
    return rate > 0 ? from + from_seconds(std::ceil(left / rate * 1e6) / 1e6) : kNever;
  }
  void reach_milestone() {
    job_.done = std::max(job_.done, goal());
    if (job_.crashes == 0) return end({JobEnd::How::finished, 0, ""});
    --job_.crashes;
    end({JobEnd::How::failed, 1, "its program failed"});
  }

  // Counts the work up to now.
  void settle(Time now) {
    const Time from = std::max(std::exchange(counted_, now), ready_);
    if (ended_ || !in_place() || now <= from) return;
    const Work more = job_.speed(workers_.gpus()) * seconds(now - from);
    job_.done = std::min(job_.work, job_.done + more);
  }

  void end(JobEnd end) {
    ended_ = std::move(end);
    changed_ = true;
    workers_ = starting_ = leaving_ = Allocation();
    changes_.clear();
  }

  void tell_batch(JobProgress& progress) const {
    const Goodput& truth = *job_.goodput;
    const Footprint place{workers_.nodes(), workers_.gpus()};
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

  ToyJob& job_;
  Pace pace_;
  Random random_;
  Generation obeyed_;
  Allocation wanted_;
  Allocation workers_;             // processes are there
  Allocation starting_, leaving_;  // GPUs with a change to come
  std::vector<Change> changes_;
  Time ready_;              // its workers have loaded by then
  Time counted_;            // the work up to then is in job_.done
  bool announced_ = false;  // that it trains
  bool stopping_ = false;
  bool changed_ = true;
  std::optional<JobEnd> ended_;
};

}  // namespace rubato::engine

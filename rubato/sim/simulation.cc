#include "rubato/sim/simulation.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "rubato/loop/admission.h"
#include "rubato/loop/decision_times.h"
#include "rubato/loop/scheduler.h"
#include "rubato/sim/searches.h"
#include "rubato/sim/sim_engine.h"

namespace rubato::sim {
namespace {

using WallClock = std::chrono::steady_clock;

// Jobs may last 1,000 years each, one after the other: far beyond this, time itself would overflow.
constexpr Time kLatest = kStart + std::chrono::hours(24) * 36'525'000;

// A policy may preempt faster than jobs can restart; then nothing ever ends. No workload that does
// end has been seen to need a thousandth of this between two ends.
constexpr std::size_t kMostDecisionsWithoutAnEnd = 2'000'000;

double wall_ms(WallClock::time_point from) {
  return std::chrono::duration<double, std::milli>(WallClock::now() - from).count();
}

class Simulation {
 public:
  Simulation(const Workload& workload, const Cluster& cluster, Policy& policy,
             const SimulationOptions& options, std::atomic<std::size_t>* done)
      : workload_(workload),
        cluster_(cluster),
        policy_(policy),
        options_(options),
        done_(done),
        scheduler_(cluster, options.placement, options.interval, quiet_rule(), options.skew_limit),
        engine_(workload, cluster, options.placement != Placement::count, options.contention,
                options.link_order),
        searches_(workload, options.knowledge.seed, options.searches_stop),
        knowledge_(workload, options.knowledge, policy.learns()),
        recorder_(workload, cluster, options.record) {}

  Result<SimulationResult> run() {
    const auto begun = WallClock::now();
    while (const auto next = next_instant()) {
      if (*next > kLatest) {
        return Error{
            fmt::format("the simulation has passed 100,000 years with {} of {} jobs done: "
                        "give it fewer or shorter jobs, or more GPUs",
                        ended_, workload_.jobs.size())};
      }
      if (auto ok = live_through(*next); !ok) return ok.error();
    }
    SimulationResult result{recorder_.metrics(), std::move(recorder_), cells_.reports()};
    result.metrics.events = events_;
    if (workload_.searches > 0) result.metrics.searches = searches_.figures();
    result.metrics.decisions = decide_ms_.size();
    result.metrics.decide_ms_p50 = percentile(decide_ms_, 0.5).value_or(0);
    result.metrics.decide_ms_p99 = percentile(decide_ms_, 0.99).value_or(0);
    result.metrics.wall_s = wall_ms(begun) / 1000;
    return result;
  }

 private:
  [[nodiscard]] QuietRule quiet_rule() const {
    const bool known = options_.contention_known && options_.contention != nullptr;
    return {options_.quiet_loss, known ? options_.contention.get() : &seen_};
  }

  // Nothing can happen any more once all jobs have come and none is left to wait for.
  [[nodiscard]] bool work_remains() const {
    return next_job_ < workload_.jobs.size() || !scheduler_.snapshot().jobs.empty();
  }

  std::optional<Time> next_instant() const {
    std::optional<Time> next;
    const auto consider = [&](Time t) { next = next ? std::min(*next, t) : t; };
    if (next_job_ < workload_.jobs.size()) consider(workload_.jobs[next_job_].submit);
    if (const auto fact = engine_.next_fact()) consider(*fact);
    if (!work_remains()) return next;
    if (const auto news = knowledge_.next_fact()) consider(*news);
    if (const auto stage = searches_.next_fact()) consider(*stage);
    if (next_node_event_ < options_.node_events.size())
      consider(options_.node_events[next_node_event_].at);
    if (scheduler_.decision_due()) consider(boundary(now_));
    if (const auto wake = scheduler_.state().again_at) consider(boundary(std::max(*wake, now_)));
    return next;
  }

  // The first moment at or after t at which deciding is allowed.
  [[nodiscard]] Time boundary(Time t) const {
    return decision_allowed_from(next_interval(t, options_.interval), options_.interval,
                                 decided_at_);
  }

  // All that happens at one instant is folded before the policy is asked, once.
  Result<void> live_through(Time now) {
    now_ = now;
    absorb_facts();  // a job that is done at this instant does not lose to a fault
    while (next_node_event_ < options_.node_events.size() &&
           options_.node_events[next_node_event_].at <= now) {
      const NodeEvent& event = options_.node_events[next_node_event_++];
      engine_.change_node(now, event.node, event.state);
    }
    absorb_facts();
    absorb_news();
    while (next_job_ < workload_.jobs.size() && workload_.jobs[next_job_].submit <= now)
      submit_next();
    absorb_stages();
    if (boundary(now) != now) return {};
    if (scheduler_.state().again_at && *scheduler_.state().again_at <= now) post(Wake{});
    if (scheduler_.decision_due()) return decide();
    return {};
  }

  Result<void> decide() {
    if (++decisions_since_end_ > kMostDecisionsWithoutAnEnd) {
      return Error{fmt::format(
          "no job has ended in {} decisions (at {} s): the policy moves jobs faster than "
          "they restart; lower --restart-cost or set an --interval",
          kMostDecisionsWithoutAnEnd, seconds(now_))};
    }
    decided_at_ = now_;
    const Snapshot& snapshot = scheduler_.ask(now_);
    if (options_.placement == Placement::quiet && !options_.contention_known)
      seen_.observe(snapshot);
    const auto begun = WallClock::now();
    auto decision = policy_.decide(snapshot);
    decide_ms_.push_back(wall_ms(begun));
    if (!decision) return decision.error();
    if (const auto use = policy_.cell_use()) cells_.decided(snapshot, *use);
    if (decision->advice) recorder_.advised(now_, *decision->advice);
    if (auto prices = policy_.prices(); !prices.empty()) recorder_.priced(now_, std::move(prices));
    post(Decided{std::move(*decision)});
    if (!refused_.empty()) {
      return Error{fmt::format("the policy's decision at {} s cannot be carried out: {}",
                               seconds(now_), refused_)};
    }
    absorb_facts();
    absorb_stages();  // nobody waits for a trial that was rejected
    return {};
  }

  // A job with a profile has an agent that measures for it; an oracle need not ask it.
  [[nodiscard]] std::shared_ptr<const SpeedModel> first_estimate(JobId id) {
    const SimJob& job = workload_.jobs[id.index()];
    if (!job.application && !job.phases) return knowledge_.first_estimate(id);
    return policy_.knows_truth() ? job.speed : engine_.estimate(id);
  }

  void submit_next() {
    const SimJob& job = workload_.jobs[next_job_];
    const JobId id(static_cast<JobId::rep>(next_job_));
    Submitted event{id, job.spec, first_estimate(id), job.work};
    ++next_job_;
    if (const auto reject = never_fits(event, policy_, cluster_)) {
      recorder_.rejected(now_, *reject, false);
      searches_.finished(now_, id, false);
      count_done();
      return;
    }
    recorder_.submitted(now_, event.job);
    searches_.submitted(now_, id);
    if (job.trial) engine_.set_stage(id, searches_.left_after_stage(id));
    post(std::move(event));
  }

  // Facts bring commands, and commands bring facts, until the instant is quiet.
  void absorb_facts() {
    for (;;) {
      facts_.clear();
      engine_.collect(now_, facts_);
      if (facts_.empty()) return;
      for (auto& fact : facts_) {
        if (policy_.knows_truth() && std::holds_alternative<Estimated>(fact)) continue;
        if (const auto* finished = std::get_if<Finished>(&fact)) {
          recorder_.finished(now_, finished->job);
          cells_.ended(now_, finished->job);
          searches_.finished(now_, finished->job, true);
          count_done();
        } else if (const auto* failed = std::get_if<Failed>(&fact)) {
          recorder_.failed(now_, failed->job);
        } else if (const auto* running = std::get_if<Running>(&fact)) {
          recorder_.speed(now_, running->job, running->progress.rate);
        }
        observe(fact);
        post(std::move(fact));
      }
    }
  }

  // What the machines do is what can be measured.
  void observe(const Event& fact) {
    if (const auto* running = std::get_if<Running>(&fact)) {
      knowledge_.runs(running->job, engine_.gpus(running->job), running->progress);
      searches_.runs(running->job, running->progress);
    } else if (const auto* finished = std::get_if<Finished>(&fact)) {
      rests(finished->job);
    } else if (const auto* failed = std::get_if<Failed>(&fact)) {
      rests(failed->job);
    } else if (const auto* released = std::get_if<Released>(&fact); released && released->stopped) {
      rests(released->job);
    }
  }

  void rests(JobId job) {
    knowledge_.rests(job);
    searches_.rests(job);
  }

  // Trials that are stopped leave at once, and the others may begin another stage.
  void absorb_stages() {
    if (workload_.searches == 0) return;
    std::vector<Event> facts;
    for (searches_.collect(now_, facts); !facts.empty(); searches_.collect(now_, facts)) {
      for (Event& fact : std::exchange(facts, {})) {
        const auto* cancelled = std::get_if<Cancelled>(&fact);
        const auto stopped = cancelled != nullptr ? std::optional(cancelled->job) : std::nullopt;
        post(std::move(fact));
        if (stopped) {
          recorder_.stopped(now_, *stopped);
          count_done();
        }
      }
      absorb_facts();
    }
    if (options_.link_order != LinkOrder::grouper) return;
    for (const JobView& job : scheduler_.snapshot().jobs) {
      if (workload_.jobs[job.id.index()].trial)
        engine_.set_stage(job.id, searches_.left_after_stage(job.id));
    }
  }

  void absorb_news() {
    facts_.clear();
    knowledge_.collect(now_, facts_);
    for (auto& fact : facts_) post(std::move(fact));
  }

  void post(Event event) {
    ++events_;
    reaction_.clear();
    scheduler_.on(now_, std::move(event), reaction_);
    if (!reaction_.refused.empty()) refused_ = reaction_.refused;
    for (const auto& reject : reaction_.rejected) {
      recorder_.rejected(now_, reject, true);
      searches_.finished(now_, reject.job, false);
      count_done();
    }
    for (const auto& change : reaction_.changes) recorder_.changed(change);
    if (reaction_.commands.empty()) return;
    engine_.carry_out(now_, reaction_.commands);
    for (const auto& command : reaction_.commands) record(command);
  }

  void record(const Command& command) {
    struct Visitor {
      Simulation& self;
      void operator()(const Start& c) const {
        self.recorder_.allocation(self.now_, c.job, c.gpus, self.engine_.rate(c.job));
      }
      void operator()(const Resize& c) const {
        self.recorder_.allocation(self.now_, c.job, c.gpus, self.engine_.rate(c.job));
      }
      void operator()(const Stop& c) const {
        self.recorder_.allocation(self.now_, c.job, Allocation(), 0);
      }
    };
    std::visit(Visitor{*this}, command);
  }

  void count_done() {
    ++ended_;
    decisions_since_end_ = 0;
    if (done_ != nullptr) done_->fetch_add(1, std::memory_order_relaxed);
  }

  const Workload& workload_;
  const Cluster& cluster_;
  Policy& policy_;
  const SimulationOptions& options_;
  std::atomic<std::size_t>* done_;
  SeenContention seen_;
  Scheduler scheduler_;
  SimEngine engine_;
  Searches searches_;
  Knowledge knowledge_;
  Recorder recorder_;
  CellsMeter cells_;

  Time now_ = kStart;
  std::optional<Time> decided_at_;  // the last decision, where decisions keep an interval
  std::size_t next_job_ = 0;
  std::size_t next_node_event_ = 0;
  std::size_t events_ = 0;
  std::size_t ended_ = 0;
  std::size_t decisions_since_end_ = 0;
  std::vector<Event> facts_;
  Reaction reaction_;
  std::string refused_;
  std::vector<double> decide_ms_;
};

}  // namespace

Result<SimulationResult> simulate(const Workload& workload, const Cluster& cluster, Policy& policy,
                                  const SimulationOptions& options,
                                  std::atomic<std::size_t>* done) {
  return Simulation(workload, cluster, policy, options, done).run();
}

}  // namespace rubato::sim

#include "rubato/daemon/explain.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

#include "rubato/base/text.h"
#include "rubato/daemon/phrases.h"
#include "rubato/daemon/searches.h"

namespace rubato::daemon {
namespace {

std::string capitalised(std::string sentence) {
  if (sentence[0] >= 'a' && sentence[0] <= 'z') sentence[0] = static_cast<char>(sentence[0] - 32);
  return sentence;
}

// The most jobs that are named as bidding more.
constexpr std::size_t kMostNamed = 20;

class Explanation {
 public:
  Explanation(const ViewContext& context, const JobRecord& job, bool sees_all)
      : context_(context),
        state_(context.state),
        job_(job),
        view_(job.gone() ? nullptr : state_.view(job.id)),
        sees_all_(sees_all) {}

  Json json() {
    tell();
    Json decision = nullptr;
    // The last decision says nothing about a job that has ended.
    if (const auto& last = state_.last_decision(); last && !job_.gone()) {
      decision = {{"number", last->number.value()},
                  {"at", iso_of(state_, last->at)},
                  {"policy", last->policy}};
    }
    return {{"job", job_.id.value()},  {"sentences", sentences_}, {"decision", decision},
            {"waits_for", waits_for_}, {"holds", holds_},         {"would_change", would_change_},
            {"market", market_}};
  }

 private:
  void say(std::string sentence) { sentences_.push_back(std::move(sentence)); }
  void change(std::string sentence) { would_change_.push_back(std::move(sentence)); }

  void tell() {
    if (job_.gone()) return tell_end();
    if (job_.measured_by) {
      say(fmt::format(
          "Its speed is not known yet, so nothing can be promised: job {} measures it on a few GPU "
          "counts; the verdict comes by {}.",
          job_.measured_by->value(),
          job_.verdict_by ? clock_at(state_, *job_.verdict_by) : std::string("then")));
      return change("free GPUs, on which it can be measured");
    }
    if (view_ == nullptr) return;
    if (job_.trial) tell_search();
    if (view_->leaving) return say("It is leaving and still has to release its GPUs.");
    tell_quota();
    if (job_.has_quota() && view_->on_hold) return;
    if (const auto until = job_.paused_until()) {
      say(fmt::format("It starts again at {}, after {}.", clock_at(state_, *until),
                      setback_text(job_)));
      say(fmt::format("{} in a row; the pause doubles with each, up to 5 minutes.",
                      plural(job_.setbacks->in_a_row, "failure")));
      return change(fmt::format("rubato release {}: it starts again at once", job_.id.value()));
    }
    if (job_.trial && job_.trial->waits) {
      say("It waits until enough other trials have finished the stage.");
      return change(fmt::format("rubato release {}: it goes on without waiting", job_.id.value()));
    }
    if (view_->on_hold) {
      say("It is on hold: the policy does not see it.");
      return change(fmt::format("rubato release {}", job_.id.value()));
    }
    tell_promise();
    tell_plain();
    tell_nodes();
    const auto& last = state_.last_decision();
    if (!last || last->at < view_->submitted) {
      say("No decision has been taken since it was submitted.");
      return;
    }
    if (!last->refused.empty()) {
      // The reason may name jobs of other users.
      say(fmt::format("The last decision could not be carried out{}, so nothing changes.",
                      sees_all_ ? fmt::format(" ({})", last->refused) : ""));
    }
    const auto grant = std::find_if(last->decision.run.begin(), last->decision.run.end(),
                                    [&](const Grant& g) { return g.job == job_.id; });
    if (grant != last->decision.run.end()) {
      tell_grant(*grant);
    } else if (!view_->target.empty()) {
      say(fmt::format("It keeps its {}: its node cannot be reached, or it may not be preempted.",
                      plural(view_->target.gpus(), "GPU")));
    } else {
      tell_wait(*last);
    }
  }

  void tell_end() {
    const Verdict verdict = verdict_on(context_, job_);
    if (job_.ending->how == Ending::refused) {
      say(fmt::format("It was {}.", verdict.text));
      if (verdict.earliest)
        change(fmt::format("a deadline not before {}", clock_at(state_, *verdict.earliest)));
      return;
    }
    say(fmt::format("It is gone: {}{}{}.", to_text(job_.ending->how),
                    job_.ending->why.empty() ? "" : ", ", job_.ending->why));
    if (job_.trial) tell_stages();
    tell_plain();
  }

  void tell_stages() {
    std::string text;
    for (const StageMetric& metric : job_.trial->stages)
      text += fmt::format("{}{}", text.empty() ? "" : ", ",
                          metric ? shortest(*metric) : std::string("none"));
    say(fmt::format("It was {}; its {} at the end of each stage: {}.", trial_text(job_),
                    job_.file.search->metric, text.empty() ? "it finished none" : text));
  }

  // Its place in its search, and what the next stage is.
  void tell_search() {
    const SearchWish& search = *job_.file.search;
    const TrialStanding place = standing_of(state_, job_);
    const int next = static_cast<int>(job_.trial->stages.size()) + 1;
    if (place.stage == 0) {
      say(fmt::format("It is {}, and has not finished a stage.", trial_text(job_)));
    } else {
      say(fmt::format("It is {}: {} of {} by {} after stage {}, from which {} of {} trials go on.",
                      trial_text(job_), ordinal(place.rank), place.reached, search.metric,
                      place.stage, search.rule.survivors(place.stage), search.rule.trials));
    }
    if (next > search.rule.stages()) return;
    const WorkAmount end{search.stage.unit, search.stage.amount * search.rule.stage_end(next)};
    say(fmt::format("Stage {} ends at {}; {} go on then.", next, jobfile::to_text(end),
                    plural(search.rule.survivors(next), "trial")));
  }

  void tell_plain() {
    if (!job_.plain) return;
    say("Its program does not use Rubato's library, so it has one process on one GPU.");
    change(std::string(kToUseMoreGpus));
  }

  // A limit of the user, as the cluster manager says it.
  void tell_quota() {
    if (!job_.has_quota()) return;
    const Quota& quota = *job_.quota;
    say(fmt::format("{}: {}. It tries again at {}.",
                    quota.gpus > 0 && !view_->on_hold
                        ? fmt::format("It gets only {}", plural(quota.gpus, "GPU"))
                        : fmt::format("It waits, because it would get {} of the {} that it needs",
                                      quota.gpus == 0 ? "none" : std::to_string(quota.gpus),
                                      plural(quota.before.smallest(), "GPU")),
                    quota.why, clock_at(state_, *quota.until)));
    change("a higher limit of the user's account");
  }

  void tell_promise() {
    if (!job_.promise) return;
    if (job_.honoured) {
      say(fmt::format("It was promised to be done by {}{}.",
                      job_.deadline ? clock_text(*job_.deadline, state_.wall(state_.time()))
                                    : clock_at(state_, job_.promise->finish),
                      plan_text(job_.promise->plan)));
    } else {
      say(fmt::format("It was promised to be done in time, but {} does not honour that now.",
                      state_.policy().text));
    }
  }

  void tell_nodes() {
    const std::string unknown = unknown_nodes(state_, view_->held);
    if (unknown.empty()) return;
    say(fmt::format("{}. The job keeps its GPUs there, and nothing else is started on them.",
                    capitalised(unknown)));
    change("the node can be used again, or an admin declares it dead (rubato drain --down NODE)");
  }

  // Whether its cooldown kept it from growing as the last decision wanted.
  [[nodiscard]] bool cools_down(const Grant& grant) const {
    const int has = view_->target.gpus();
    if (view_->spec->deadline) return false;
    return has > 0 && has < gpus_of(grant.want) && view_->cooled() > state_.last_decision()->at;
  }

  void tell_grant(const Grant& grant) {
    const bool cools = cools_down(grant);
    const int granted =
        cools ? view_->target.gpus() : std::max(gpus_of(grant.want), view_->target.gpus());
    say(fmt::format("{} gave it {} at {}; it may have {}.", state_.last_decision()->policy,
                    plural(granted, "GPU"), clock_at(state_, state_.last_decision()->at),
                    gpu_range(view_->spec->limits.min, view_->spec->limits.max)));
    if (cools) {
      say(fmt::format("It was resized at {}, and its cooldown lasts until {}.",
                      clock_at(state_, *view_->resized), clock_at(state_, view_->cooled())));
    }
    for (const Slot& slot : slots_of(view_->held)) holds_.push_back(slot);
    tell_sharing();
    const Allocation missing = minus(view_->target, view_->held);
    if (!missing.empty()) tell_missing(missing);
    const int free = free_gpus();
    if (granted < view_->spec->limits.max)
      say(fmt::format("{} idle in the whole cluster.",
                      free == 1 ? "1 GPU is" : fmt::format("{} GPUs are", free)));
    tell_cells();
    tell_market();
    change("a job that arrives, ends or fails: the policy then decides again");
    if (granted == view_->spec->limits.max)
      change(fmt::format("a maximum above {} GPUs (rubato resize)", view_->spec->limits.max));
  }

  // Two jobs may have the same GPUs. An opportunistic one is then the guest of the other.
  void tell_sharing() {
    const JobView* other = view_->shares_with ? state_.view(*view_->shares_with) : nullptr;
    if (other == nullptr) return;
    const std::string gpus = view_->target.gpus() == 1 ? "GPU" : "GPUs";
    const std::string who =
        sees(other->id) ? fmt::format("job {}", other->id.value()) : std::string("another job");
    const bool guest = view_->spec->opportunistic;
    if (guest == other->spec->opportunistic)
      return say(fmt::format("It shares its {} with {}.", gpus, who));
    if (!guest)
      return say(
          fmt::format("It is the host of {}, a guest on its {} that is slowed down, or "
                      "stopped, if this job loses more than 5% of its speed.",
                      who, gpus));
    const JobStatus* status = context_.status(job_.id);
    const auto share = status != nullptr ? status->guest_share : std::nullopt;
    say(fmt::format("It shares the {} of {} as its guest{}.", gpus, who,
                    !share ? ""
                    : *share == 0
                        ? ", and stands still now so that its host loses nothing"
                        : fmt::format(", and computes {:.0f}% of the time now", *share * 100)));
    change("GPUs that become idle: it moves there");
  }

  // Other jobs still use GPUs that this job should have.
  void tell_missing(const Allocation& missing) {
    for (const JobView& other : state_.now().jobs) {
      if (other.id == view_->id || common(other.held, missing).empty()) continue;
      note_waits_for(other.id);
    }
    say(fmt::format("{} of these are still in use by other jobs, which were told to release them.",
                    plural(missing.gpus(), "GPU")));
  }

  void tell_wait(const LastDecision& last) {
    const int needs = state_.least_gpus(*view_->spec, *view_->speed);
    const int free = free_gpus();
    int running = 0;
    int used = 0;
    for (const Grant& grant : last.decision.run) {
      const JobView* other = state_.view(grant.job);
      if (other == nullptr) continue;
      ++running;
      used += other->target.gpus();
      if (free < needs) note_waits_for(grant.job);
    }
    say(fmt::format("{} did not run it at {}: it needs at least {}, {} on {}, and {} idle.",
                    last.policy, clock_at(state_, last.at), plural(needs, "GPU"),
                    running == 1 ? std::string("1 job runs") : fmt::format("{} jobs run", running),
                    plural(used, "GPU"), free == 1 ? "1 is" : fmt::format("{} are", free)));
    tell_cells();
    if (state_.prices().empty()) {
      tell_queue(free >= needs);
    } else {
      tell_market();
    }
    const auto outlook = context_.outlooks.find(job_.id);
    if (outlook != context_.outlooks.end()) {
      say(outlook->second.start
              ? fmt::format("If jobs were taken in order of submission, it would start at {}.",
                            clock_at(state_, *outlook->second.start))
              : std::string("When it will start is unknown, because nobody knows when the jobs "
                            "before it will end."));
    }
    if (const auto node = node_in_trouble(state_))
      say(fmt::format("Not every node can be used: {}.", node_text(state_, *node)));
    tell_others();
    change("a job that ends or shrinks");
    if (view_->spec->limits.smallest() > 1)
      change("a smaller minimum number of GPUs (rubato resize)");
    if (unusable() > 0)
      change(fmt::format("nodes that come back: {} cannot be used now", plural(unusable(), "GPU")));
  }

  // Who uses GPUs that the job could have had.
  void tell_others() {
    constexpr std::size_t kMostNodes = 3;
    std::vector<std::string> others = others_texts(state_);
    const std::size_t more = others.size() > kMostNodes ? others.size() - kMostNodes : 0;
    others.resize(others.size() - more);
    for (const std::string& text : others) say(capitalised(text) + ".");
    if (more > 0) say(fmt::format("GPUs of {} more nodes are reserved.", more));
  }

  // The jobs that wait since before this one.
  void tell_queue(bool would_fit) {
    int before = 0;
    for (const auto& [id, outlook] : context_.outlooks) {
      if (id >= job_.id) break;
      ++before;
      if (would_fit) note_waits_for(id);
    }
    if (before > 0)
      say(fmt::format("{} that came before it {} too{}.", plural(before, "job"),
                      before == 1 ? "waits" : "wait",
                      would_fit ? ", and GPUs are kept free for them" : ""));
  }

  // The price, what the job bids, and how many bid more, if the policy trades GPUs.
  void tell_market() {
    if (state_.prices().empty()) return;
    const auto& quotes = state_.last_decision()->quotes;
    if (quotes == nullptr)
      return say(
          "The daemon was restarted, so the bid of the job is known again after the next "
          "decision.");
    const auto quote = quotes->of(job_.id);
    if (!quote) return;
    for (std::string& sentence : words(*quote)) say(std::move(sentence));
    Json outbid_by = Json::array();
    for (const JobId id : quotes->ahead_of(*quote)) {
      if (outbid_by.size() == kMostNamed) break;
      if (sees(id)) outbid_by.push_back(id.value());
    }
    market_ = {{"price", quote->price},
               {"bid", quote->bid},
               {"outbid", quote->ahead},
               {"outbid_by", std::move(outbid_by)}};
  }

  // Which of its GPUs are in the cells of its tenant, and which are borrowed.
  void tell_cells() {
    const auto& use = state_.last_decision()->cell_use;
    if (state_.quotas().empty()) return;
    if (use == nullptr)
      return say("The daemon was restarted, so its cells are known again after the next decision.");
    const CellUse::Job* job = use->of(job_.id);
    if (job == nullptr) return;
    const std::string room =
        job->tenant ? fmt::format("the cells of its tenant {} ({})",
                                  use->tenants[*job->tenant].name, plural(job->room, "GPU"))
                    : fmt::format("the {} in no tenant's cells", plural(job->room, "GPU"));
    if (job->stays)
      return say("It cannot leave its GPUs now, so it keeps them, whosever cells they are.");
    if (!job->inside.empty())
      say(fmt::format("{} of its GPUs {} in {}: nobody takes {} back.", job->inside.gpus(),
                      job->inside.gpus() == 1 ? "is" : "are", room,
                      job->inside.gpus() == 1 ? "it" : "them"));
    if (!job->borrowed.empty()) return tell_borrowed(*use, *job);
    if (job->inside.empty()) {
      say(job->too_large ? fmt::format("It does not fit {}.", room)
                         : fmt::format("It got no GPUs of {}.", room));
    }
    if (const auto bar = words_of(job->bar); !bar.empty()) {
      say(fmt::format("It borrows no others, because {}.", bar));
    } else if (job->inside.empty()) {
      say("No others can be borrowed now.");
    }
  }

  [[nodiscard]] static std::string words_of(CellUse::Bar bar) {
    switch (bar) {
      case CellUse::Bar::unpreemptible:
        return "it may not be preempted";
      case CellUse::Bar::promised:
        return "its deadline is or is to be promised";
      case CellUse::Bar::slow_to_stop:
        return fmt::format("its notice is longer than {} s", seconds(kNotice));
      case CellUse::Bar::none:
        break;
    }
    return "";
  }

  void tell_borrowed(const CellUse& use, const CellUse::Job& job) {
    const std::vector<int> owned = use.by_owner(job.borrowed);
    std::string who;
    for (std::size_t t = 0; t < owned.size(); ++t) {
      if (owned[t] > 0) who += (who.empty() ? "" : ", ") + use.tenants[t].name;
    }
    if (who.empty()) {
      who = "jobs of other users";
    } else if (!sees_all_) {
      who = "their tenants";
    }
    say(fmt::format("{} of its GPUs {} borrowed: {} may take {} back, within {} s.",
                    job.borrowed.gpus(), job.borrowed.gpus() == 1 ? "is" : "are", who,
                    job.borrowed.gpus() == 1 ? "it" : "them", seconds(kNotice)));
  }

  // Other users' jobs are counted, not named.
  [[nodiscard]] bool sees(JobId id) const {
    const JobRecord* other = state_.job(id);
    return sees_all_ || (other != nullptr && other->user == job_.user);
  }
  // A run that measures a job is that job's.
  void note_waits_for(JobId id) {
    const JobId of = measured_job(state_, id);
    const bool noted =
        std::find(waits_for_.begin(), waits_for_.end(), of.value()) != waits_for_.end();
    if (sees(id) && !noted && of != job_.id) waits_for_.push_back(of.value());
  }
  [[nodiscard]] int free_gpus() const {
    int free = state_.now().cluster.usable();
    const auto& nodes = state_.now().cluster.nodes();
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const NodeId id(static_cast<NodeId::rep>(i));
      free -= std::popcount(state_.loop().state().busy.used(id) & nodes[i].usable());
    }
    return free;
  }
  [[nodiscard]] int unusable() const {
    return state_.now().cluster.installed() - state_.now().cluster.usable();
  }

  const ViewContext& context_;
  const DaemonState& state_;
  const JobRecord& job_;
  const JobView* view_;
  bool sees_all_;
  std::vector<std::string> sentences_;
  std::vector<std::string> would_change_;
  std::vector<JobId::rep> waits_for_;
  std::vector<Slot> holds_;
  Json market_ = nullptr;
};

}  // namespace

Json explain(const ViewContext& context, const JobRecord& job, bool sees_all) {
  return Explanation(context, job, sees_all).json();
}

}  // namespace rubato::daemon

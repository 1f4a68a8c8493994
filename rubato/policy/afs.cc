#include "rubato/policy/afs.h"

#include <bit>
#include <cmath>
#include <cstdint>

namespace rubato::policy {
namespace {

using Contender = Afs::Contender;

// Finds the next legal count. A job whose throughput would not rise leaves the tournament.
void look_ahead(Contender& c, int gpus_left) {
  const auto next = c.job->spec->limits.above(c.gpus);
  c.next = 0;
  if (!next || *next - c.gpus > gpus_left) return;
  c.next_rate = c.job->speed->on(GpuType(), *next);
  if (!(c.next_rate > c.rate)) return;
  c.next = *next;
  const double gain = (c.next_rate - c.rate) / (*next - c.gpus);
  c.gain_if_last = gain / c.next_rate;
  c.gain_if_first = c.gpus == 0 ? 0 : gain / c.rate;
  c.length = c.left / (c.gpus == 0 ? c.next_rate : c.rate);
}

int take_step(Contender& c, int gpus_left) {
  const int taken = c.next - c.gpus;
  c.gpus = c.next;
  c.rate = c.next_rate;
  look_ahead(c, gpus_left - taken);
  return taken;
}

// A binary tree of winners: each node holds the winner of its subtree, slot 1 the overall winner.
class Tournament {
 public:
  explicit Tournament(std::vector<Contender>& contenders)
      : contenders_(contenders),
        leaves_(std::bit_ceil(std::max<std::size_t>(contenders.size(), 1))) {
    winner_.assign(2 * leaves_, kNobody);
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      winner_[leaves_ + i] = contenders[i].next != 0 ? static_cast<std::uint32_t>(i) : kNobody;
    }
    for (std::size_t slot = leaves_ - 1; slot > 0; --slot) play(slot);
  }

  [[nodiscard]] Contender* winner() {
    return winner_[1] == kNobody ? nullptr : &contenders_[winner_[1]];
  }

  // Repeats all matches of a contender that has changed.
  void replay(const Contender& changed) {
    const auto i = static_cast<std::size_t>(&changed - contenders_.data());
    winner_[leaves_ + i] = changed.next != 0 ? static_cast<std::uint32_t>(i) : kNobody;
    for (std::size_t slot = (leaves_ + i) / 2; slot > 0; slot /= 2) play(slot);
  }

 private:
  static constexpr std::uint32_t kNobody = static_cast<std::uint32_t>(-1);

  void play(std::size_t slot) {
    const std::uint32_t left = winner_[2 * slot];
    const std::uint32_t right = winner_[2 * slot + 1];
    if (left == kNobody || right == kNobody) {
      winner_[slot] = left == kNobody ? right : left;
    } else {
      winner_[slot] = Afs::beats(contenders_[left], contenders_[right]) ? left : right;
    }
  }

  std::vector<Contender>& contenders_;
  std::size_t leaves_;
  std::vector<std::uint32_t> winner_;
};

}  // namespace

bool Afs::beats(const Contender& a, const Contender& b) {
  if (a.gpus == 0 && b.gpus == 0) {
    return a.length != b.length ? a.length < b.length : a.served <= b.served;
  }
  // A job without GPUs never ends, so it counts as the longer one. On a tie the older job is
  // shorter.
  const bool a_ends_first =
      b.gpus == 0 ||
      (a.gpus != 0 && (a.length < b.length || (a.length == b.length && a.served <= b.served)));
  return a_ends_first ? !(b.gain_if_last > a.gain_if_first) : a.gain_if_last > b.gain_if_first;
}

Afs::Contender Afs::enter(const JobView& job, Time now) const {
  Contender c;
  c.id = job.id;
  c.job = &job;
  if (config.lengths_known) {
    c.left = job.progress.left(now);
  } else {
    const int smallest = job.spec->limits.smallest();
    const WorkRate alone = job.speed->on(GpuType(), smallest);
    const Work done = job.work - job.progress.left(now);
    // Rounded to milliseconds: the last bits of `done` would reveal the work left.
    const double done_seconds = std::round(done / alone * 1e3) / 1e3;
    c.left = (done_seconds + config.prior_seconds) * alone;
    c.served = job.attained(now).gpu_seconds();
  }
  return c;
}

void Afs::share_by_tree(std::vector<Contender>& contenders, int gpus) const {
  Tournament tournament(contenders);
  while (gpus > 0) {
    Contender* winner = tournament.winner();
    if (winner == nullptr) return;
    if (winner->next - winner->gpus > gpus) {
      winner->next = 0;  // its next step no longer fits
    } else {
      gpus -= take_step(*winner, gpus);
    }
    tournament.replay(*winner);
  }
}

void Afs::share_by_scan(std::vector<Contender>& contenders, int gpus) const {
  while (gpus > 0) {
    Contender* winner = nullptr;
    for (auto& c : contenders) {
      if (c.next != 0 && (winner == nullptr || !beats(*winner, c))) winner = &c;
    }
    if (winner == nullptr) return;
    if (winner->next - winner->gpus > gpus) {
      winner->next = 0;
    } else {
      gpus -= take_step(*winner, gpus);
    }
  }
}

Decision Afs::decide(const Snapshot& snapshot, State& /*state*/) const {
  const int gpus = snapshot.cluster.usable();
  std::vector<Contender> contenders;
  contenders.reserve(snapshot.jobs.size());
  for (const JobView& job : snapshot.jobs) {
    contenders.push_back(enter(job, snapshot.now));
    look_ahead(contenders.back(), gpus);
  }
  config.finding == Finding::tree ? share_by_tree(contenders, gpus)
                                  : share_by_scan(contenders, gpus);

  Decision decision;
  decision.run.reserve(contenders.size());
  for (const auto& c : contenders) {
    if (c.gpus > 0) decision.run.push_back({c.id, Count{GpuType(), c.gpus}});
  }
  return decision;
}

Result<Afs::State> Afs::State::load(const Json& /*json*/) { return State(); }

namespace {

PolicyEntry afs_row(std::string name, std::string summary, bool lengths_known) {
  PolicyEntry entry;
  entry.name = std::move(name);
  entry.paper = "Hwang et al., NSDI'21";
  entry.summary = std::move(summary);
  entry.knows = lengths_known ? "speed curve, work left" : "speed curve, work done";
  entry.elastic = true;
  entry.one_type = true;
  entry.keys = {choice_key("find", {"tree", "scan"},
                           "how the next GPU's winner is found: tournament "
                           "tree, or a linear scan for comparison")};
  if (!lengths_known) {
    entry.keys.push_back(number_key(
        "prior", 600, 0, 1e9, "expected seconds on the fewest GPUs of a job that has not run"));
  }
  entry.make = [lengths_known](const KeyValues& values, const PolicyInputs&) -> MadePolicy {
    Afs::Config config;
    config.lengths_known = lengths_known;
    if (!lengths_known) config.prior_seconds = values.number("prior");
    config.finding = values.text("find") == "tree" ? Afs::Finding::tree : Afs::Finding::scan;
    return erase(Afs{config});
  };
  return entry;
}

}  // namespace

std::vector<PolicyEntry> afs_rows() {
  return {
      afs_row("afs-l", "GPU by GPU to the short or the efficient; lengths known", true),
      afs_row("afs-p", "GPU by GPU to the short or the efficient; lengths unknown", false),
  };
}

}  // namespace rubato::policy

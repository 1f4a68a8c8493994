#include "rubato/policy/slot_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace rubato::policy {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
// Sums of doubles are not exact: so small a rest of the work is none.
constexpr double kNothing = 1e-12;

}  // namespace

double PriceRange::at(double share) const { return low * std::pow(high / low, share); }

void SeenJobs::see(double soonest, double latest, double gpu_slots) {
  const double each = latest / gpu_slots;
  least_ = least_ > 0 ? std::min(least_, each) : each;
  smallest_ = smallest_ > 0 ? std::min(smallest_, gpu_slots) : gpu_slots;
  most_ = std::max(most_, soonest);
}

PriceRange SeenJobs::range(double gpu_slots_of_all) const {
  if (!(least_ > 0)) return {};
  const double scale = std::max(1.0, gpu_slots_of_all / smallest_);
  const double low = least_ / (4 * scale);
  return {low, std::max(most_, low)};
}

Json SeenJobs::save() const {
  return {{"most", most_}, {"least", least_}, {"smallest", smallest_}};
}

SeenJobs SeenJobs::load(const Json& json) {
  SeenJobs seen;
  seen.most_ = json.at("most").get<double>();
  seen.least_ = json.at("least").get<double>();
  seen.smallest_ = json.at("smallest").get<double>();
  return seen;
}

// Some slots in which the count does not change.
struct SlotPlanner::Stretch {
  Time from = kStart, until = kStart;
  int room = 0;      // GPUs that are free all the time
  double price = 0;  // of a GPU for a second
};

// The cheapest way to have done about so much.
struct SlotPlanner::Label {
  double cost = kInfinite;
  Work done = 0;
  Time ready = kStart;    // it makes progress from then on
  std::int16_t last = 0;  // its count: 0 is none, else the level + 1
  std::int16_t before = -1;
};

// A way to the end, by the stretch in which it ends.
struct SlotPlanner::Candidate {
  double cost = kInfinite;
  double gain = 0;
  Time end = kNever;  // with its margin
  std::size_t stretch = 0;
  std::int16_t before = 0;
  std::int16_t last = 0;
};

// One search: stretches of one length.
class SlotPlanner::Search {
 public:
  Search(const Traveller& job, Time now, std::vector<Stretch> stretches)
      : job_(job), left_(job.course.progress.left(now)), stretches_(std::move(stretches)) {
    rows_.resize(stretches_.size() + 1);
    rows_[0][0] = {0, 0, job.course.progress.at, place_of(job.course.gpus), -1};
  }

  // The best candidate of each stretch with a gain, if no end is worth more than `most`.
  std::vector<Candidate> run(const std::function<double(Time)>& worth, double most) {
    most_ = most;
    for (std::size_t i = 0; i < stretches_.size(); ++i) {
      Candidate best;
      double cheapest = kInfinite;  // of those who have done more
      for (int d = kUnits - 1; d >= 0; --d) {
        const Label& label = rows_[i][static_cast<std::size_t>(d)];
        if (label.cost >= cheapest || label.cost >= most_) continue;
        cheapest = label.cost;
        for (std::size_t place = 0; place <= job_.levels.size(); ++place)
          extend(i, static_cast<std::int16_t>(d), static_cast<std::int16_t>(place), worth, best);
      }
      if (best.gain > 0) found_.push_back(best);
    }
    return found_;
  }

  [[nodiscard]] SharePlan plan(const Candidate& end) const {
    std::vector<std::int16_t> places = {end.last};
    std::int16_t d = end.before;
    for (std::size_t i = end.stretch; i > 0; --i) {
      const Label& label = rows_[i][static_cast<std::size_t>(d)];
      places.push_back(label.last);
      d = label.before;
    }
    std::reverse(places.begin(), places.end());
    std::vector<GpuStep> steps;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const int gpus = gpus_of(places[i]);
      if (steps.empty() || steps.back().gpus != gpus) steps.push_back({stretches_[i].from, gpus});
    }
    return SharePlanner::plan_along(job_, std::move(steps));
  }

 private:
  [[nodiscard]] int gpus_of(std::int16_t place) const {
    return place == 0 ? 0 : job_.levels[static_cast<std::size_t>(place - 1)].gpus;
  }
  [[nodiscard]] std::int16_t place_of(int gpus) const {
    for (std::size_t i = 0; i < job_.levels.size(); ++i) {
      if (job_.levels[i].gpus == gpus) return static_cast<std::int16_t>(i + 1);
    }
    return 0;
  }

  void extend(std::size_t i, std::int16_t d, std::int16_t place,
              const std::function<double(Time)>& worth, Candidate& best) {
    const Stretch& stretch = stretches_[i];
    Label next = rows_[i][static_cast<std::size_t>(d)];
    if (next.last != place) next.ready = stretch.from + job_.restart;
    next.last = place;
    next.before = d;
    if (place == 0) return keep(i + 1, next);
    const Level& level = job_.levels[static_cast<std::size_t>(place - 1)];
    if (level.gpus > stretch.room) return;
    const Time from = std::max(stretch.from, next.ready);
    const double needed = (left_ - next.done) / level.rate;
    const double there_is = std::max(0.0, seconds(stretch.until - from));
    const bool ends = from < stretch.until && needed <= there_is * (1 + kNothing);
    const double held =
        ends ? seconds(from - stretch.from) + needed : seconds(stretch.until - stretch.from);
    next.cost += stretch.price * level.gpus * held;
    if (!ends) {
      next.done += level.rate * there_is;
      return keep(i + 1, next);
    }
    const Time end = from + from_seconds(needed) + SharePlanner::most_margin(job_, level.rate);
    if (!lasts(i, level.gpus, end)) return;
    const double gain = worth(end) - next.cost;
    if (gain > best.gain || (gain == best.gain && gain > 0 && end < best.end))
      best = {next.cost, gain, end, i, d, place};
  }

  // Whether so many GPUs stay free until the end, which the margin may put into a later stretch.
  [[nodiscard]] bool lasts(std::size_t i, int gpus, Time end) const {
    for (++i; i < stretches_.size() && stretches_[i].from < end; ++i) {
      if (stretches_[i].room < gpus) return false;
    }
    return end <= stretches_.back().until;
  }

  void keep(std::size_t row, const Label& label) {
    if (row >= rows_.size() || label.cost >= most_) return;
    const double share = left_ > 0 ? label.done / left_ : 1;
    const auto unit = std::min<std::size_t>(
        kUnits - 1, static_cast<std::size_t>(share * (1 + kNothing) * kUnits));
    Label& there = rows_[row][unit];
    if (label.cost < there.cost || (label.cost == there.cost && label.done > there.done))
      there = label;
  }

  const Traveller& job_;
  Work left_;
  std::vector<Stretch> stretches_;
  std::vector<std::array<Label, kUnits>> rows_;
  std::vector<Candidate> found_;
  double most_ = 0;
};

std::vector<SlotPlanner::Stretch> SlotPlanner::stretches(Time now, Duration length) const {
  std::vector<Stretch> all;
  Time from = now;
  Time until = kStart + ((now - kStart) / length + 1) * length;
  for (int i = 0; i < kSlots; ++i) {
    const int room = free_.least(from, until);
    const double taken = gpus_ > 0 ? 1 - static_cast<double>(room) / gpus_ : 1;
    all.push_back({from, until, room, range_.at(taken) / seconds(slot_)});
    from = until;
    until += length;
  }
  return all;
}

double SlotPlanner::least_gpu_slots(const Traveller& job, Time now) const {
  double least = kInfinite;
  for (const Level& level : job.levels)
    least = std::min(least, level.gpus * job.course.progress.left(now) / level.rate);
  return least / seconds(slot_);
}

std::optional<SlotPlanner::Offer> SlotPlanner::best(const Traveller& job, Time now,
                                                    const Worth& worth, Time horizon) const {
  std::optional<Offer> best;
  if (job.levels.empty()) return best;
  horizon = std::min(horizon, worth.until);
  const auto in_time = [&](Time end) { return end <= horizon ? worth.at(end) : 0; };
  const double least_cost = range_.low * least_gpu_slots(job, now);
  Time covered = now;
  for (Duration length = slot_; covered <= horizon; length *= 2) {
    Search search(job, now, stretches(now, length));
    auto found = search.run(in_time, in_time(now));
    std::stable_sort(found.begin(), found.end(),
                     [](const Candidate& a, const Candidate& b) { return a.gain > b.gain; });
    for (const Candidate& candidate : found) {
      if (best && candidate.gain <= best->gain) break;
      SharePlan plan = search.plan(candidate);
      if (plan.finish + plan.margin > horizon || !plan.fits(free_)) continue;
      best = Offer{std::move(plan), candidate.cost, candidate.gain};
      break;
    }
    covered = kStart + ((now - kStart) / length + kSlots) * length;
    if (best && best->gain >= in_time(covered) - least_cost) break;
  }
  return best;
}

std::optional<Time> SlotPlanner::first_end(const Traveller& job, Time now, double worth, Time after,
                                           Time horizon) const {
  if (job.levels.empty()) return std::nullopt;
  Time covered = now;
  for (Duration length = slot_; covered < horizon; length *= 2) {
    covered = kStart + ((now - kStart) / length + kSlots) * length;
    if (covered <= after) continue;
    Search search(job, now, stretches(now, length));
    const auto wanted = [&](Time end) { return end > after ? worth : 0; };
    for (const Candidate& candidate : search.run(wanted, worth)) {
      const SharePlan plan = search.plan(candidate);
      const Time end = std::max(candidate.end, plan.finish + plan.margin);
      if (end <= horizon && plan.fits(free_)) return end;
    }
  }
  return std::nullopt;
}

}  // namespace rubato::policy

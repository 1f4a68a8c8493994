#include "rubato/daemon/what_if_episode.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace rubato::daemon {
namespace {

constexpr Duration kSoon = std::chrono::milliseconds(500);
// What happens soon after a command is written down in full.
constexpr Duration kOftenFor = std::chrono::seconds(20);

struct Reached {
  Duration after{0};
  double work = 0;
};

// Calls `use` for each piece of the episode in which work grows in proportion to time, until it
// returns true.
template <typename Use>
void each_piece(const Episode& episode, Use use) {
  Reached last;
  for (const Episode::Point& point : episode.points) {
    const Reached next{point.at - episode.from, std::max(point.done - episode.done, last.work)};
    if (use(last, next)) return;
    last = next;
  }
  use(last, Reached{episode.length(), std::max(episode.done_until - episode.done, last.work)});
}

}  // namespace

double Episode::last_speed() const {
  if (told == CommandKind::stop) return 0;
  return reports.empty() ? speed : reports.back().speed;
}

double Episode::work_by(Duration after) const {
  double work = std::max(0.0, done_until - done);
  if (after > length()) return work + last_speed() * seconds(after - length());
  each_piece(*this, [&](const Reached& a, const Reached& b) {
    if (after >= b.after) return false;
    work = a.work + (b.work - a.work) * seconds(after - a.after) / seconds(b.after - a.after);
    return true;
  });
  return work;
}

std::optional<Duration> Episode::time_of(double work) const {
  std::optional<Duration> found;
  each_piece(*this, [&](const Reached& a, const Reached& b) {
    if (b.work < work || !(b.work > a.work)) return false;
    const double share = std::max(0.0, (work - a.work) / (b.work - a.work));
    found = a.after + from_seconds(share * seconds(b.after - a.after));
    return true;
  });
  const double more = work - work_by(length());
  if (!found && last_speed() > 0) found = length() + from_seconds(more / last_speed());
  return found;
}

const Episode::Report* Episode::report_after(Duration after) const {
  const auto found = std::find_if(reports.begin(), reports.end(),
                                  [&](const Report& one) { return one.at - from > after; });
  return found == reports.end() ? nullptr : &*found;
}

const Episode::Report* Episode::report_about(Duration after) const {
  const Report* next = report_after(after);
  if (next != nullptr && next->at - from - after <= kSoon) return next;
  const Report* end = reports.data() + reports.size();
  const Report* last = next != nullptr ? next : end;
  return last == reports.data() ? nullptr : last - 1;
}

void EpisodeWriter::told(Time now, CommandKind kind, int gpus) {
  close(now);
  Episode& one = episodes_.emplace_back();
  one.told = kind;
  one.gpus = gpus;
  one.from = one.until = now;
  open_ = true;
}

void EpisodeWriter::running(Time now) {
  if (!open_ || episodes_.back().running) return;
  episodes_.back().running = now;
  // It has not trained before that.
  if (!points_.empty() && points_.back().done == 0) did(now, 0);
}

void EpisodeWriter::released(Time now, const Allocation& gpus) {
  if (open_) episodes_.back().releases.push_back({now, gpus});
}

void EpisodeWriter::report(const Episode::Report& report, Duration distance) {
  if (!open_) return;
  Episode& one = episodes_.back();
  const bool settled = !one.reports.empty() && report.at - one.from > kOftenFor;
  if (settled && report.at - one.reports.back().at < distance) return;
  one.reports.push_back(report);
  // The state of a job that starts again comes from a checkpoint, or is not reported yet.
  if (!points_.empty()) one.reports.back().done = std::max(report.done, points_.back().done);
  points_.push_back({report.at, one.reports.back().done});
  one.until = report.at;
}

void EpisodeWriter::did(Time now, double done) {
  if (!open_ || points_.empty() || now <= points_.back().at) return;
  points_.push_back({now, std::max(done, points_.back().done)});
  episodes_.back().until = now;
}

void EpisodeWriter::ended(Time now, bool completed) {
  if (!open_) return;
  open_ = false;
  episodes_.back().until = now;
  if (!completed) return;
  const double all = points_.empty() ? 0 : points_.back().done;
  leave_out_end(now);
  const Time known = points_.empty() ? kStart : points_.back().at;
  for (Episode& one : episodes_) one.until = std::min(one.until, std::max(one.from, known));
  not_done_before_last(all);
}

// The report that comes with the end says when that was. Its speed was measured before the end, and
// with as many workers it is how fast the job was after its last other report.
void EpisodeWriter::leave_out_end(Time now) {
  auto& reports = episodes_.back().reports;
  if (reports.empty() || reports.back().at != now) return;
  const Episode::Report end = std::move(reports.back());
  reports.pop_back();
  points_.pop_back();
  if (reports.empty()) episodes_.back().speed = end.speed;
  const auto before = std::find_if(episodes_.rbegin(), episodes_.rend(),
                                   [](const Episode& one) { return !one.reports.empty(); });
  if (before == episodes_.rend()) return;
  Episode::Report& last = before->reports.back();
  // A report knows the workers of the newest step. The others train soon after they run.
  const int then = before->running ? before->gpus : last.progress.workers;
  if (end.speed > 0 && end.progress.workers == then) last.speed = end.speed;
}

// A program that has done its last step may still report for some time, for example while it waits
// for a worker that joins. So it is known not to have ended then.
void EpisodeWriter::not_done_before_last(double all) {
  constexpr double kNearly = 1 - 1e-6;
  if (points_.empty()) return;
  const Time last = points_.back().at;
  const auto lower = [&](auto& one) {
    if (one.at < last && one.done >= all) one.done = all * kNearly;
  };
  for (Point& point : points_) lower(point);
  for (Episode& one : episodes_) {
    for (Episode::Report& report : one.reports) lower(report);
  }
}

std::vector<Episode> EpisodeWriter::finish(Time begin) {
  open_ = false;
  std::vector<Episode> found;
  for (Episode& one : episodes_) {
    if (one.until <= begin || (one.until <= one.from && !(one.speed > 0))) continue;
    one.done = done_at(one.from);
    one.done_until = done_at(one.until);
    const auto after = [](Time at, const Point& point) { return at < point.at; };
    const auto first = std::upper_bound(points_.begin(), points_.end(), one.from, after);
    one.points.assign(first, std::upper_bound(first, points_.end(), one.until, after));
    found.push_back(std::move(one));
  }
  return found;
}

// The next command ends what is known about the last one.
void EpisodeWriter::close(Time now) {
  if (open_) episodes_.back().until = now;
  open_ = false;
}

double EpisodeWriter::done_at(Time moment) const {
  const auto next = std::upper_bound(points_.begin(), points_.end(), moment,
                                     [](Time at, const Point& point) { return at < point.at; });
  if (next == points_.begin()) return 0;
  const Point& before = *std::prev(next);
  if (next == points_.end()) return before.done;
  const double share = seconds(moment - before.at) / seconds(next->at - before.at);
  return before.done + (next->done - before.done) * share;
}

const Episode* Record::next(CommandKind told, int gpus, double done, double tolerance) {
  if (episodes_ == nullptr) return nullptr;
  std::optional<std::size_t> nearest;
  double distance = 0;
  for (std::size_t i = position_; i < episodes_->size(); ++i) {
    const Episode& one = (*episodes_)[i];
    const double away = std::abs(one.done - done);
    if (one.told != told || one.gpus != gpus || away > tolerance) continue;
    if (nearest && away >= distance) continue;
    nearest = i;
    distance = away;
  }
  if (!nearest) return nullptr;
  position_ = *nearest + 1;
  return &(*episodes_)[*nearest];
}

const Episode* Record::at(Time moment) {
  if (episodes_ == nullptr) return nullptr;
  for (std::size_t i = position_; i < episodes_->size(); ++i) {
    const Episode& one = (*episodes_)[i];
    if (one.from > moment) break;
    if (moment >= one.until) continue;
    position_ = i + 1;
    return &one;
  }
  return nullptr;
}

}  // namespace rubato::daemon

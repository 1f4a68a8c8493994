// What a job really did after one command until the next one. A what-if lets a job do the same
// again if it gets the same command at about the same point of its work (what_if_world.h).
//
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "rubato/base/time.h"
#include "rubato/core/allocation.h"
#include "rubato/launch/master_messages.h"

namespace rubato::daemon {

enum class CommandKind : std::uint8_t { start, grow, shrink, stop };

struct Episode {
  struct Report {
    Time at;
    double done = 0;   // work, in all
    double speed = 0;  // work a second, as its program measured it
    JobProgress progress;
  };
  struct Release {
    Time at;
    Allocation gpus;
  };
  struct Point {
    Time at;
    double done = 0;  // work, in all
  };

  CommandKind told = CommandKind::start;
  int gpus = 0;
  Time from = kStart;             // the command
  Time until = kStart;            // what is known ends: the next command, or its last report
  double done = 0;                // work at its beginning
  double done_until = 0;          // and at its end
  std::optional<Time> running;    // all workers ran
  std::vector<Release> releases;  // of GPUs that it should give up, in order
  std::vector<Report> reports;    // in order, and none at the end of the job
  double speed = 0;               // measured at the end of the job, if there is no other report
  std::vector<Point> points;      // what reports and facts say of its work, in order

  [[nodiscard]] Duration length() const { return until - from; }
  [[nodiscard]] double last_speed() const;
  // The work since its beginning, so long after it; between two points in proportion. After its
  // end, the job goes on as fast as it last was.
  [[nodiscard]] double work_by(Duration after) const;
  // How long after its beginning so much work is done; nullopt: never.
  [[nodiscard]] std::optional<Duration> time_of(double work) const;
  // The first report that is later than this; nullptr if there is none.
  [[nodiscard]] const Report* report_after(Duration after) const;
  // What was reported at about that time: the last report, or one that comes soon; nullptr if there
  // is none.
  [[nodiscard]] const Report* report_about(Duration after) const;
};

// Writes down the episodes of one job while its journal is read.
class EpisodeWriter {
 public:
  void told(Time now, CommandKind kind, int gpus);
  void running(Time now);
  void released(Time now, const Allocation& gpus);
  // In a long episode, reports are kept at this distance.
  void report(const Episode::Report& report, Duration distance);
  // It had done so much work; more is known than from the reports alone.
  void did(Time now, double done);
  // The run is over. If the job has completed, a report of the same moment is not kept: it would
  // tell when that was.
  void ended(Time now, bool completed);
  // Those that are not over at `begin`.
  [[nodiscard]] std::vector<Episode> finish(Time begin);

 private:
  using Point = Episode::Point;
  void close(Time now);
  void leave_out_end(Time now);
  void not_done_before_last(double all);
  [[nodiscard]] double done_at(Time moment) const;

  std::vector<Episode> episodes_;
  bool open_ = false;
  std::vector<Point> points_;
};

// The episodes of one job, in order, while a what-if follows them.
class Record {
 public:
  Record() = default;
  explicit Record(const std::vector<Episode>* episodes) : episodes_(episodes) {}

  // Of the next episodes that began with this command, the one at the nearest point of the work,
  // no farther away than `tolerance`; nullptr if there is none. Episodes before it are over.
  [[nodiscard]] const Episode* next(CommandKind told, int gpus, double done, double tolerance);
  // The episode in which this moment was; nullptr if there is none. Those before it are over.
  [[nodiscard]] const Episode* at(Time moment);

 private:
  const std::vector<Episode>* episodes_ = nullptr;
  std::size_t position_ = 0;
};

}  // namespace rubato::daemon

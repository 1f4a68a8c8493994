// How much of the time an opportunistic job (the guest) may compute on the GPUs of a guaranteed job
// (its host), from the host's steps (AntMan, Xiao et al., OSDI'20; policy/antman.h).
//
// Time is cut into windows. In some the guest stands still, and the host's steps are those of the
// host alone. In the others the guest has a share of the time. A window's measurement is the mean
// step time of the host in it. If the host loses more than it may, the share falls; if it loses
// clearly less, the share rises. A share that has become too small to be of use is 0, and is tried
// again later, after twice as many windows each time.
//
// A host that has not stepped yet is loading: the guest stands still. A host that makes no step
// although the guest stands still does not need its GPUs: the guest has all of the time until the
// host steps again.
//
// The published controller is not known. Windows, factors and the limit of 5% are ours.
//
// Pure: no clock. The node's agent feeds it (node_jobs.h).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "rubato/base/time.h"
#include "rubato/model/guest.h"

namespace rubato::node {

class GuestControl {
 public:
  struct Config {
    double may_lose = kHostMayLose;
    Duration window = from_seconds(2);  // at least this long, and
    int steps = 4;                      // at least so many steps of the host
    Duration idle = from_seconds(3);    // without a step for so long, and
    double idle_steps = 6;              // for so many steps of the host alone, it is idle
    int shared_windows = 4;             // between two windows of the host alone
    double first = 0.1;                 // the share that is tried first
    double least = 0.02;                // a smaller share is 0
  };

  // What is known of the two jobs now.
  struct Seen {
    std::int64_t form = 0;             // of the host: other workers or another batch, another speed
    std::int64_t step = 0;             // of the host; 0: none yet
    std::optional<double> applied_at;  // when it was applied, by the workers' clock, in seconds
    std::int64_t guest_step = 0;
  };

  GuestControl() = default;
  explicit GuestControl(Config config) : config_(config) {}

  // The guest's share from now on. To be called several times a second.
  [[nodiscard]] double share(Time now, const Seen& seen);

  // The host's mean step time alone, in seconds, as far as it was measured.
  [[nodiscard]] std::optional<double> alone() const;

 private:
  struct Point {
    std::int64_t step = 0;
    double at = 0;
  };

  void begin(Time now, const Seen& seen, double share);
  void next_window(Time now, const Seen& seen);
  [[nodiscard]] bool stands(Time now) const;
  void learn(double step_seconds);
  void lower(double kept);

  Config config_;
  bool began_ = false;
  std::int64_t form_ = 0;
  double share_ = 0;    // in this window
  double wanted_ = -1;  // in shared windows; below 0: the first one is still to come
  bool idle_ = false;
  Time window_begin_;
  std::int64_t step_at_begin_ = 0;
  std::int64_t guest_step_ = 0;
  std::optional<Point> first_, last_;  // of the host's steps inside the window
  std::int64_t newest_step_ = 0;
  Time stepped_;              // when a new step was last seen
  std::deque<double> alone_;  // of the newest windows
  std::deque<double> kept_;   // of the newest shared windows with this share
  int shared_left_ = 0;       // shared windows until the next one of the host alone
  int pause_ = 0;             // windows without a guest until a share is tried again
  int next_pause_ = 2;
};

}  // namespace rubato::node
